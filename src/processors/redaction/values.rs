//! Strings in attribute values.

use std::borrow::Cow;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

use super::refusal::Refusal;
use super::rules::Rules;
use tributary_otlp::reader::Fields;
use tributary_otlp::strings::{AttributeDecision, SetAttribute, StringLocation};
use tributary_otlp::view;

/// Share of an attribute's value that its text covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
    /// The text covers the whole value, which is a string.
    String,
    /// The part of the value that a decoder sees, and whether that part is a string.
    Seen(bool),
    /// The value has no text for the rules.
    Nothing,
}

/// A value as text, and the share of the value that the text covers.
pub(super) fn text_of<'s>(
    rules: &Rules,
    place: StringLocation,
    seen: &SetAttribute<'s>,
) -> Result<(Cow<'s, str>, Only), Refusal> {
    let value = seen.value.unwrap_or_default();
    if seen.plain
        && let Some(text) = only_string(value)
    {
        return Ok((Cow::Borrowed(text), Only::String));
    }
    if !rules.all_types && !has_string(value) {
        return Ok((Cow::Borrowed(""), Only::Nothing));
    }
    let value = AnyValue::decode(value).map_err(|_| Refusal::Unreadable(place))?;
    Ok(match value.value {
        // The attribute may contain data that its reader ignores.
        Some(Value::StringValue(text)) => (Cow::Owned(text), Only::Seen(true)),
        _ if rules.all_types => (
            Cow::Owned(view::text_of(&value).into_owned()),
            Only::Seen(false),
        ),
        _ => (Cow::Borrowed(""), Only::Nothing),
    })
}

/// Whether an encoded value directly contains a string, even if the string is overridden.
fn has_string(value: &[u8]) -> bool {
    let mut fields = Fields::new(value);
    fields.any(|field| field.is_ok_and(|field| field.number == 1))
}

/// Whether an attribute may contain data that its reader ignores, at any depth: repeated fields, overridden members of a
/// `oneof`, unknown fields.
pub(super) fn hides(seen: &SetAttribute<'_>) -> bool {
    let value = seen.value.unwrap_or_default();
    let plain = || match value.first() {
        // The value is only a number, a boolean or bytes.
        Some(0x10 | 0x18 | 0x21 | 0x3a) => Fields::new(value).nth(1).is_none(),
        _ => AnyValue::decode(value).is_ok_and(|decoded| decoded.encode_to_vec() == value),
    };
    !seen.plain || !plain()
}

/// Returns the remaining value of a summary attribute, and whether it was changed. `None` if it does not have the
/// form that this processor writes.
pub(super) fn summed_up(
    seen: &SetAttribute<'_>,
    decided: &AttributeDecision,
) -> Option<(Value, bool)> {
    if let AttributeDecision::Replace(text) = decided {
        return Some((Value::StringValue(text.clone()), true));
    }
    let value = AnyValue::decode(seen.value?).ok()?.value?;
    let summary = matches!(value, Value::StringValue(_) | Value::IntValue(_));
    (summary && *decided != AttributeDecision::Remove && !hides(seen)).then_some((value, false))
}

/// Returns the string, if it is the whole encoded value.
pub(super) fn only_string(value: &[u8]) -> Option<&str> {
    let [0x0a, rest @ ..] = value else {
        return None;
    };
    let (text, rest) = tributary_otlp::reader::delimited(rest).ok()?;
    rest.is_empty()
        .then(|| std::str::from_utf8(text).ok())
        .flatten()
}
