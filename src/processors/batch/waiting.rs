//! Requests that are buffered until they become a batch.

use std::collections::VecDeque;

use crate::pipeline::batch::Batch;
use crate::pipeline::holding;
use crate::pipeline::senders::Senders;
use tributary_otlp::Limit;
use tributary_otlp::Signal;

/// Thresholds and limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Thresholds at which a batch is sent; either one suffices.
    pub(super) enough: Limit,
    /// Maximum size of a batch.
    pub(super) most: Limit,
}

/// Requests with their senders.
pub(super) struct Piece {
    pub(super) batch: Batch,
    pub(super) senders: Senders,
}

impl holding::Bytes for Piece {
    fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    fn is_patient(&self) -> bool {
        self.senders.are_patient()
    }
}

/// Requests of one partition, in order of arrival.
#[derive(Default)]
pub(super) struct Waiting {
    requests: VecDeque<Piece>,
    items: usize,
    bytes: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the encoded size of the requests in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of waiting requests.
    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.items += piece.batch.items();
        self.bytes += piece.batch.bytes();
        self.requests.push_back(piece);
    }

    /// Whether the requests reach a threshold.
    pub(super) fn is_enough(&self, sizes: &Sizes) -> bool {
        self.items >= sizes.enough.items || self.bytes >= sizes.enough.bytes
    }

    /// Takes the next batch within the limits: as many whole requests as fit, or a part of a
    /// request that is too large.
    pub(super) fn take(&mut self, sizes: &Sizes) -> Option<Piece> {
        let Piece {
            mut batch,
            mut senders,
        } = self.pop(&sizes.most)?;
        while let Some(Piece { batch: next, .. }) = self.requests.front() {
            let items = batch.items() + next.items();
            let bytes = batch.bytes() + next.bytes();
            if items > sizes.most.items || bytes > sizes.most.bytes {
                break;
            }
            match self.pop(&sizes.most) {
                Some(next) => {
                    batch.append(next.batch);
                    senders.append(next.senders);
                }
                None => break,
            }
        }
        Some(Piece { batch, senders })
    }

    fn pop(&mut self, most: &Limit) -> Option<Piece> {
        let Piece {
            batch: mut request,
            mut senders,
        } = self.requests.pop_front()?;
        self.items -= request.items();
        self.bytes -= request.bytes();
        let fits = request.items() <= most.items && request.bytes() <= most.bytes;
        // Profiles were split before they were buffered, since that work must not happen under the
        // lock.
        if fits || request.signal() == Signal::Profiles {
            return Some(Piece {
                batch: request,
                senders,
            });
        }
        let whole = request.wire().to_bytes();
        let pieces = crate::pipeline::split(request.signal(), &whole, *most).into_iter();
        let mut pieces = pieces.map(|(items, bytes)| Piece {
            batch: request.clone().with_wire(items, bytes),
            senders: senders.split(items),
        });
        let first = pieces.next()?;
        // The rest goes back to the front, in order.
        let rest: Vec<Piece> = pieces.collect();
        // Every piece has its senders by now.
        senders.tell(&Ok(()));
        for piece in rest.into_iter().rev() {
            self.items += piece.batch.items();
            self.bytes += piece.batch.bytes();
            self.requests.push_front(piece);
        }
        Some(first)
    }
}
