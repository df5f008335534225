//! Messages around items.

/// A message around items, without them.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Number of its field in the parent.
    pub(super) number: u32,
    /// Encoded fields besides the items and nodes below.
    pub(super) header: Vec<u8>,
    /// Equal for equal messages.
    pub(super) identity: Vec<u8>,
}
