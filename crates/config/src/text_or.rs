//! Entries of lists that are a text or a mapping.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A text, or a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextOr<M> {
    /// A scalar. Scalars without quotes, such as numbers, are texts too.
    Text(String),
    /// A mapping.
    Mapping(M),
}

impl<M> TextOr<M> {
    /// Reads an entry. `expected` describes it in errors.
    ///
    /// # Errors
    /// The entry is a list, or a mapping that `M` refuses.
    pub fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        expected: &'static str,
    ) -> Result<Self, D::Error>
    where
        M: Deserialize<'de>,
    {
        deserializer.deserialize_any(TextOrVisitor(expected, PhantomData))
    }
}

struct TextOrVisitor<M>(&'static str, PhantomData<M>);

impl<'de, M: Deserialize<'de>> Visitor<'de> for TextOrVisitor<M> {
    type Value = TextOr<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextOr<M>, E> {
        Ok(TextOr::Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<TextOr<M>, E> {
        Ok(TextOr::Text(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<TextOr<M>, E> {
        Ok(TextOr::Text(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<TextOr<M>, E> {
        Ok(TextOr::Text(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<TextOr<M>, E> {
        Ok(TextOr::Text(value.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextOr<M>, A::Error> {
        M::deserialize(MapAccessDeserializer::new(map)).map(TextOr::Mapping)
    }
}
