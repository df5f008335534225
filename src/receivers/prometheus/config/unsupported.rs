//! Keys of Prometheus that this receiver does not support.

use tributary_config::Problems;

/// Reports a key, if it is given.
pub(super) fn refuse(key: &str, is_given: bool, instead: &str, problems: &mut Problems) {
    if is_given {
        problems.error(&[key], format!("`{key}` is not supported: {instead}"));
    }
}
