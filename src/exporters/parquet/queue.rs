//! The sending queue in front of files, with a default size of its own.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer, forward_to_deserialize_any};

use crate::queue::{QueueConfig, Sizer};
use tributary_config::{Problems, Validate};

/// Default size of the queue in bytes: half of the default of `max_memory`. A limit in requests
/// would not bound the size of files.
pub(super) const QUEUE_BYTES: usize = 64 << 20;

/// A sending queue. Without `sizer` and `queue_size` it counts bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct FileQueue(pub QueueConfig);

impl Default for FileQueue {
    fn default() -> Self {
        FileQueue(QueueConfig {
            sizer: Some(Sizer::Bytes),
            queue_size: QUEUE_BYTES,
            ..QueueConfig::default()
        })
    }
}

impl Validate for FileQueue {
    fn validate(&self, problems: &mut Problems) {
        self.0.validate(problems);
    }
}

impl Serialize for FileQueue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl JsonSchema for FileQueue {
    fn schema_name() -> Cow<'static, str> {
        "FileQueue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        QueueConfig::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for FileQueue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut has_size = false;
        let queue = QueueConfig::deserialize(Noting {
            inner: deserializer,
            has_size: &mut has_size,
        })?;
        if has_size {
            return Ok(FileQueue(queue));
        }
        let FileQueue(QueueConfig {
            sizer, queue_size, ..
        }) = FileQueue::default();
        Ok(FileQueue(QueueConfig {
            sizer,
            queue_size,
            ..queue
        }))
    }
}

/// Notes whether the configuration sets the size of the queue.
struct Noting<'n, T> {
    inner: T,
    has_size: &'n mut bool,
}

impl<'n, 'de, D: Deserializer<'de>> Deserializer<'de> for Noting<'n, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Noting {
            inner: visitor,
            has_size: self.has_size,
        };
        self.inner.deserialize_struct(name, fields, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'n, 'de, V: Visitor<'de>> Visitor<'de> for Noting<'n, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Noting {
            inner: map,
            has_size: self.has_size,
        })
    }
}

impl<'n, 'de, A: MapAccess<'de>> MapAccess<'de> for Noting<'n, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.inner.next_key_seed(Noting {
            inner: seed,
            has_size: self.has_size,
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

impl<'n, 'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Noting<'n, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        *self.has_size |= matches!(key.as_str(), "sizer" | "queue_size");
        self.inner.deserialize(key.into_deserializer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_config::Section;

    #[test]
    fn queue_without_a_size_counts_bytes() {
        let queue = |yaml: &str| {
            let queue: Section<FileQueue> = serde_yaml::from_str(yaml).unwrap();
            let FileQueue(queue) = queue.0.unwrap();
            (queue.sizer(), queue.queue_size, queue.num_consumers)
        };
        assert_eq!(queue("{}"), (Sizer::Bytes, QUEUE_BYTES, 10));
        assert_eq!(queue("{num_consumers: 2}"), (Sizer::Bytes, QUEUE_BYTES, 2));
        // Explicit settings have the Collector's meaning.
        assert_eq!(queue("{queue_size: 7}"), (Sizer::Requests, 7, 10));
        assert_eq!(queue("{sizer: items}"), (Sizer::Items, 1000, 10));
    }
}
