//! Access to JSON responses.

use serde_json::Value;

use crate::http::ServiceError;

/// Parses a response.
pub(crate) fn parse(service: &str, body: &str) -> Result<Value, ServiceError> {
    serde_json::from_str(body)
        .map_err(|error| ServiceError::Response(format!("{service} did not send JSON: {error}")))
}

/// Returns the text at a path of keys, separated by `/`; an empty text if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let mut value = value;
    for key in path.split('/') {
        match value.get(key) {
            Some(inner) => value = inner,
            None => return "",
        }
    }
    value.as_str().unwrap_or_default()
}

/// Returns the text at a path of keys, unless it is empty.
pub(crate) fn filled<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    Some(text(value, path)).filter(|text| !text.is_empty())
}
