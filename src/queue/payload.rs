//! Content of a queued request: plain, compressed, or on disk.

use std::sync::Arc;

use bytes::Bytes;

use crate::pipeline::batch::Batch;
use crate::pipeline::turns::BLOCKING_BYTES;
use tributary_memory::{Budget, Permit};
use tributary_otlp::{Requests, Signal};

/// Content of one queued request.
#[derive(Debug)]
pub(super) enum Payload {
    /// Uncompressed, with its memory permits.
    Plain(Batch),
    /// Compressed as one LZ4 block.
    Packed {
        /// The signal.
        signal: Signal,
        /// Number of spans, data points, log records or samples.
        items: usize,
        /// Whether one of the requests was merged from several.
        joined: bool,
        /// The compressed bytes.
        block: Bytes,
        /// Uncompressed size in bytes of each request.
        lengths: Arc<[usize]>,
        /// Keeps the compressed bytes counted in the memory budget.
        _permit: Permit,
    },
    /// Only on disk, in the log.
    OnDisk {
        /// The signal.
        signal: Signal,
        /// Number of spans, data points, log records or samples.
        items: usize,
        /// Bytes of the encoded requests.
        bytes: usize,
        /// Whether one of the requests was merged from several.
        joined: bool,
    },
}

/// Error for content that cannot be restored: corrupted memory, or a damaged or missing file.
#[derive(Debug, thiserror::Error)]
#[error("cannot read a queued batch: {0}")]
pub(super) struct Damaged(String);

impl Payload {
    /// Compresses a batch and releases the memory of the uncompressed form. The batch stays uncompressed if compression
    /// does not shrink it, or if the memory budget has no room for both forms.
    pub(super) async fn pack(batch: Batch, budget: &Arc<Budget>) -> Self {
        let requests = batch.wire().clone();
        let lengths = requests.parts().iter().map(Bytes::len).collect();
        let block = if requests.len() > BLOCKING_BYTES {
            match tokio::task::spawn_blocking(move || compress(&requests)).await {
                Ok(block) => block,
                Err(_) => return Payload::Plain(batch),
            }
        } else {
            compress(&requests)
        };
        if block.len() >= batch.bytes() {
            return Payload::Plain(batch);
        }
        match budget.acquire(block.len()) {
            Ok(permit) => Payload::Packed {
                signal: batch.signal(),
                items: batch.items(),
                joined: batch.is_joined(),
                block,
                lengths,
                _permit: permit,
            },
            Err(_) => Payload::Plain(batch),
        }
    }

    /// Releases the content, which is on disk.
    pub(super) fn unload(&mut self) {
        *self = Payload::OnDisk {
            signal: self.signal(),
            items: self.items(),
            bytes: self.bytes(),
            joined: self.is_joined(),
        };
    }

    pub(super) fn signal(&self) -> Signal {
        match self {
            Payload::Plain(batch) => batch.signal(),
            Payload::Packed { signal, .. } | Payload::OnDisk { signal, .. } => *signal,
        }
    }

    /// Returns the number of spans, data points, log records or samples.
    pub(super) fn items(&self) -> usize {
        match self {
            Payload::Plain(batch) => batch.items(),
            Payload::Packed { items, .. } | Payload::OnDisk { items, .. } => *items,
        }
    }

    /// Returns the bytes of the encoded requests.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Payload::Plain(batch) => batch.bytes(),
            Payload::Packed { lengths, .. } => lengths.iter().sum(),
            Payload::OnDisk { bytes, .. } => *bytes,
        }
    }

    /// Returns the bytes used in memory.
    pub(super) fn stored_bytes(&self) -> usize {
        match self {
            Payload::Plain(batch) => batch.bytes(),
            Payload::Packed { block, .. } => block.len(),
            Payload::OnDisk { .. } => 0,
        }
    }

    /// Whether one of the requests was merged from several.
    pub(super) fn is_joined(&self) -> bool {
        match self {
            Payload::Plain(batch) => batch.is_joined(),
            Payload::Packed { joined, .. } | Payload::OnDisk { joined, .. } => *joined,
        }
    }

    /// Returns the content, which shares its bytes with the payload.
    pub(super) fn content(&mut self) -> Content {
        match self {
            Payload::Plain(batch) => Content::Plain(batch.wire().clone()),
            Payload::Packed { block, lengths, .. } => {
                Content::Packed(block.clone(), lengths.clone())
            }
            Payload::OnDisk { .. } => Content::Missing,
        }
    }

    /// Converts the content into a batch, for splitting.
    pub(super) fn into_batch(mut self) -> Result<Batch, Damaged> {
        let content = self.content();
        match self {
            Payload::Plain(batch) => Ok(batch),
            Payload::Packed {
                signal,
                items,
                joined,
                ..
            } => {
                let mut batch = Batch::new(signal, items, content.requests()?);
                if joined {
                    batch.mark_joined();
                }
                Ok(batch)
            }
            Payload::OnDisk { .. } => Err(missing()),
        }
    }
}

