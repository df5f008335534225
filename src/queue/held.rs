//! The bytes of a request while they wait: as they came, or compressed.

use std::sync::Arc;

use bytes::Bytes;

use crate::pipeline::batch::Batch;
use crate::pipeline::turns::BLOCKING_BYTES;
use tributary_memory::{Budget, Permit};
use tributary_otlp::{Requests, Signal};

/// The content of one queued request.
#[derive(Debug)]
pub(super) enum Held {
    /// As it came, with its memory permits.
    Plain(Batch),
    /// As one LZ4 block.
    Packed {
        /// The signal.
        signal: Signal,
        /// Spans, data points, log records, samples.
        items: usize,
        /// Whether one of the requests was made of several.
        joined: bool,
        /// The compressed bytes.
        block: Bytes,
        /// How many bytes each of its requests has once it is expanded.
        lengths: Arc<[usize]>,
        /// Keeps the compressed bytes counted in the memory budget.
        _permit: Permit,
    },
    /// In the log it was read from, and not in memory.
    OnDisk {
        /// The signal.
        signal: Signal,
        /// Spans, data points, log records, samples.
        items: usize,
        /// Bytes of the encoded requests.
        bytes: usize,
        /// Whether one of the requests was made of several.
        joined: bool,
    },
}

/// A block that does not expand to what went in: memory was corrupted.
#[derive(Debug, thiserror::Error)]
#[error("a queued batch could not be decompressed: {0}")]
pub(super) struct Damaged(String);

impl Held {
    /// Compresses a batch, and gives back the memory it held. It stays as it is when that makes it no smaller, or when
    /// the memory budget has no room for both forms at once.
    pub(super) async fn pack(mut batch: Batch, budget: &Arc<Budget>) -> Self {
        let requests = batch.wire().clone();
        let lengths = requests.parts().iter().map(Bytes::len).collect();
        let block = if requests.len() > BLOCKING_BYTES {
            match tokio::task::spawn_blocking(move || compress(&requests)).await {
                Ok(block) => block,
                Err(_) => return Held::Plain(batch),
            }
        } else {
            compress(&requests)
        };
        if block.len() >= batch.bytes() {
            return Held::Plain(batch);
        }
        match budget.acquire(block.len()) {
            Ok(permit) => Held::Packed {
                signal: batch.signal(),
                items: batch.items(),
                joined: batch.is_joined(),
                block,
                lengths,
                _permit: permit,
            },
            Err(_) => Held::Plain(batch),
        }
    }

    /// Lets go of the content.
    pub(super) fn unload(&mut self) {
        *self = Held::OnDisk {
            signal: self.signal(),
            items: self.items(),
            bytes: self.bytes(),
            joined: self.is_joined(),
        };
    }

    /// The signal.
    pub(super) fn signal(&self) -> Signal {
        match self {
            Held::Plain(batch) => batch.signal(),
            Held::Packed { signal, .. } | Held::OnDisk { signal, .. } => *signal,
        }
    }

    /// Spans, data points, log records, samples.
    pub(super) fn items(&self) -> usize {
        match self {
            Held::Plain(batch) => batch.items(),
            Held::Packed { items, .. } | Held::OnDisk { items, .. } => *items,
        }
    }

    /// Bytes of the encoded requests.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Held::Plain(batch) => batch.bytes(),
            Held::Packed { lengths, .. } => lengths.iter().sum(),
            Held::OnDisk { bytes, .. } => *bytes,
        }
    }

    /// Bytes it takes in memory.
    pub(super) fn stored_bytes(&self) -> usize {
        match self {
            Held::Plain(batch) => batch.bytes(),
            Held::Packed { block, .. } => block.len(),
            Held::OnDisk { .. } => 0,
        }
    }

    /// Whether one of the requests was made of several.
    pub(super) fn is_joined(&self) -> bool {
        match self {
            Held::Plain(batch) => batch.is_joined(),
            Held::Packed { joined, .. } | Held::OnDisk { joined, .. } => *joined,
        }
    }

    /// The requests, shared.
    pub(super) fn content(&mut self) -> Content {
        match self {
            Held::Plain(batch) => Content::Plain(batch.wire().clone()),
            Held::Packed { block, lengths, .. } => Content::Packed(block.clone(), lengths.clone()),
            Held::OnDisk { .. } => Content::Gone,
        }
    }

    /// The batch, for cutting it up.
    pub(super) fn into_batch(mut self) -> Result<Batch, Damaged> {
        let content = self.content();
        match self {
            Held::Plain(batch) => Ok(batch),
            Held::Packed {
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
            Held::OnDisk { .. } => Err(gone()),
        }
    }
}

