//! Validates the configuration.

use super::config::Config;
use super::topics::Topics;
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        self.connection().validate(problems);
        if let Err(wrong) = Topics::new(self, Signal::ALL) {
            for wrong in wrong {
                let path: Vec<&str> = wrong.path.iter().map(String::as_str).collect();
                problems.error(&path, wrong.reason);
            }
        }
        self.validate_group(problems);
        self.validate_fetching(problems);
        if !self.message_marking.after {
            problems.error(
                &["message_marking", "after"],
                "false is not supported, because it can lose messages: remove the key",
            );
        }
        if let Some(backoff) = &*self.error_backoff {
            if backoff.initial_interval.is_zero() {
                problems.error(&["error_backoff", "initial_interval"], "must be above 0");
            }
            problems.within("error_backoff", &backoff.retry());
        }
        let extraction = &self.header_extraction;
        if extraction.extract_headers && extraction.headers.is_empty() {
            problems.error(
                &["header_extraction", "headers"],
                "must be specified: list at least one name",
            );
        }
    }
}
