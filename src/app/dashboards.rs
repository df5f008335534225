//! Checks that the dashboards in `examples/grafana` and the rules in `examples/prometheus` query
//! only existing metrics.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use regex::Regex;

use crate::app::reference::describe_metrics;
use crate::connectors::profile_metrics::{METRICS, OTHERS, QuantityMetric};
use crate::telemetry::config::MetricsLevel;
use crate::telemetry::exposition::Exposition;
use tributary_memory::Budget;

/// Returns the names of metrics in the queries of a dashboard.
fn asked_for(dashboard: &str, prefixes: &str) -> BTreeSet<String> {
    let text = example(&format!("grafana/{dashboard}"));
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    names_in(&dashboard, prefixes)
}

fn example(path: &str) -> String {
    let path = format!("{}/examples/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Returns the names of metrics in the queries of a dashboard or of rules.
fn names_in(document: &serde_json::Value, prefixes: &str) -> BTreeSet<String> {
    let mut queries = Vec::new();
    strings(document, &mut queries);
    let name = Regex::new(&format!(r"\b({prefixes})_[a-z0-9_]+\b([{{)\[, ]|$)")).unwrap();
    let names = queries.iter().flat_map(|query| name.find_iter(query));
    let names: BTreeSet<String> = names
        .map(|found| {
            found
                .as_str()
                .trim_end_matches(['{', ')', '[', ',', ' '])
                .to_owned()
        })
        .collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

fn rules() -> Vec<serde_json::Value> {
    let files = ["prometheus/rules.yaml", "prometheus/alerts.yaml"];
    let groups = files.map(|file| {
        let rules: serde_json::Value = serde_yaml::from_str(&example(file)).unwrap();
        rules["groups"].as_array().unwrap().clone()
    });
    groups.concat()
}

/// Collects the strings of queries: `expr` of panels, `definition` of variables.
fn strings<'v>(value: &'v serde_json::Value, into: &mut Vec<&'v str>) {
    match value {
        serde_json::Value::Object(entries) => {
            for (key, value) in entries {
                match value.as_str() {
                    Some(text) if key == "expr" || key == "definition" => into.push(text),
                    _ => strings(value, into),
                }
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| strings(value, into));
        }
        _ => {}
    }
}

/// Records the names of described metrics.
#[derive(Default)]
struct Described(Arc<Mutex<BTreeSet<String>>>);

impl Described {
    fn note(&self, key: &KeyName) {
        self.0.lock().unwrap().insert(key.as_str().to_owned());
    }
}

impl Recorder for Described {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(&key);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(&key);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(&key);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Returns the names of the collector's own metrics.
fn own_metrics() -> BTreeSet<String> {
    let recorder = Described::default();
    with_local_recorder(&recorder, describe_metrics);
    let mut known = recorder.0.lock().unwrap().clone();
    let page = Exposition::for_tests().render(MetricsLevel::Detailed, &Budget::new(1), &[]);
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    known.extend(types.filter_map(|line| line.split(' ').next().map(str::to_owned)));
    known
}

#[test]
fn dashboard_of_the_collector_finds_metrics() {
    let known = own_metrics();
    for name in asked_for("collector.json", "otelcol|tributary") {
        assert!(known.contains(&name), "there is no metric {name}");
    }
}

#[test]
fn rules_and_alerts_use_existing_metrics() {
    let rules = serde_json::Value::Array(rules());
    let known = own_metrics();
    for name in names_in(&rules, "otelcol|tributary") {
        let parts = ["_bucket", "_count"].iter();
        let mut base = parts.filter_map(|part| name.strip_suffix(part));
        let is_known = known.contains(&name) || base.any(|base| known.contains(base));
        assert!(is_known, "there is no metric {name}");
    }
    let known = made_of_profiles();
    let mut queries = Vec::new();
    strings(&rules, &mut queries);
    let name = Regex::new(r"\bprofile_(cpu|request|received|function|memory)_[a-z_]+").unwrap();
    let asked: BTreeSet<&str> = queries
        .iter()
        .flat_map(|query| name.find_iter(query))
        .map(|found| found.as_str())
        .collect();
    assert!(asked.len() > 2, "{asked:?}");
    for name in asked {
        assert!(known.contains(name), "there is no metric {name}");
    }
}

#[test]
fn operator_gets_the_same_rules() {
    let text = example("kubernetes/monitoring/rules.yaml");
    let rule: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(rule["spec"]["groups"].as_array().unwrap(), &rules());
}

/// Evaluates the rules on synthetic series with `promtool test rules`.
#[test]
fn rules_and_alerts_pass_their_tests() {
    let tests = format!(
        "{}/examples/prometheus/tests.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    let run = std::process::Command::new("promtool")
        .args(["test", "rules", &tests])
        .output();
    match run {
        Ok(run) => assert!(
            run.status.success(),
            "{}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr)
        ),
        Err(error) => eprintln!("skipped: promtool does not run here: {error}"),
    }
}

/// Translates a name as the `prometheus` exporter does, by the rules of OpenTelemetry's "Prometheus
/// and OpenMetrics Compatibility": dots become underscores, units become words at the end, and sums
/// get `_total`. A name that already contains `total` would lose that word.
fn translated(name: &str, unit: &str, is_sum: bool) -> String {
    assert!(!name.split('.').any(|word| word == "total"), "{name}");
    let mut name = name.replace('.', "_");
    name.push_str(match unit {
        "s" => "_seconds",
        "By" => "_bytes",
        "1" if !is_sum => "_ratio",
        unit if unit.starts_with('{') => "",
        unit => panic!("{unit} is new"),
    });
    if is_sum {
        name.push_str("_total");
    }
    name
}

/// Returns the names of the metrics that `profile_metrics` produces.
fn made_of_profiles() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for QuantityMetric {
        name,
        unit,
        is_level,
        of_functions,
        per_request,
        ..
    } in METRICS
    {
        known.insert(translated(&format!("profile.{name}"), unit, !is_level));
        for part in ["self", "inclusive"].iter().filter(|_| of_functions) {
            let name = format!("profile.function.{part}.{name}");
            known.insert(translated(&name, unit, !is_level));
        }
        if per_request {
            known.insert(translated(&format!("profile.request.{name}"), unit, false));
        }
    }
    // Among the remaining metrics, only the one with unit `1` is a share instead of a sum.
    let others = OTHERS.iter();
    known.extend(others.map(|(name, unit)| translated(name, unit, *unit != "1")));
    known
}

#[test]
fn profile_dashboard_uses_metrics_of_connector() {
    let known = made_of_profiles();
    // The other names with this prefix are labels made of attributes: `profile_metric_name`,
    // `profile_frame_symbolized`.
    for name in asked_for("profiles.json", "profile") {
        assert!(known.contains(&name), "there is no metric {name}");
    }
}
