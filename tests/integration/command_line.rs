//! The command line: exit codes that scripts can rely on, output that gives no secret away.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::Collector;
use crate::harness::certificates::Certificates;
use crate::harness::collector::BINARY;

fn run(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// The same where the examples find these certificates.
fn run_with(certificates: Option<&Certificates>, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    if let Some(certificates) = certificates {
        command.env("TLS_DIR", certificates.directory());
    }
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

const GOOD: &str = "yaml:{receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}}}}, \
    exporters: {otlp_http: {endpoint: 'http://127.0.0.1:1', headers: {authorization: Bearer hunter2}}}, \
    service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}}}";

/// Every configuration of the repository that is for this build.
fn configurations() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for directory in ["config", "examples/configs"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let is_yaml = path
                .extension()
                .is_some_and(|extension| extension == "yaml");
            if is_yaml && (cfg!(feature = "kafka") || !needs_kafka(&path)) {
                files.push(path);
            }
        }
    }
    assert!(files.len() >= 4, "{files:?}");
    files
}

fn needs_kafka(file: &Path) -> bool {
    std::fs::read_to_string(file)
        .unwrap()
        .starts_with("# built with: kafka\n")
}

#[test]
fn validate_is_silent_about_a_good_configuration_and_exits_with_0() {
    for arguments in [["--validate"], ["validate"]] {
        let output = run(&[&["--config", GOOD], &arguments[..]].concat());
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
    }
}

#[test]
fn validate_names_every_error_and_exits_with_1() {
    let bad = GOOD
        .replace("protocols", "protocol")
        .replace("[otlp_http]", "[otlp_htpp]");
    let output = run(&["--config", &bad, "--validate"]);
    assert_eq!(code(&output), 1);
    let errors = text(&output.stderr);
    for expected in [
        "protocol",
        "did you mean `protocols`",
        "otlp_htpp",
        "errors",
    ] {
        assert!(
            errors.contains(expected),
            "{expected:?} is not in:\n{errors}"
        );
    }
    let output = run(&["--config", &bad]);
    assert_eq!(code(&output), 1, "the same without --validate");
    assert_eq!(text(&output.stderr), errors);
}

