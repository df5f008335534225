//! Hashes of labels.

use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::naming::Name;

/// Whether the page reserves the label name, in any spelling.
pub(super) fn is_reserved(label: &str, names: &[&str]) -> bool {
    let escaped = Name::of_label(label).escaped;
    *escaped == *"__name__" || names.iter().any(|name| *escaped == **name)
}

/// Returns the hash of a label from [`hash_name`] and the value.
pub(super) fn hash_value(name: u64, value: &str) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), name)
}

pub(super) fn hash_name(escaped: &str) -> u64 {
    xxh3_64_with_seed(escaped.as_bytes(), *SEED)
}

/// Random, so that attackers cannot construct hash collisions.
static SEED: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..));
