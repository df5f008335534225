//! Output and exit codes of the command line.

use std::process::{Command, Output};

const GOOD: &str = "yaml:{receivers: {otlp: {protocols: {grpc: }}}, \
                    exporters: {otlp_grpc: {endpoint: 'localhost:1', headers: {x: hunter2}}}, \
                    service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp_grpc]}}}}";

fn collector(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_collector"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn exits(code: i32, arguments: &[&str]) -> Output {
    let output = collector(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    output
}

#[test]
fn a_good_configuration_validates_silently() {
    for arguments in [
        ["validate", "--config", GOOD],
        ["--validate", "--config", GOOD],
        ["--config", GOOD, "validate"],
    ] {
        let output = exits(0, &arguments);
        assert_eq!((stdout(&output), stderr(&output)), Default::default());
    }
}

#[test]
fn bad_configuration_exits_with_1_and_reason_on_stderr() {
    let bad = GOOD.replace("grpc:", "grcp:");
    let output = exits(1, &["validate", "--config", &bad]);
    assert_eq!(stdout(&output), "");
    assert!(
        stderr(&output).contains("did you mean `grpc`?"),
        "{}",
        stderr(&output)
    );
    exits(1, &["print-config", "--config", &bad]);
}

#[test]
fn warnings_fail_only_strict_validation() {
    let unused = GOOD.replace("service:", "processors: {batch: }, service:");
    let output = exits(0, &["validate", "--config", &unused]);
    assert!(stderr(&output).contains("1 warning"));
    exits(1, &["validate", "--strict", "--config", &unused]);
}

#[test]
fn bad_usage_exits_with_2_and_hint() {
    let output = exits(2, &["validate"]);
    assert!(stderr(&output).contains("--config=config.yaml"));

    exits(2, &["--confg", "x"]);
    exits(2, &["validat"]);
    exits(
        2,
        &["--feature-gates=nonsense", "validate", "--config", GOOD],
    );
}

#[test]
fn the_collectors_own_flags_are_understood() {
    let set = "--set=exporters.otlp_grpc.timeout=7s";
    let gates = "--feature-gates=+service.profilesSupport";
    let output = exits(0, &["print-initial-config", "--config", GOOD, set, gates]);
    assert!(
        stdout(&output).contains("timeout: 7s"),
        "{}",
        stdout(&output)
    );
    assert!(stderr(&output).contains("always on"));
}

#[test]
fn printed_configuration_round_trips_without_secrets() {
    let first = stdout(&exits(0, &["print-config", "--config", GOOD]));
    assert!(!first.contains("hunter2"), "{first}");
    let again = format!("yaml:{first}");
    let second = stdout(&exits(0, &["print-config", "--config", &again]));
    assert_eq!(first, second);
    let json = stdout(&exits(
        0,
        &["print-config", "--format=json", "--config", GOOD],
    ));
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let yaml: serde_json::Value = serde_yaml::from_str(&first).expect("it is YAML");
    assert_eq!(json, yaml);
}

#[test]
fn components_and_schema_list_built_in_components() {
    let components = stdout(&exits(0, &["components"]));
    let components: serde_json::Value = serde_yaml::from_str(&components).expect("it is YAML");
    let schema = stdout(&exits(0, &["schema"]));
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("it is JSON");
    for kind in [
        "receivers",
        "processors",
        "exporters",
        "connectors",
        "extensions",
    ] {
        let listed = components[kind].as_array().expect("every kind is listed");
        assert!(!listed.is_empty(), "{kind}");
        for component in listed {
            let name = component["name"]
                .as_str()
                .expect("every component has a name");
            let patterns = schema["properties"][kind]["patternProperties"].as_object();
            let begins = format!("^\\s*{name}\\s*(/");
            let found = patterns.is_some_and(|patterns| {
                patterns.keys().any(|pattern| pattern.starts_with(&begins))
            });
            assert!(found, "{kind} {name} is not in the schema");
        }
    }
    // Every reference in the schema leads somewhere.
    let text = schema.to_string();
    for reference in text.split("\"$ref\":\"").skip(1) {
        let target = reference.split('"').next().unwrap_or_default();
        let pointer = target.trim_start_matches('#');
        assert!(schema.pointer(pointer).is_some(), "{target}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(stdout(&exits(0, &["completions", shell])).contains("print-config"));
    }
}
