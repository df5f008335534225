//! Type of a scalar without a requested type: the YAML 1.2 core schema, as `serde_yaml` implements it.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Resolved {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text,
}

/// Maximum length of a number or keyword in YAML. Longer scalars are texts.
const LONGEST_VALUE: usize = 64;

pub(crate) fn resolve(scalar: &Scalar) -> Resolved {
    let by_text = match scalar.tag {
        Some(Tag::Text) => false,
        Some(Tag::Resolve) => true,
        None => scalar.plain,
    };
    if !by_text {
        return Resolved::Text;
    }
    resolve_text(&scalar.text)
}

fn resolve_text(text: &str) -> Resolved {
    let Some(first) = text.bytes().next() else {
        return Resolved::Null;
    };
    // The first letter excludes most texts.
    let may_be_value = matches!(first, b'0'..=b'9' | b'+' | b'-' | b'.' | b'~')
        || matches!(first, b't' | b'T' | b'f' | b'F' | b'n' | b'N');
    if !may_be_value || text.len() > LONGEST_VALUE || text.contains('\n') {
        return Resolved::Text;
    }
    // The Collector's YAML allows underscores between the digits of a number, as in `1_000_000`.
    if text.contains('_') {
        let is_signed_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        let digits = text.replace('_', "");
        return match is_signed_digit(text.trim_start_matches(['+', '-'])) {
            true if !digits.contains(|c: char| c.is_whitespace()) => resolve_text(&digits),
            _ => Resolved::Text,
        };
    }
    match serde_yaml::from_str(text) {
        Ok(serde_yaml::Value::Null) => Resolved::Null,
        Ok(serde_yaml::Value::Bool(value)) => Resolved::Bool(value),
        Ok(serde_yaml::Value::Number(number)) => {
            if let Some(value) = number.as_u64() {
                Resolved::Unsigned(value)
            } else if let Some(value) = number.as_i64() {
                Resolved::Signed(value)
            } else {
                number.as_f64().map_or(Resolved::Text, Resolved::Float)
            }
        }
        _ => Resolved::Text,
    }
}

/// A scalar with the properties that decide its type.
#[derive(Clone, Default)]
pub struct Scalar {
    /// The characters, without quotes.
    pub text: String,
    /// Whether the scalar is neither quoted nor a block. A plain scalar may be a number, a boolean or null.
    pub plain: bool,
    /// Explicit tag.
    pub tag: Option<Tag>,
}

/// The tags of the core schema that a scalar can carry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// `!!str`.
    Text,
    /// `!!int`, `!!float`, `!!bool`, `!!null`: the text decides, even if quoted.
    Resolve,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_typed_by_the_yaml_1_2_core_schema() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(resolve_text(text), Resolved::Null, "{text}");
        }
        for (text, value) in [("true", true), ("False", false), ("TRUE", true)] {
            assert_eq!(resolve_text(text), Resolved::Bool(value), "{text}");
        }
        assert_eq!(resolve_text("0x1F"), Resolved::Unsigned(31));
        assert_eq!(resolve_text("0o17"), Resolved::Unsigned(15));
        assert_eq!(resolve_text("-12"), Resolved::Signed(-12));
        assert_eq!(resolve_text("1e3"), Resolved::Float(1000.0));
        assert_eq!(resolve_text("1_000_000"), Resolved::Unsigned(1_000_000));
        assert_eq!(resolve_text("-1_0.5"), Resolved::Float(-10.5));
        for text in [
            "yes", "on", "no", "NO", "0123", "_1", "1_m", "12:30", "1m30s", "- 1", "t: x",
        ] {
            assert_eq!(resolve_text(text), Resolved::Text, "{text}");
        }
    }
}
