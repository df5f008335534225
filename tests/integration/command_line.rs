//! The command line: stable exit codes for scripts, and output without secrets.

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
fn validate_of_good_configuration_is_silent() {
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
fn print_config_masks_url_secrets() {
    let config = GOOD.replace(
        "http://127.0.0.1:1",
        "http://127.0.0.1:1/v1?api_key=hunter2&a=b",
    );
    let output = run(&["print-config", "--config", &config]);
    assert_eq!(code(&output), 0, "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("?api_key=*****&a=b"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let wrong = GOOD.replace(
        "http://127.0.0.1:1",
        "http://jane:hunter2@127.0.0.1:x/?api_key=hunter2",
    );
    let output = run(&["--config", &wrong, "--validate"]);
    assert_eq!(code(&output), 1);
    assert!(!text(&output.stderr).contains("hunter2"), "{output:?}");
}

#[test]
fn strict_turns_warnings_into_errors() {
    let unused = GOOD.replace("exporters: {", "exporters: {nop: , ");
    let output = run(&["--config", &unused, "--validate"]);
    assert_eq!(code(&output), 0);
    assert!(text(&output.stderr).contains("warning"), "{output:?}");
    let output = run(&["--config", &unused, "--validate", "--strict"]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("error"), "{output:?}");
}

#[test]
fn missing_file_is_named() {
    let output = run(&["--config", "/nowhere/collector.yaml", "--validate"]);
    assert_eq!(code(&output), 1);
    assert!(
        text(&output.stderr).contains("/nowhere/collector.yaml"),
        "{output:?}"
    );
}

#[test]
fn bad_usage_exits_with_2() {
    for arguments in [&["--confg=x"][..], &["frobnicate"], &["validate"]] {
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
fn components_lists_built_in_components_and_signals() {
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
    let receivers = list["receivers"].as_array().unwrap();
    let find = |name: &str| receivers.iter().find(|receiver| receiver["name"] == name);
    assert!(find("otlp").unwrap()["signals"]["profiles"].is_string());
    assert_eq!(find("kafka").is_some(), cfg!(feature = "kafka"));
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
fn set_overrides_files_and_errors_hide_secrets() {
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
        let is_cleaned = yaml.contains("/var/tmp/");
        assert!(
            !is_cleaned,
            "{}: /var/tmp is cleaned by age",
            path.display()
        );
        // Examples that write files do so below this directory.
        let data = data.path().display().to_string();
        let yaml = yaml
            .replace("${env:STATE_DIR:-/var/lib/tributary}", &data)
            .replace(STATE, &data);
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

/// Directory for the data of the default configuration.
const STATE: &str = "${env:XDG_STATE_HOME:-${env:HOME:-/var/tmp}/.local/state}";

/// Returns the output of `print-config` with only these environment variables.
fn printed(variables: &[(&str, &str)], arguments: &[&str]) -> Value {
    let mut command = Command::new(BINARY);
    command.env_clear().envs(variables.iter().copied());
    let output = command
        .args(["print-config", "--format=json"])
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(!text(&output.stderr).contains("warning"), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn default_configuration_without_config_is_the_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("config/otel-collector-config.yaml");
    let named = printed(&[], &[&format!("--config={}", file.display())]);
    assert_eq!(printed(&[], &[]), named);
    let changed = printed(&[], &["--set=exporters.debug.verbosity=normal"]);
    assert_eq!(changed["exporters"]["debug"]["verbosity"], "normal");
}

#[test]
fn default_configuration_forwards_only_with_next_hop() {
    for (next_hop, exporter) in [
        (&[][..], "file"),
        (&[("NEXT_HOP", "rack:4317")], "otlp_grpc"),
    ] {
        let config = printed(&[&[("XDG_STATE_HOME", "/state")], next_hop].concat(), &[]);
        let pipelines = config["service"]["pipelines"].as_object().unwrap();
        assert_eq!(pipelines.len(), 4);
        for pipeline in pipelines.values() {
            let expected = serde_json::json!(["debug", exporter]);
            assert_eq!(pipeline["exporters"], expected);
        }
        let [file, hop] = ["file", "otlp_grpc"].map(|id| &config["exporters"][id]);
        assert_eq!(file["path"], "/state/tributary/telemetry.jsonl");
        assert_eq!(hop["sending_queue"]["storage"], "file_storage");
        assert_eq!(config["exporters"]["debug"]["verbosity"], "basic");
        if !next_hop.is_empty() {
            assert_eq!(hop["endpoint"], "rack:4317");
        }
    }
}

#[test]
fn option_without_effect_is_refused_on_either_side() {
    for arguments in [
        &["--config=a.yaml", "components"][..],
        &["components", "--config=a.yaml"],
        &["--set=a=b", "schema"],
        &["--strict", "health"],
        &["--feature-gates=a", "profiles", "top", "file"],
        &["--drain-timeout=5", "validate", "--config", GOOD],
        &["--validate", "print-config", "--config", GOOD],
    ] {
        let output = run(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {output:?}");
    }
    for arguments in [
        &["--config", GOOD, "validate"][..],
        &["validate", "--config", GOOD, "--strict"],
        &["--strict", "print-config", "--config", GOOD],
    ] {
        let output = run(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {output:?}");
    }
}

/// The output of a command with `--json`. The command prints nothing else.
fn json(arguments: &[&str], expected: i32) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert_eq!(code(&output), expected, "{arguments:?}: {output:?}");
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn components_describes_one_by_name_alias_or_kind() {
    for (name, expected) in [
        ("otlp_http", "exporter otlp_http\n"),
        ("otlphttp", "exporter otlp_http\n"),
        ("otlp", "receiver otlp\n"),
        ("exporter/otlp", "exporter otlp_grpc\n"),
        ("exporters/nop", "exporter nop\n"),
    ] {
        let output = run(&["components", name]);
        assert_eq!(code(&output), 0, "{name}: {output:?}");
        assert!(text(&output.stdout).starts_with(expected), "{name}");
    }
    let output = run(&["components", "batch"]);
    let described = text(&output.stdout);
    for expected in [
        "timeout  (duration, default: `200ms`)",
        "otelcol_processor_batch_timeout_trigger_send  (counter)",
        "Keys that the Collector does not have: send_batch_bytes, send_batch_max_bytes.",
    ] {
        assert!(described.contains(expected), "{expected}: {described}");
    }
    let json = run(&["components", "--json", "batch"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["keys"][0]["default"], "`200ms`");
}

#[test]
fn unknown_or_ambiguous_component_exits_with_2() {
    for (name, expected) in [
        (
            "nop",
            "`nop` is ambiguous: write `receiver/nop` or `exporter/nop`",
        ),
        ("otlp_htpp", "did you mean `otlp_http`?"),
        ("processor/otlp", "there is no component `otlp`"),
    ] {
        let output = run(&["components", name]);
        assert_eq!(code(&output), 2, "{name}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}

#[test]
fn components_writes_the_reference_as_markdown() {
    let directory = tempfile::TempDir::new().unwrap();
    let output = run(&[
        "components",
        "--markdown",
        directory.path().to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 0, "{output:?}");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    for page in [
        "README.md",
        "service.md",
        "receivers/otlp.md",
        "exporters/kafka.md",
    ] {
        let written = std::fs::read_to_string(directory.path().join(page)).unwrap();
        assert_eq!(
            written,
            std::fs::read_to_string(committed.join(page)).unwrap(),
            "{page}"
        );
    }
}

#[test]
fn json_output_matches_text_output() {
    let listed = json(&["components"], 0);
    assert!(listed["receivers"].as_array().unwrap().len() > 1);
    let good = json(&["validate", "--config", GOOD], 0);
    assert_eq!(
        (&good["valid"], &good["findings"]),
        (&true.into(), &Value::Array(vec![]))
    );
    let bad = GOOD.replace("[otlp_http]", "[otlp_htpp]");
    let bad = json(&["validate", "--config", &bad], 1);
    assert_eq!(bad["valid"], false);
    let finding = &bad["findings"][0];
    assert_eq!(finding["level"], "error");
    assert_eq!(finding["path"][0], "service");
    assert!(
        finding["line"].is_number() && finding["column"].is_number(),
        "{finding}"
    );
    let health = json(&["health", "http://127.0.0.1:1/"], 1);
    assert_eq!(health["healthy"], false);
}

#[test]
fn json_of_profiles_matches_text() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let before = file("before.folded", "main;work 100\n");
    let after = file("after.folded", "main;work 111\nmain 9\n");
    let top = json(&["profiles", "top", &after], 0);
    assert_eq!((&top["total"], &top["functions"]), (&120.into(), &2.into()));
    assert_eq!(
        top["rows"][0],
        serde_json::json!({"name": "work", "flat": 111, "cum": 111})
    );
    let same = json(&["profiles", "diff", &before, &after], 0);
    assert_eq!(
        same["total"],
        serde_json::json!({"before": 100.0, "after": 120.0})
    );
    assert_eq!(
        (&same["passed"], &same["changed"]),
        (&Value::Null, &2.into())
    );
    let limit = ["profiles", "diff", &before, &after, "--fail-above", "10%"];
    let grew = json(&limit, 1);
    assert_eq!(grew["passed"], false);
    assert!(!grew["failed"].as_array().unwrap().is_empty(), "{grew}");

    let otlp = directory.path().join("after.otlp").display().to_string();
    let converted = run(&["profiles", "convert", &after, "-o", &otlp]);
    assert_eq!(code(&converted), 0, "{converted:?}");
    let checked = json(&["profiles", "check", &otlp], 0);
    let checked = &checked[0];
    assert_eq!(
        (&checked["errors"], &checked["samples"]),
        (&0.into(), &2.into())
    );
    let broken = file("broken.otlp", "\n");
    let checked = json(&["profiles", "check", &broken], 1);
    assert!(checked[0]["error"].is_string(), "{checked}");
}

#[test]
fn printed_configuration_has_effective_values() {
    let config = "yaml:{receivers: {otlp: {protocols: {grpc: , http: }}, otlp_json_file: {include: [/a]}}, \
        processors: {batch: }, \
        exporters: {otlp_grpc: {endpoint: 'a:1', sending_queue: {batch: }}, debug: }, \
        service: {pipelines: {traces: {receivers: [otlp, otlp_json_file], processors: [batch], \
        exporters: [otlp_grpc, debug]}}}}";
    let config = printed(&[], &["--config", config]);
    let exporter = &config["exporters"]["otlp_grpc"];
    assert_eq!(exporter["retry_on_failure"]["max_elapsed_time"], "5m0s");
    assert_eq!(exporter["sending_queue"]["sizer"], "requests");
    let files = &config["receivers"]["otlp_json_file"];
    assert_eq!(
        files["max_log_size"], "64MiB",
        "the Collector has another default"
    );
    assert_eq!(exporter["sending_queue"]["batch"]["sizer"], "items");
    let text = config.to_string();
    for own in [
        "null",
        "limits",
        "max_items_per_request",
        "drop_on_overflow",
        "send_batch_bytes",
        "connections",
        "crl_file",
        "format",
    ] {
        assert!(!text.contains(own), "{own}: {text}");
    }
    let again = printed(&[], &["--config", &format!("yaml:{text}")]);
    assert_eq!(again, config);
    // A key is printed only if its value differs from the default.
    let set = "--set=exporters.otlp_grpc.sending_queue.drop_on_overflow=true";
    let changed = printed(&[], &["--config", &format!("yaml:{text}"), set]);
    assert_eq!(
        changed["exporters"]["otlp_grpc"]["sending_queue"]["drop_on_overflow"],
        true
    );
}

/// Arguments that let every server in a section of a configuration listen on a free port.
fn any_port(part: &Value, path: &str, arguments: &mut Vec<String>) {
    for (key, value) in part.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        // A scraped target is not a server of the collector.
        if key == "endpoint" && value.is_string() && !path.ends_with(".remote.endpoint") {
            arguments.push(format!("--set={path}=127.0.0.1:0"));
        }
        any_port(value, &path, arguments);
    }
}