#[test]
fn print_config_masks_what_urls_carry() {
    let config = GOOD.replace(
        "http://127.0.0.1:1",
        "http://127.0.0.1:1/v1?api_key=hunter2&a=b",
    );
    let output = run(&["print-config", "--config", &config]);
    assert_eq!(code(&output), 0, "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("?api_key=*****&a=b"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    // The error about a wrong URL quotes it.
    let wrong = GOOD.replace(
        "http://127.0.0.1:1",
        "http://jane:hunter2@127.0.0.1:x/?api_key=hunter2",
    );
    let output = run(&["--config", &wrong, "--validate"]);
    assert_eq!(code(&output), 1);
    assert!(!text(&output.stderr).contains("hunter2"), "{output:?}");
}

#[test]
fn strict_makes_errors_of_warnings() {
    let unused = GOOD.replace("exporters: {", "exporters: {nop: , ");
    let output = run(&["--config", &unused, "--validate"]);
    assert_eq!(code(&output), 0);
    assert!(text(&output.stderr).contains("warning"), "{output:?}");
    let output = run(&["--config", &unused, "--validate", "--strict"]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("error"), "{output:?}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = run(&["--config", "/nowhere/collector.yaml", "--validate"]);
    assert_eq!(code(&output), 1);
    assert!(
        text(&output.stderr).contains("/nowhere/collector.yaml"),
        "{output:?}"
    );
}

#[test]
fn bad_usage_exits_with_2() {
    for arguments in [&["--confg=x"][..], &["frobnicate"], &[], &["validate"]] {
        let output = run(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn help_and_version_go_to_stdout_and_exit_with_0() {
    let help = run(&["--help"]);
    assert_eq!(code(&help), 0);
    for expected in [
        "--config",
        "--set",
        "--validate",
        "components",
        "print-config",
    ] {
        assert!(text(&help.stdout).contains(expected), "{expected}");
    }
    let version = run(&["--version"]);
    assert_eq!(
        text(&version.stdout),
        concat!("collector ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn components_lists_what_is_built_in_with_the_signals() {
    let output = run(&["components"]);
    assert_eq!(code(&output), 0);
    let list: Value = serde_yaml::from_slice(&output.stdout).unwrap();
    for (kind, names) in [
        ("receivers", &["otlp", "nop"][..]),
        (
            "processors",
            &["attributes", "batch", "dedup", "memory_limiter"],
        ),
        ("exporters", &["debug", "nop", "otlp_grpc", "otlp_http"]),
        ("connectors", &["forward"]),
        ("extensions", &["health_check"]),
    ] {
        let listed = list[kind].as_array().unwrap();
        for name in names {
            let found = listed.iter().find(|component| component["name"] == *name);
            assert!(found.is_some(), "{kind}: {name}");
        }
    }
    let otlp = &list["receivers"].as_array().unwrap()[1];
    assert!(otlp["signals"]["profiles"].is_string(), "{otlp}");
}

#[test]
fn print_config_fills_in_defaults_and_masks_secrets() {
    for (format, command) in [("yaml", "print-config"), ("json", "print-initial-config")] {
        let output = run(&["--config", GOOD, command, "--format", format]);
        assert_eq!(code(&output), 0, "{output:?}");
        let printed = text(&output.stdout);
        assert!(!printed.contains("hunter2"), "{printed}");
        let config: Value = serde_yaml::from_str(printed).unwrap();
        let exporter = &config["exporters"]["otlp_http"];
        assert_eq!(exporter["headers"]["authorization"], "[REDACTED]");
        assert_eq!(exporter["sending_queue"]["queue_size"], 1000);
    }
}

#[test]
fn set_wins_over_files_and_secrets_do_not_show_in_errors() {
    let set = "--set=exporters.otlp_http.timeout=soon hunter3";
    let output = run(&["--config", GOOD, set, "--validate"]);
    assert_eq!(code(&output), 1);
    let errors = text(&output.stderr);
    assert!(errors.contains("exporters.otlp_http.timeout"), "{errors}");
    assert!(!errors.contains("hunter2"), "{errors}");
}

#[tokio::test]
async fn every_configuration_of_this_repository_validates_and_starts() {
    let certificates = Certificates::make();
    let data = tempfile::tempdir().unwrap();
    for path in configurations() {
        let mut yaml = std::fs::read_to_string(&path).unwrap();
        if yaml.contains("TLS_DIR") {
            let Some(certificates) = &certificates else {
                continue;
            };
            yaml = certificates.example(path.file_name().unwrap().to_str().unwrap());
        }
        let certificates = certificates.as_ref();
        let file = format!("--config={}", path.display());
        let output = run_with(certificates, &[&file, "--validate", "--strict"]);
        assert_eq!(
            code(&output),
            0,
            "{}:\n{}",
            path.display(),
            text(&output.stderr)
        );

        let printed = run_with(certificates, &[&file, "print-config", "--format=json"]);
        let config: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let mut ports = Vec::new();
        for section in ["receivers", "extensions"] {
            any_port(&config[section], section, &mut ports);
        }
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        // Examples that write files do so below this directory.
        let yaml = yaml.replace("/var/tmp/tributary", &data.path().display().to_string());
        let collector = Collector::start_with(&yaml, &ports).await;
        let ended = collector.terminate().await;
        assert!(
            ended.status.success(),
            "{}: {}",
            path.display(),
            ended.status
        );
    }
}

/// Arguments that let every server in a part of a configuration listen on a free port.
fn any_port(part: &Value, path: &str, arguments: &mut Vec<String>) {
    for (key, value) in part.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        // What is scraped is no server of its own.
        if key == "endpoint" && value.is_string() && !path.ends_with(".remote.endpoint") {
            arguments.push(format!("--set={path}=127.0.0.1:0"));
        }
        any_port(value, &path, arguments);
    }
}
