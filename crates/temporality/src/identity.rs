//! Identities of series, as 128-bit hashes.

use tributary_otlp::reader::{Field, WireFault};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Hashes the attributes of a message, in any order: the fields `number`, by their encoding.
pub(crate) fn attributes(message: &Field<'_>, number: u32, seed: u64) -> Result<u128, WireFault> {
    let mut sum = 0_u128;
    for field in message.fields() {
        let field = field?;
        if let Some(attribute) = field.value.bytes().filter(|_| field.number == number) {
            sum = sum.wrapping_add(xxh3_128_with_seed(attribute, seed));
        }
    }
    Ok(sum)
}

/// Gathers the parts of an identity.
#[derive(Clone)]
pub(crate) struct IdentityHasher {
    text: Vec<u8>,
    seed: u64,
}

impl IdentityHasher {
    pub(crate) fn new(seed: u64) -> Self {
        IdentityHasher {
            text: Vec::new(),
            seed,
        }
    }

    /// Adds a text. Its length keeps neighbors apart.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.text
            .extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.text.extend_from_slice(text);
    }

    pub(crate) fn hash(&mut self, hash: u128) {
        self.text.extend_from_slice(&hash.to_le_bytes());
    }

    pub(crate) fn finish(&self) -> u128 {
        xxh3_128_with_seed(&self.text, self.seed)
    }

    /// Returns the identity with another hash at the end.
    pub(crate) fn with(&self, parts: &[u128]) -> u128 {
        let mut bytes = self.finish().to_le_bytes().to_vec();
        parts
            .iter()
            .for_each(|part| bytes.extend_from_slice(&part.to_le_bytes()));
        xxh3_128_with_seed(&bytes, self.seed)
    }
}
