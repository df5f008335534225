//! Labels of a series.

/// Label with the name of the profile, such as `process_cpu`.
pub const NAME: &str = "__name__";
/// Label with the name of the service.
pub const SERVICE_NAME: &str = "service_name";
/// Label with the name of the agent, such as `gospy`.
pub const SPY: &str = "pyroscope_spy";
/// Label with the identity of a process, which distinguishes instances of a service.
pub const SESSION_ID: &str = "__session_id__";
/// Label that is `false` if the values do not count from the start of the process.
pub const DELTA: &str = "__delta__";

/// Maximum number of labels of a series. Pyroscope's default is 30.
pub const MAX_LABELS: usize = 64;
/// Maximum length of a label's name in bytes, as in Pyroscope.
pub const MAX_NAME: usize = 1024;
/// Maximum length of a label's value in bytes, as in Pyroscope.
pub const MAX_VALUE: usize = 2048;

/// Name and value of a label.
pub type SeriesLabel = (String, String);

/// The reason why labels are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeriesLabelError {
    /// There are more than [`MAX_LABELS`] labels.
    #[error("the series has more than {MAX_LABELS} labels")]
    TooMany,
    /// A name is empty, too long, or has other characters than letters, digits, `_`, `.`, `-` and `/`.
    #[error(
        "`{0}` is not a label name: it must have 1 to {MAX_NAME} letters, digits, underscores, dots, dashes or slashes"
    )]
    Name(String),
    /// The value of this label is too long.
    #[error("the value of the label `{0}` is longer than {MAX_VALUE} bytes")]
    Value(String),
}

/// Checks a label of a client.
///
/// # Errors
/// The name or the value is not acceptable.
pub fn check(name: &str, value: &str) -> Result<(), SeriesLabelError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
        return Err(SeriesLabelError::Name(name.chars().take(SHOWN).collect()));
    }
    match value.len() > MAX_VALUE {
        true => Err(SeriesLabelError::Value(name.to_owned())),
        false => Ok(()),
    }
}

/// Whether a client may set this label. Names that begin with `__` are private to Pyroscope, except for the session.
pub fn is_public(name: &str) -> bool {
    !name.starts_with("__") || name == SESSION_ID
}

/// Returns the value of a label.
pub fn find<'l>(labels: &'l [SeriesLabel], name: &str) -> Option<&'l str> {
    let found = labels.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Characters of a wrong name in a message.
const SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_names_and_values_are_bounded() {
        assert_eq!(check("service_name", "a b"), Ok(()));
        assert_eq!(check("k8s.io/pod-name", ""), Ok(()));
        for name in ["", "a b", "\u{e9}", &"a".repeat(MAX_NAME + 1)] {
            assert!(
                matches!(check(name, ""), Err(SeriesLabelError::Name(_))),
                "{name}"
            );
        }
        let long = "v".repeat(MAX_VALUE + 1);
        assert_eq!(
            check("a", &long),
            Err(SeriesLabelError::Value("a".to_owned()))
        );
        assert_eq!(check("a", &long[1..]), Ok(()));
    }

    #[test]
    fn only_the_session_is_a_private_label_of_clients() {
        assert!(is_public("pod") && is_public(SESSION_ID));
        assert!(!is_public(NAME) && !is_public(DELTA) && !is_public("__profile_type__"));
    }
}
