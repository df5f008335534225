//! Topics to read, with the signal of each.

use std::collections::HashMap;

use regex::Regex;

use super::config::Config;
use tributary_config::re2;
use tributary_net::kafka::{RecordEncoding, default_topic};
use tributary_otlp::Signal;

#[derive(Debug, Default)]
pub(super) struct Topics {
    by_name: HashMap<String, (Signal, RecordEncoding)>,
    patterns: Vec<(Regex, Signal, RecordEncoding)>,
    /// Subscription: names, and patterns that begin with `^`.
    pub(super) subscription: Vec<String>,
    /// Patterns of excluded topics.
    pub(super) excluded: Vec<String>,
}

/// An error in the configured topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrongTopic {
    /// Path of the key in the configuration.
    pub(super) path: Vec<String>,
    pub(super) reason: String,
}

impl Topics {
    /// Returns the topics of these signals.
    ///
    /// # Errors
    /// Returns all errors in the configured topics.
    pub(super) fn new(
        config: &Config,
        signals: impl IntoIterator<Item = Signal>,
    ) -> Result<Self, Vec<WrongTopic>> {
        let mut topics = Topics::default();
        let mut wrong = Vec::new();
        let mut exclusions: Vec<Regex> = Vec::new();
        for signal in signals {
            let mut mistake = |key: &str, at: usize, reason: String| {
                wrong.push(WrongTopic {
                    path: vec![signal.name().to_owned(), key.to_owned(), at.to_string()],
                    reason,
                });
            };
            let section = config.signal(signal);
            let default = [default_topic(signal).to_owned()];
            let names = match section.topics.as_slice() {
                [] => &default,
                names => names,
            };
            for (at, name) in names.iter().enumerate() {
                if name.starts_with('^') {
                    match re2::compile(name) {
                        Ok(pattern) => topics.patterns.push((pattern, signal, section.encoding)),
                        Err(error) => mistake("topics", at, format!("`{name}` {error}")),
                    }
                } else if name.is_empty() {
                    mistake("topics", at, "must not be empty".to_owned());
                } else {
                    let before = topics
                        .by_name
                        .insert(name.clone(), (signal, section.encoding));
                    if let Some((other, _)) = before {
                        let reason = format!(
                            "the topic `{name}` is also listed for {other}: a topic has one signal"
                        );
                        mistake("topics", at, reason);
                        continue;
                    }
                }
                topics.subscription.push(name.clone());
            }
            let has_pattern = names.iter().any(|name| name.starts_with('^'));
            for (at, pattern) in section.exclude_topics.iter().enumerate() {
                match re2::compile(pattern) {
                    _ if pattern.is_empty() || pattern.contains(',') => {
                        let reason = "must be a regular expression without commas".to_owned();
                        mistake("exclude_topics", at, reason);
                    }
                    _ if !has_pattern => {
                        let reason =
                            "has no effect without a pattern (which begins with `^`) in `topics`";
                        mistake("exclude_topics", at, reason.to_owned());
                    }
                    Err(error) => mistake("exclude_topics", at, format!("`{pattern}` {error}")),
                    Ok(regex) => {
                        exclusions.push(regex);
                        topics.excluded.push(pattern.clone());
                    }
                }
            }
        }
        // librdkafka treats an excluded topic as if it did not exist.
        for (name, (signal, _)) in &topics.by_name {
            if let Some(pattern) = exclusions.iter().find(|regex| regex.is_match(name)) {
                wrong.push(WrongTopic {
                    path: vec![signal.name().to_owned(), "topics".to_owned()],
                    reason: format!("the topic `{name}` is excluded by the pattern `{pattern}` in `exclude_topics`"),
                });
            }
        }
        match wrong.is_empty() {
            true => Ok(topics),
            false => Err(wrong),
        }
    }

    /// Returns the signal and the encoding of a topic. Names take precedence over patterns, then
    /// signals in their order.
    #[cfg(feature = "kafka")]
    pub(super) fn find(&self, topic: &str) -> Option<(Signal, RecordEncoding)> {
        let by_pattern = || {
            let mut patterns = self.patterns.iter();
            let found = patterns.find(|(pattern, _, _)| pattern.is_match(topic));
            found.map(|(_, signal, encoding)| (*signal, *encoding))
        };
        self.by_name.get(topic).copied().or_else(by_pattern)
    }
}

#[cfg(feature = "kafka")]
#[cfg(test)]
mod tests {
    use super::*;

    fn topics(yaml: &str) -> Result<Topics, Vec<WrongTopic>> {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        Topics::new(&config, Signal::ALL)
    }

    #[test]
    fn topic_name_precedes_pattern_and_default() {
        let yaml = "{logs: {topics: ['^app[0-9]+', app7]}, traces: {topics: ['^app'], encoding: otlp_json}, \
                    metrics: {topics: [app8]}}";
        let topics = topics(yaml).unwrap();
        let signal = |topic: &str| topics.find(topic).map(|(signal, _)| signal);
        assert_eq!(signal("app7"), Some(Signal::Logs));
        assert_eq!(signal("app8"), Some(Signal::Metrics));
        assert_eq!(
            topics.find("app9"),
            Some((Signal::Traces, RecordEncoding::OtlpJson))
        );
        assert_eq!(signal("my_app"), None);
        assert_eq!(signal("otlp_profiles"), Some(Signal::Profiles));
        assert_eq!(
            topics.subscription,
            ["^app", "app8", "^app[0-9]+", "app7", "otlp_profiles"]
        );
    }

    #[test]
    fn topic_with_two_signals_is_a_mistake() {
        for (yaml, path) in [
            (
                "{logs: {topics: [a]}, traces: {topics: [a]}}",
                "logs.topics.0",
            ),
            ("{logs: {topics: ['^a(']}}", "logs.topics.0"),
            ("{logs: {topics: ['']}}", "logs.topics.0"),
            ("{logs: {exclude_topics: [a]}}", "logs.exclude_topics.0"),
            (
                "{logs: {topics: ['^a'], exclude_topics: ['a,b']}}",
                "logs.exclude_topics.0",
            ),
            (
                "{logs: {topics: ['^a', ab], exclude_topics: ['b$']}}",
                "logs.topics",
            ),
        ] {
            let wrong = topics(yaml).unwrap_err();
            let paths: Vec<String> = wrong.iter().map(|wrong| wrong.path.join(".")).collect();
            assert_eq!(paths, [path], "{yaml}");
        }
    }
}
