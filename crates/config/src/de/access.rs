//! Access to mappings, lists and sections, which adds the path to every error.

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};

use super::error::{DecodeError, Step};
use super::{NodeDeserializer, Secrets};
use crate::node::{Node, Pair};

/// The key that enables or disables a section.
const ENABLED: &str = "enabled";

pub(super) struct Pairs<'a> {
    pairs: std::iter::Enumerate<std::slice::Iter<'a, Pair>>,
    current: Option<(Step, &'a Node)>,
    secrets: &'a Secrets,
    skip_enabled: bool,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(pairs: &'a [Pair], secrets: &'a Secrets, skip_enabled: bool) -> Self {
        Pairs {
            pairs: pairs.iter().enumerate(),
            current: None,
            secrets,
            skip_enabled,
        }
    }
}

impl<'de> MapAccess<'de> for Pairs<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        for (step, pair) in self.pairs.by_ref() {
            if pair.value.is_removed() || (self.skip_enabled && pair.name == ENABLED) {
                continue;
            }
            self.current = Some((step, &pair.value));
            let key: StrDeserializer<'_, DecodeError> = pair.name.as_str().into_deserializer();
            return seed
                .deserialize(key)
                .map(Some)
                .map_err(|error| error.at_key(step));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let Some((step, node)) = self.current.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(NodeDeserializer::new(node, self.secrets))
            .map_err(|error| error.below(step))
    }
}

pub(super) struct List<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    secrets: &'a Secrets,
}

impl<'a> List<'a> {
    pub(super) fn new(items: &'a [Node], secrets: &'a Secrets) -> Self {
        List {
            items: items.iter().enumerate(),
            secrets,
        }
    }
}

impl<'de> SeqAccess<'de> for List<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        for (step, node) in self.items.by_ref() {
            if node.is_removed() {
                continue;
            }
            return seed
                .deserialize(NodeDeserializer::new(node, self.secrets))
                .map(Some)
                .map_err(|error| error.below(step));
        }
        Ok(None)
    }
}

/// A comma-separated text instead of a list.
pub(super) struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut words: Vec<&str> = text.split(',').map(str::trim).collect();
        if text.trim().is_empty() {
            words.clear();
        }
        words.reverse();
        Words(words)
    }
}

impl<'de> SeqAccess<'de> for Words<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some(word) = self.0.pop() else {
            return Ok(None);
        };
        let word: de::value::BorrowedStrDeserializer<'de, DecodeError> =
            de::value::BorrowedStrDeserializer::new(word);
        seed.deserialize(word).map(Some)
    }
}

/// A section in the form that its type expects: whether it is enabled, then its body without the key `enabled`. An
/// empty body is left out.
pub(super) struct SectionParts<'a> {
    node: &'a Node,
    secrets: &'a Secrets,
    part: u8,
}

impl<'a> SectionParts<'a> {
    pub(super) fn new(node: &'a Node, secrets: &'a Secrets) -> Self {
        SectionParts {
            node,
            secrets,
            part: 0,
        }
    }
}

impl<'de> SeqAccess<'de> for SectionParts<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.part += 1;
        if self.part == 1 {
            let switch = self
                .node
                .pairs()
                .iter()
                .enumerate()
                .find(|(_, pair)| pair.name == ENABLED && !pair.value.is_removed());
            return match switch {
                Some((step, pair)) => seed
                    .deserialize(NodeDeserializer::new(&pair.value, self.secrets))
                    .map(Some)
                    .map_err(|error| error.below(step)),
                None => seed.deserialize(true.into_deserializer()).map(Some),
            };
        }
        if self.part > 2 || self.node.is_null() {
            return Ok(None);
        }
        let body = NodeDeserializer {
            node: self.node,
            secrets: self.secrets,
            skip_enabled: true,
        };
        seed.deserialize(body).map(Some)
    }
}
