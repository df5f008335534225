//! From YAML text to typed configuration, with every error at its place.

mod id;
pub mod units;

pub use id::{ComponentId, InvalidId};
pub use units::{Endpoint, Secret, Section};

use serde::de::DeserializeOwned;

/// A piece of a configuration file, with its position.
#[derive(Debug, Clone)]
pub struct Node(serde_yaml::Value);

/// All that was found wrong, or worth a word, in a configuration.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<String>,
}

/// Collects what [`Validate::validate`] finds. Paths are relative to the value that is being validated.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Keys (and positions in lists, as numbers) from the validated value down; empty for the value itself.
    pub path: Vec<String>,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether the configuration can still be used.
    pub warning: bool,
}

impl Problems {
    /// An error at a path such as `&["retry_on_failure", "max_interval"]`.
    pub fn error(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(path, message.into(), false);
    }

    /// A warning at a path; an error with `--strict`.
    pub fn warning(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(path, message.into(), true);
    }

    /// Validates a part, whose findings get `key` in front of their paths.
    pub fn within(&mut self, key: &str, part: &impl Validate) {
        let mut inner = Problems::default();
        part.validate(&mut inner);
        self.found
            .extend(inner.found.into_iter().map(|mut problem| {
                problem.path.insert(0, key.to_owned());
                problem
            }));
    }

    /// What was found so far.
    pub fn found(&self) -> &[Problem] {
        &self.found
    }

    fn push(&mut self, path: &[&str], message: String, warning: bool) {
        self.found.push(Problem {
            path: path.iter().map(|key| (*key).to_owned()).collect(),
            message,
            warning,
        });
    }
}

/// What a configuration value must satisfy beyond its types.
pub trait Validate {
    /// Reports everything that is wrong, not only the first.
    fn validate(&self, problems: &mut Problems) {
        let _ = problems;
    }

    /// The addresses it will listen on, each with its path, so that two components on one port are found.
    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        Vec::new()
    }
}

/// Reads a component's configuration from its node; an empty body means all defaults.
pub fn decode<T: DeserializeOwned + Default + Validate>(
    node: &Node,
    report: &mut Report,
) -> Option<T> {
    if node.0.is_null() {
        return Some(T::default());
    }
    serde_yaml::from_value(node.0.clone())
        .map_err(|error| report.errors.push(error.to_string()))
        .ok()
}
