//! Validates the configuration.

use super::config::{ConditionEntry, Config, MetricProperties};
use super::rules::{entries, properties, written};
use tributary_config::Problems;
use tributary_ottl::path::Context;

/// Reports all errors of the configuration.
pub(super) fn validate(config: &Config, problems: &mut Problems) {
    for written in written(config) {
        if let Err(mistake) = written.parse() {
            let path: Vec<&str> = written.path.iter().map(String::as_str).collect();
            let character = mistake.characters(written.text);
            problems.error_within(&path, character, mistake.in_text(written.text));
        }
    }
    for (key, properties) in properties(config) {
        let path = [key.section, key.name];
        properties.validate_at(&path, problems);
        properties.validate_for(&path, key.signal, problems);
    }
    for (key, signal, entries) in entries(config) {
        for (at, entry) in entries.iter().enumerate() {
            if let ConditionEntry::Group(group) = entry {
                let at = at.to_string();
                let context = group.context.as_deref();
                let is_known =
                    |name| Context::of_name(name).is_some_and(|context| context.is_of(signal));
                if context.is_some_and(|name| !is_known(name)) {
                    let names = Context::NAMES
                        .iter()
                        .filter(|(_, context)| context.is_of(signal));
                    let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                    let message = format!(
                        "is not a context of {signal}; use one of: {}",
                        names.join(", ")
                    );
                    problems.error(&[key, &at, "context"], message);
                }
                if group.conditions.is_empty() {
                    problems.error(
                        &[key, &at, "conditions"],
                        "is required: list at least one condition",
                    );
                }
            }
        }
    }
    for (name, given) in [
        ("include", &config.metrics.include),
        ("exclude", &config.metrics.exclude),
    ] {
        if given.as_ref().is_some_and(MetricProperties::is_expression) {
            problems.error(
                &["metrics", name, "expressions"],
                "expressions are not supported: write conditions in metric_conditions, such as \
                 `metric.name == \"a\" and datapoint.attributes[\"b\"] == \"c\"`",
            );
        }
    }
    for (name, given) in [
        ("include", &config.logs.include),
        ("exclude", &config.logs.exclude),
    ] {
        let severity = given
            .as_ref()
            .and_then(|given| given.severity_number.as_ref());
        if severity.is_some_and(|severity| severity.number().is_none()) {
            problems.error(
                &["logs", name, "severity_number", "min"],
                "is not a severity: use TRACE, DEBUG, INFO, WARN, ERROR or FATAL, optionally with the suffix 2, 3 \
                 or 4",
            );
        }
    }
    combinations(config, problems);
}

/// Refuses forms that the Collector does not combine either.
fn combinations(config: &Config, problems: &mut Problems) {
    let (traces, metrics) = (&config.traces, &config.metrics);
    let (logs, profiles) = (&config.logs, &config.profiles);
    let old = [
        !(traces.resource.is_empty() && traces.span.is_empty() && traces.spanevent.is_empty()),
        !(metrics.resource.is_empty() && metrics.metric.is_empty() && metrics.datapoint.is_empty()),
        !(logs.resource.is_empty() && logs.log_record.is_empty()),
        !(profiles.resource.is_empty() && profiles.profile.is_empty()),
    ];
    let properties = [
        config.spans.include.is_some() || config.spans.exclude.is_some(),
        metrics.include.is_some() || metrics.exclude.is_some(),
        logs.include.is_some() || logs.exclude.is_some(),
        false,
    ];
    let sections = ["traces", "metrics", "logs", "profiles"];
    for (at, (key, _, entries)) in entries(config).into_iter().enumerate() {
        let is = |of: &[bool]| of.get(at).copied().unwrap_or_default();
        let section = sections.get(at).copied().unwrap_or_default();
        if !entries.is_empty() && (is(&old) || is(&properties)) {
            let message =
                format!("cannot be combined with conditions or properties in `{section}`");
            problems.error(&[key], message);
        } else if is(&old) && is(&properties) {
            problems.error(
                &[section],
                "cannot have both conditions and `include` or `exclude`: remove one of the two",
            );
        }
    }
}
