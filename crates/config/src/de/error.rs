//! Type errors with their positions.

use std::fmt;

use serde::de::{self, Unexpected};

/// A step of a path: the index of a pair in a mapping, or of an element in a list.
pub(crate) type Step = usize;

/// The part of the node that the error points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorTarget {
    Key,
    Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeErrorKind {
    /// The value is null but the type needs a value. The key counts as absent.
    Null,
    /// A required key is missing.
    Missing(&'static str),
    Unknown {
        name: String,
        known: &'static [&'static str],
    },
    Other,
}

/// A type error with its position.
#[derive(Debug)]
pub(crate) struct DecodeError {
    pub message: String,
    pub trouble: DecodeErrorKind,
    pub place: ErrorTarget,
    /// Path to the value, innermost step first.
    pub steps: Vec<Step>,
    pub help: Option<String>,
}

impl DecodeError {
    fn new(message: String, trouble: DecodeErrorKind) -> Self {
        DecodeError {
            message,
            trouble,
            place: ErrorTarget::Value,
            steps: Vec::new(),
            help: None,
        }
    }

    pub(crate) fn null(expected: &dyn de::Expected) -> Self {
        let message = format!("expected {}, found nothing", plain_words(expected));
        Self::new(message, DecodeErrorKind::Null)
    }

    pub(crate) fn wrong_type(found: &str, expected: &dyn de::Expected) -> Self {
        let message = format!("expected {}, found {found}", plain_words(expected));
        Self::new(message, DecodeErrorKind::Other)
    }

    pub(crate) fn help(mut self, text: &str) -> Self {
        self.help = Some(text.to_owned());
        self
    }

    pub(crate) fn below(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn at_key(mut self, step: Step) -> Self {
        self.place = ErrorTarget::Key;
        self.below(step)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), DecodeErrorKind::Other)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        match found {
            Unexpected::Unit | Unexpected::Option => Self::null(expected),
            found => Self::wrong_type(found_words(found), expected),
        }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        // Only numbers are quoted. A text may be long or secret, and its line is shown in any case.
        let found = match found {
            Unexpected::Unsigned(value) => value.to_string(),
            Unexpected::Signed(value) => value.to_string(),
            Unexpected::Float(value) => value.to_string(),
            other => found_words(other).to_owned(),
        };
        Self::wrong_type(&found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        let message = format!(
            "expected {}, found {length} elements",
            plain_words(expected)
        );
        Self::new(message, DecodeErrorKind::Other)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let trouble = DecodeErrorKind::Unknown {
            name: variant.to_owned(),
            known: expected,
        };
        Self::new(format!("unknown value `{variant}`"), trouble)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let trouble = DecodeErrorKind::Unknown {
            name: field.to_owned(),
            known: expected,
        };
        Self::new(format!("unknown field `{field}`"), trouble)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(
            format!("`{field}` is required"),
            DecodeErrorKind::Missing(field),
        )
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(
            format!("`{field}` is written twice"),
            DecodeErrorKind::Other,
        )
    }
}

fn found_words(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
        Unexpected::Float(_) => "a number with a fraction",
        Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "text",
        Unexpected::Unit | Unexpected::Option => "nothing",
        Unexpected::Seq => "a list",
        Unexpected::Map | Unexpected::NewtypeStruct => "a mapping",
        _ => "something else",
    }
}

/// Translates serde's name of a type for operators without knowledge of Rust.
fn plain_words(expected: &dyn de::Expected) -> String {
    let words = expected.to_string();
    let number = |range: &str| format!("a whole number {range}");
    match words.as_str() {
        "u8" => number("from 0 to 255"),
        "u16" => number("from 0 to 65535"),
        "u32" => number("from 0 to 4294967295"),
        "u64" | "usize" => number("from 0"),
        "i8" => number("from -128 to 127"),
        "i16" => number("from -32768 to 32767"),
        "i32" => number("from -2147483648 to 2147483647"),
        "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" | "str" | "identifier" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "unit" => "nothing".to_owned(),
        words if words.starts_with("struct ") => "a mapping".to_owned(),
        words if words.starts_with("enum ") => "one of the known values".to_owned(),
        words => words.to_owned(),
    }
}
