//! Encoded requests that travel as one batch.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// A list of encoded `Export*ServiceRequest`s. The default has no parts, which is an empty request.
///
/// The top-level field of traces, metrics and logs requests is repeated, so the concatenation of the parts is itself a
/// request. Merging therefore appends a part, and copies no byte up to the socket. Each profiles request has its own
/// dictionary, so several parts have to be merged into one request (see `tributary_profiles::join`) before they are
/// sent.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    parts: SmallVec<[Bytes; 1]>,
    len: usize,
}

impl Requests {
    /// Total size of the parts, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the parts are all empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts, in order. Each is a complete, valid request.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Appends a request.
    pub fn push(&mut self, part: Bytes) {
        self.len += part.len();
        self.parts.push(part);
    }

    /// Appends all parts of `other`.
    pub fn append(&mut self, other: Requests) {
        self.len += other.len;
        self.parts.extend(other.parts);
    }

    /// Returns one contiguous request. Copies only if there are several parts.
    pub fn to_bytes(&self) -> Bytes {
        match self.parts.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut joined = BytesMut::with_capacity(self.len);
                for part in many {
                    joined.extend_from_slice(part);
                }
                joined.freeze()
            }
        }
    }

    /// Returns the parts by value.
    pub fn into_parts(self) -> impl ExactSizeIterator<Item = Bytes> {
        self.parts.into_iter()
    }
}

impl From<Bytes> for Requests {
    fn from(part: Bytes) -> Self {
        Requests {
            len: part.len(),
            parts: SmallVec::from_elem(part, 1),
        }
    }
}

impl FromIterator<Bytes> for Requests {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let parts: SmallVec<[Bytes; 1]> = parts.into_iter().collect();
        Requests {
            len: parts.iter().map(Bytes::len).sum(),
            parts,
        }
    }
}