/// The bytes of a queued request, apart from what the queue keeps with them.
#[derive(Debug)]
pub(super) enum Content {
    /// The requests.
    Plain(Requests),
    /// An LZ4 block, and how many bytes each of its requests has.
    Packed(Bytes, Arc<[usize]>),
    /// It was only on disk, and is damaged there.
    Gone,
}

impl Content {
    /// Whether there is work in [`requests`](Self::requests).
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Content::Packed(..))
    }

    /// Bytes that [`requests`](Self::requests) takes besides what is there.
    pub(super) fn bytes_to_expand(&self) -> usize {
        match self {
            Content::Packed(_, lengths) => lengths.iter().sum(),
            Content::Plain(_) | Content::Gone => 0,
        }
    }

    /// The requests.
    pub(super) fn requests(self) -> Result<Requests, Damaged> {
        match self {
            Content::Plain(requests) => Ok(requests),
            Content::Gone => Err(gone()),
            Content::Packed(block, lengths) => {
                let bytes = lengths.iter().sum();
                let whole = lz4_flex::block::decompress(&block, bytes)
                    .map_err(|error| Damaged(error.to_string()))?;
                if whole.len() != bytes {
                    return Err(Damaged(format!("{} bytes of {bytes}", whole.len())));
                }
                let mut rest = Bytes::from(whole);
                let request = |length: &usize| rest.split_to(*length);
                Ok(lengths.iter().map(request).collect())
            }
        }
    }
}

fn gone() -> Damaged {
    Damaged("it is damaged on disk".to_owned())
}

fn compress(requests: &Requests) -> Bytes {
    let block = lz4_flex::block::compress(&requests.to_bytes());
    // The output buffer was sized for the worst case; what is kept for minutes must not be.
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
    async fn packing_keeps_the_bytes_and_gives_memory_back() {
        for size in [1000, BLOCKING_BYTES + 1] {
            let budget = Budget::new(10 << 20);
            let content = b"abcdefgh".repeat(size / 8 + 1);
            let mut held = Held::pack(batch(content.clone(), &budget), &budget).await;
            assert!(matches!(held, Held::Packed { .. }));
            assert_eq!(budget.used(), held.stored_bytes());
            assert!(held.stored_bytes() < content.len() / 10);
            assert_eq!((held.items(), held.bytes()), (3, content.len()));
            assert_eq!(held.content().requests().unwrap().to_bytes(), content);
            assert_eq!(held.into_batch().unwrap().bytes(), content.len());
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn packing_keeps_the_requests_of_a_merged_batch_apart() {
        let budget = Budget::new(10 << 20);
        let parts: Vec<Bytes> = [200, 0, 300]
            .into_iter()
            .map(|len| vec![7; len].into())
            .collect();
        let requests: Requests = parts.iter().cloned().collect();
        let mut merged = Batch::new(Signal::Logs, 3, requests);
        merged.hold(budget.acquire(500).unwrap());
        let held = Held::pack(merged, &budget).await;
        assert!(matches!(held, Held::Packed { .. }));
        assert_eq!(held.bytes(), 500);
        let mut merged = held.into_batch().unwrap();
        assert_eq!(merged.wire().parts(), parts);
    }

    #[tokio::test]
    async fn what_does_not_shrink_or_does_not_fit_twice_stays_as_it_is() {
        let budget = Budget::new(1000);
        let noise = (0..100).map(|_| fastrand::u8(..)).collect();
        let held = Held::pack(batch(noise, &budget), &budget).await;
        assert!(matches!(held, Held::Plain(_)));
        drop(held);
        let held = Held::pack(batch(vec![0; 1000], &budget), &budget).await;
        assert!(matches!(held, Held::Plain(_)));
        assert_eq!(budget.used(), 1000);
    }
}
