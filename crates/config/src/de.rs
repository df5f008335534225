//! A serde deserializer for the tree with positions. Its type checks are as strict as the Collector's.

mod access;
mod error;

use std::cell::RefCell;

use serde::de::{self, Visitor};

pub(crate) use super::markers::{SECRET, SECTION};
use super::node::{Content, Node};
use super::scalar::{self, Resolved};
use super::source::Span;
use crate::scalar::Scalar;
pub(crate) use error::{DecodeError, DecodeErrorKind, ErrorTarget, Step};

/// Positions of values that turned out to be secrets.
pub(crate) type Secrets = RefCell<Vec<Span>>;

#[derive(Clone, Copy)]
pub(crate) struct NodeDeserializer<'a> {
    node: &'a Node,
    secrets: &'a Secrets,
    /// Whether to skip the key `enabled`, which belongs to the section around the value.
    skip_enabled: bool,
}

impl<'a> NodeDeserializer<'a> {
    pub(crate) fn new(node: &'a Node, secrets: &'a Secrets) -> Self {
        NodeDeserializer {
            node,
            secrets,
            skip_enabled: false,
        }
    }

    /// Returns the text of a scalar as written, or as the result of an expansion.
    fn as_text(&self) -> Option<&'a str> {
        if let Some(text) = &self.node.expanded {
            return Some(text);
        }
        match &self.node.content {
            Content::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    fn resolved(&self) -> Option<(Resolved, &'a Scalar)> {
        match &self.node.content {
            Content::Scalar(scalar) => Some((scalar::resolve(scalar), scalar)),
            _ => None,
        }
    }

    fn wrong_type(&self, expected: &dyn de::Expected) -> DecodeError {
        if self.node.is_null() {
            return DecodeError::null(expected);
        }
        let mut error = DecodeError::wrong_type(self.node.kind(), expected);
        if let Some((Resolved::Text, scalar)) = self.resolved() {
            let looks_typed = |text: &str| {
                let plain = Scalar {
                    text: text.to_owned(),
                    plain: true,
                    tag: None,
                };
                !matches!(scalar::resolve(&plain), Resolved::Text | Resolved::Null)
            };
            let text = scalar.text.as_str();
            if !scalar.plain && self.node.expanded.is_none() && looks_typed(text) {
                error = error.help("remove the quotes");
            } else if matches!(
                text,
                "yes" | "no" | "on" | "off" | "Yes" | "No" | "On" | "Off"
            ) {
                error = error.help("write a boolean as `true` or `false`");
            } else if text.starts_with('0') && looks_typed(text.trim_start_matches('0')) {
                error = error.help("write the number without leading zeros (octal is `0o17`)");
            }
        }
        error
    }

    fn number<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.resolved() {
            Some((Resolved::Unsigned(value), _)) => visitor.visit_u64(value),
            Some((Resolved::Signed(value), _)) => visitor.visit_i64(value),
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn whole_number<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        // `1e3` is a whole number too. Floats cannot represent all whole numbers above 2^53.
        const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;
        match self.resolved() {
            Some((Resolved::Float(value), _))
                if value.fract() == 0.0 && value.abs() < MAX_EXACT_FLOAT =>
            {
                #[allow(clippy::cast_possible_truncation)] // bounded by the guard
                let value = value as i64;
                match u64::try_from(value) {
                    Ok(value) => visitor.visit_u64(value),
                    Err(_) => visitor.visit_i64(value),
                }
            }
            _ => self.number(visitor),
        }
    }

    fn float<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.resolved() {
            Some((Resolved::Float(value), _)) => visitor.visit_f64(value),
            _ => self.number(visitor),
        }
    }

    fn text<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.node.expanded.is_none() && self.node.is_null() {
            return Err(DecodeError::null(&visitor));
        }
        match self.as_text() {
            Some(text) => visitor.visit_str(text),
            None => Err(self.wrong_type(&visitor)),
        }
    }

    fn list<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.content {
            Content::Sequence(items) => visitor.visit_seq(access::List::new(items, self.secrets)),
            // The Collector reads `a,b` as a list of two texts, and likewise `5` from a variable.
            Content::Scalar(_) => match (self.resolved(), &self.node.expanded) {
                (Some((Resolved::Text, scalar)), None) => {
                    visitor.visit_seq(access::Words::new(&scalar.text))
                }
                (_, Some(text)) => visitor.visit_seq(access::Words::new(text)),
                _ => Err(self.wrong_type(&visitor)),
            },
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn mapping<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.content {
            Content::Mapping(pairs) => {
                visitor.visit_map(access::Pairs::new(pairs, self.secrets, self.skip_enabled))
            }
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn section<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(access::SectionParts::new(self.node, self.secrets))
    }
}

macro_rules! forward {
    ($($method:ident => $to:ident),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            self.$to(visitor)
        })*
    };
}

impl<'de> de::Deserializer<'de> for NodeDeserializer<'de> {
    type Error = DecodeError;

    forward! {
        deserialize_i8 => whole_number, deserialize_i16 => whole_number,
        deserialize_i32 => whole_number, deserialize_i64 => whole_number,
        deserialize_u8 => whole_number, deserialize_u16 => whole_number,
        deserialize_u32 => whole_number, deserialize_u64 => whole_number,
        deserialize_f32 => float, deserialize_f64 => float,
        deserialize_char => text, deserialize_str => text, deserialize_string => text,
        deserialize_bytes => text, deserialize_byte_buf => text, deserialize_identifier => text,
        deserialize_seq => list, deserialize_map => mapping,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.content {
            Content::Sequence(_) => self.list(visitor),
            Content::Mapping(_) => self.mapping(visitor),
            Content::Removed => visitor.visit_unit(),
            Content::Scalar(scalar) => match scalar::resolve(scalar) {
                Resolved::Null => visitor.visit_unit(),
                Resolved::Bool(value) => visitor.visit_bool(value),
                Resolved::Unsigned(value) => visitor.visit_u64(value),
                Resolved::Signed(value) => visitor.visit_i64(value),
                Resolved::Float(value) => visitor.visit_f64(value),
                Resolved::Text => visitor.visit_str(&scalar.text),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.resolved() {
            Some((Resolved::Bool(value), _)) => visitor.visit_bool(value),
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.node.is_null() && self.node.expanded.is_none() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.node.is_null() {
            visitor.visit_unit()
        } else {
            Err(self.wrong_type(&visitor))
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match name {
            SECTION => self.section(visitor),
            SECRET => {
                self.secrets.borrow_mut().push(self.node.span);
                visitor.visit_newtype_struct(self)
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.list(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.mapping(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.node.content {
            Content::Scalar(_) if self.node.is_null() && self.node.expanded.is_none() => {
                Err(DecodeError::null(&"one of the known values"))
            }
            Content::Scalar(scalar) => {
                let text = self.as_text().unwrap_or(&scalar.text);
                visitor.visit_enum(de::value::StrDeserializer::new(text))
            }
            Content::Mapping(pairs) => {
                let pairs = access::Pairs::new(pairs, self.secrets, false);
                visitor.visit_enum(de::value::MapAccessDeserializer::new(pairs))
            }
            _ => {
                let error = self.wrong_type(&visitor);
                Err(error.help(&crate::suggest::list(variants)))
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}
