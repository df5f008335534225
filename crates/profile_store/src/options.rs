//! Settings of a store, and the lengths of its windows.

use std::path::PathBuf;
use std::time::Duration;

use super::series::{SERVICE_NAME, label_name};

/// Lengths of the windows of the three levels, in seconds. Each length is a multiple of the previous one.
pub(crate) const WINDOWS: [u64; 3] = [10, 60, 600];
/// The level of blocks that are never compacted.
pub(crate) const LAST_LEVEL: u8 = 2;
/// Smallest bound of memory or disk, in bytes: a block of a few requests fits.
const MIN_BOUND: u64 = 1 << 20;

/// Settings of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileStoreOptions {
    /// Directory of the store, which is created if necessary.
    pub directory: PathBuf,
    /// Maximum memory, in bytes. A quarter each is for the profiles of the open window, the index of the blocks,
    /// merging, and all queries together.
    pub max_memory: u64,
    /// Maximum size of all files, in bytes.
    pub max_disk: u64,
    /// Time after which profiles are deleted. Older profiles are not accepted.
    pub retention: Duration,
    /// Resource attributes that separate series, in addition to `service.name`.
    pub labels: Vec<String>,
    /// Ages at which blocks of 10 seconds become blocks of a minute, and blocks of a minute become blocks of 10
    /// minutes.
    pub ages: [Duration; 2],
}

/// Reason why options cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A bound is too small.
    #[error("{name} is {value} bytes; set at least {MIN_BOUND}")]
    TooSmall {
        /// Name of the bound.
        name: &'static str,
        /// Value of the bound, in bytes.
        value: u64,
    },
    /// Two attributes become the same label, or an attribute becomes one of the store's reserved labels.
    #[error("the attribute `{0}` becomes the label `{label}`, which another attribute already has; remove one of \
             the two", label = label_name(.0))]
    SameLabel(String),
}

impl ProfileStoreOptions {
    /// Creates options with the default bounds: 256 MiB of memory, 4 GiB of disk, and 24 hours.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        ProfileStoreOptions {
            directory: directory.into(),
            max_memory: 256 << 20,
            max_disk: 4 << 30,
            retention: 24 * HOUR,
            labels: Vec::new(),
            ages: [HOUR, 6 * HOUR],
        }
    }

    /// Checks the bounds and the labels.
    ///
    /// # Errors
    /// A bound is too small, or two attributes become the same label.
    pub fn check(&self) -> Result<(), OptionsError> {
        for (name, value) in [("max_memory", self.max_memory), ("max_disk", self.max_disk)] {
            if value < MIN_BOUND {
                return Err(OptionsError::TooSmall { name, value });
            }
        }
        let mut known = vec![label_name(SERVICE_NAME)];
        for attribute in &self.labels {
            let label = label_name(attribute);
            if known.contains(&label) || label.starts_with("__") {
                return Err(OptionsError::SameLabel(attribute.clone()));
            }
            known.push(label);
        }
        Ok(())
    }

    /// Bytes of each of the four parts of the memory.
    pub(crate) fn share(&self) -> u64 {
        self.max_memory / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_with_same_label_are_refused() {
        let with = |labels: &[&str]| ProfileStoreOptions {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            ..ProfileStoreOptions::new("/nowhere")
        };
        assert_eq!(with(&["host.name", "region"]).check(), Ok(()));
        for labels in [&["a.b", "a_b"][..], &["service.name"], &["__type__"]] {
            let refused = with(labels).check().unwrap_err();
            assert!(matches!(refused, OptionsError::SameLabel(_)), "{refused}");
        }
    }

    #[test]
    fn bound_below_minimum_is_refused() {
        let options = ProfileStoreOptions {
            max_disk: 1000,
            ..ProfileStoreOptions::new("/nowhere")
        };
        let text = options.check().unwrap_err().to_string();
        assert!(text.starts_with("max_disk is 1000 bytes"), "{text}");
    }
}