/// Bytes of a queued request, without the metadata that the queue keeps.
#[derive(Debug)]
pub(super) enum Content {
    /// Uncompressed requests.
    Plain(Requests),
    /// An LZ4 block, and the uncompressed size in bytes of each request.
    Packed(Bytes, Arc<[usize]>),
    /// The content was only on disk and is damaged there.
    Missing,
}

impl Content {
    /// Whether [`requests`](Self::requests) has to decompress.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Content::Packed(..))
    }

    /// Additional bytes that [`requests`](Self::requests) needs.
    pub(super) fn bytes_to_expand(&self) -> usize {
        match self {
            Content::Packed(_, lengths) => lengths.iter().sum(),
            Content::Plain(_) | Content::Missing => 0,
        }
    }

    /// Returns the requests, decompressed if necessary.
    pub(super) fn requests(self) -> Result<Requests, Damaged> {
        match self {
            Content::Plain(requests) => Ok(requests),
            Content::Missing => Err(missing()),
            Content::Packed(block, lengths) => {
                let bytes = lengths.iter().sum();
                let whole = lz4_flex::block::decompress(&block, bytes)
                    .map_err(|error| Damaged(error.to_string()))?;
                if whole.len() != bytes {
                    return Err(Damaged(format!(
                        "{} bytes after decompression, expected {bytes}",
                        whole.len()
                    )));
                }
                let mut rest = Bytes::from(whole);
                let request = |length: &usize| rest.split_to(*length);
                Ok(lengths.iter().map(request).collect())
            }
        }
    }
}

fn missing() -> Damaged {
    Damaged("its file is damaged or was removed".to_owned())
}

fn compress(requests: &Requests) -> Bytes {
    let block = lz4_flex::block::compress(&requests.to_bytes());
    // Shrink the output buffer, which was sized for the worst case: the block may be kept for minutes.
    block.into_boxed_slice().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: Vec<u8>, budget: &Arc<Budget>) -> Batch {
        let permit = budget.acquire(bytes.len()).unwrap();
        let mut batch = Batch::new(Signal::Logs, 3, Bytes::from(bytes));
        batch.hold(permit);
        batch
    }

    #[tokio::test]
    async fn compression_keeps_content_and_releases_memory() {
        for size in [1000, BLOCKING_BYTES + 1] {
            let budget = Budget::new(10 << 20);
            let content = b"abcdefgh".repeat(size / 8 + 1);
            let mut payload = Payload::pack(batch(content.clone(), &budget), &budget).await;
            assert!(matches!(payload, Payload::Packed { .. }));
            assert_eq!(budget.used(), payload.stored_bytes());
            assert!(payload.stored_bytes() < content.len() / 10);
            assert_eq!((payload.items(), payload.bytes()), (3, content.len()));
            assert_eq!(payload.content().requests().unwrap().to_bytes(), content);
            assert_eq!(payload.into_batch().unwrap().bytes(), content.len());
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn compression_keeps_requests_of_merged_batch_apart() {
        let budget = Budget::new(10 << 20);
        let parts: Vec<Bytes> = [200, 0, 300]
            .into_iter()
            .map(|len| vec![7; len].into())
            .collect();
        let requests: Requests = parts.iter().cloned().collect();
        let mut merged = Batch::new(Signal::Logs, 3, requests);
        merged.hold(budget.acquire(500).unwrap());
        let payload = Payload::pack(merged, &budget).await;
        assert!(matches!(payload, Payload::Packed { .. }));
        assert_eq!(payload.bytes(), 500);
        let merged = payload.into_batch().unwrap();
        assert_eq!(merged.wire().parts(), parts);
    }

    #[tokio::test]
    async fn incompressible_content_stays_uncompressed() {
        let budget = Budget::new(1000);
        let noise = (0..100).map(|_| fastrand::u8(..)).collect();
        let payload = Payload::pack(batch(noise, &budget), &budget).await;
        assert!(matches!(payload, Payload::Plain(_)));
        drop(payload);
        let payload = Payload::pack(batch(vec![0; 1000], &budget), &budget).await;
        assert!(matches!(payload, Payload::Plain(_)));
        assert_eq!(budget.used(), 1000);
    }
}
