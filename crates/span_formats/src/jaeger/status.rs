//! The status of a span, from its tags.

use std::borrow::Cow;

use crate::attributes::{AttributeSet, Value};
use crate::keys;

/// `StatusCode` and description of a status.
pub(super) struct Outcome<'a> {
    pub(super) code: i32,
    pub(super) text: Cow<'a, str>,
}

const UNSET: i32 = 0;
const OK: i32 = 1;
const ERROR: i32 = 2;

const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// Removes the tags that describe the status, and returns the status. The tag `error` comes first, then
/// `otel.status_code`, then the status of HTTP. `kind` is the number of the span's kind.
pub(super) fn outcome<'a>(attributes: &mut AttributeSet<'a>, kind: u64) -> Outcome<'a> {
    let mut found = None;
    if attributes.get(keys::ERROR) == Some(&Value::Bool(true)) {
        attributes.take(keys::ERROR);
        let text = description(attributes).unwrap_or_else(|| http_message(attributes));
        found = Some(Outcome { code: ERROR, text });
    }
    if let Some(code) = attributes.take(keys::STATUS_CODE) {
        // The tag goes, even if `error` has decided.
        return found.unwrap_or_else(|| Outcome {
            code: match code.text() {
                text if text.eq_ignore_ascii_case("ok") => OK,
                text if text.eq_ignore_ascii_case("error") => ERROR,
                _ => UNSET,
            },
            text: description(attributes).unwrap_or_default(),
        });
    }
    if let Some(found) = found {
        return found;
    }
    let http = attributes
        .get(keys::HTTP_STATUS)
        .and_then(|value| match value {
            Value::Int(code) => Some(*code),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        });
    match http.map(|code| of_http(code, kind)) {
        Some(ERROR) => Outcome {
            code: ERROR,
            text: http_message(attributes),
        },
        _ => Outcome {
            code: UNSET,
            text: Cow::Borrowed(""),
        },
    }
}

/// Removes the description of the status, and returns it.
fn description<'a>(attributes: &mut AttributeSet<'a>) -> Option<Cow<'a, str>> {
    attributes
        .take(keys::STATUS_DESCRIPTION)
        .map(Value::into_text)
}

fn http_message<'a>(attributes: &AttributeSet<'a>) -> Cow<'a, str> {
    let message = attributes.get(keys::HTTP_MESSAGE).cloned();
    message.map(Value::into_text).unwrap_or_default()
}

/// Returns the status of a response. An error of the client is no error of the server. 399 is an error, as in the
/// Collector.
fn of_http(code: i64, kind: u64) -> i32 {
    match (code, kind) {
        (400..500, CLIENT) => ERROR,
        (400..500, SERVER) | (100..=398, _) => UNSET,
        _ => ERROR,
    }
}
