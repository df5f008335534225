//! The configuration of `failover`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pipeline::id::PipelineId;
use crate::queue::QueueConfig;
use tributary_config::Unread;
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Problems, Section, Validate};

/// Forwards all data to the first level of pipelines that accepts it.
///
/// A level refuses if one of its pipelines refuses. Exporters of a level need `sending_queue:
/// {enabled: false}`, or `wait_for_result: true` in it: a queue accepts data that it cannot
/// deliver, and so hides the failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Pipelines of each level, in order of preference: `[[traces/here], [traces/there]]`. A level
    /// may have several pipelines of a signal, which all get all data, and pipelines of several
    /// signals, each of which fails over separately. Required.
    pub priority_levels: Vec<Vec<PipelineId>>,
    /// Interval at which one batch probes the levels above the current one. Default: 10m.
    pub retry_interval: Duration,
    /// Queue in front of all levels: data that no level accepts is queued and retried without
    /// limit, after 100ms at first and at least every 45s. Default: off; such data is refused, and
    /// the sender keeps it.
    pub sending_queue: Section<QueueConfig>,
    /// Has no effect and causes a warning: one batch probes all levels above the current one, in
    /// order. (In the Collector: the time between them.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_gap: Option<Unread>,
    /// Has no effect and causes a warning: higher levels are probed as long as the process runs.
    /// (In the Collector: the number of attempts after which a level is never used again.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<Unread>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            priority_levels: Vec::new(),
            retry_interval: Duration::secs(600),
            sending_queue: Section(None),
            retry_gap: None,
            max_retries: None,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.priority_levels.is_empty() {
            let message = "must not be empty: list at least one level, as in `[[traces/first], [traces/second]]`";
            problems.error(&["priority_levels"], message);
        }
        let mut seen: Vec<&PipelineId> = Vec::new();
        for (level, pipelines) in self.priority_levels.iter().enumerate() {
            let level = level.to_string();
            if pipelines.is_empty() {
                let message = "a level needs at least one pipeline";
                problems.error(&["priority_levels", &level], message);
            }
            for (at, pipeline) in pipelines.iter().enumerate() {
                if seen.contains(&pipeline) {
                    let message = format!("the pipeline `{pipeline}` is listed twice");
                    problems.error(&["priority_levels", &level, &at.to_string()], message);
                }
                seen.push(pipeline);
            }
        }
        if self.retry_interval.is_zero() {
            problems.error(&["retry_interval"], "must be above 0");
        }
        if self.retry_gap.is_some() {
            let message =
                "has no effect: one batch probes all levels above the current one, in order";
            problems.warning(&["retry_gap"], message);
        }
        if self.max_retries.is_some() {
            let message = "has no effect: higher levels are probed as long as the process runs";
            problems.warning(&["max_retries"], message);
        }
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.sending_queue
            .iter()
            .filter_map(QueueConfig::uses)
            .collect()
    }
}

impl Config {
    /// Reports levels that do not match the pipelines that end in the connector and the pipelines
    /// that start with it.
    pub(super) fn check_levels(
        &self,
        ends: &[PipelineId],
        starts: &[PipelineId],
        problems: &mut Problems,
    ) {
        for (level, pipelines) in self.priority_levels.iter().enumerate() {
            for (at, pipeline) in pipelines.iter().enumerate() {
                let path = ["priority_levels", &level.to_string(), &at.to_string()];
                if !starts.contains(pipeline) {
                    let message = format!(
                        "the pipeline `{pipeline}` does not start with this connector: add the connector to its \
                         `receivers`"
                    );
                    problems.error(&path, message);
                } else if !ends.iter().any(|end| end.signal == pipeline.signal) {
                    let message = format!(
                        "no {} pipeline ends in this connector: add the connector to the \
                                           `exporters` of a pipeline",
                        pipeline.signal
                    );
                    problems.error(&path, message);
                }
            }
        }
        let leveled = |pipeline: &&PipelineId| {
            !self
                .priority_levels
                .iter()
                .flatten()
                .any(|p| p == *pipeline)
        };
        for pipeline in starts.iter().filter(leveled) {
            let message = format!(
                "the pipeline `{pipeline}` starts with this connector, but no level lists it: add it to \
                 `priority_levels`, or remove the connector from its `receivers`"
            );
            problems.error(&["priority_levels"], message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(yaml: &str) -> Vec<(String, bool)> {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        found
            .map(|problem| (problem.path.join("::"), problem.warning))
            .collect()
    }

    #[test]
    fn collector_file_is_read_with_warnings() {
        let yaml = "
priority_levels: [[traces/first, traces/also_first], [traces/second]]
retry_interval: 5m
retry_gap: 1m
max_retries: 10
";
        let warning = |path: &str| (path.to_owned(), true);
        assert_eq!(found(yaml), [warning("retry_gap"), warning("max_retries")]);
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        let error = |path: &str| (path.to_owned(), false);
        assert_eq!(found("{}"), [error("priority_levels")]);
        let yaml = "
priority_levels: [[traces], [], [logs, traces]]
retry_interval: 0s
sending_queue: {num_consumers: 0}
";
        assert_eq!(
            found(yaml),
            [
                error("priority_levels::1"),
                error("priority_levels::2::1"),
                error("retry_interval"),
                error("sending_queue::num_consumers"),
            ]
        );
    }
}
