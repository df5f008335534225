//! Separation of buffered data by the values of request headers.

use crate::pipeline::batch::{Batch, Code, Nack};
use tributary_config::Problems;

/// Values of the headers in `metadata_keys`, in their order.
pub(crate) type Partition = Vec<Vec<String>>;

/// Names of headers, in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys(Vec<String>);

impl Keys {
    pub(crate) fn new(metadata_keys: &[String]) -> Self {
        let lower = metadata_keys.iter().map(|key| key.to_ascii_lowercase());
        Keys(lower.collect())
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// Reports keys that occur twice in the configuration's `metadata_keys`.
    pub(crate) fn validate(metadata_keys: &[String], problems: &mut Problems) {
        let Keys(keys) = Keys::new(metadata_keys);
        for (at, key) in keys.iter().enumerate() {
            if keys.iter().take(at).any(|before| before == key) {
                problems.error(
                    &["metadata_keys", &at.to_string()],
                    format!("duplicate entry `{key}` (case is ignored)"),
                );
            }
        }
    }

    pub(crate) fn partition(&self, batch: &Batch) -> Partition {
        let value = |key| batch.metadata.as_ref()?.get(key).cloned();
        self.0
            .iter()
            .map(|key| value(key).unwrap_or_default())
            .collect()
    }
}

/// Returns the refusal of a combination of values beyond `metadata_cardinality_limit`.
pub(crate) fn too_many() -> Nack {
    Nack::permanent(
        Code::ResourceExhausted,
        "too many combinations of metadata values; send fewer, or raise `metadata_cardinality_limit`",
    )
}
