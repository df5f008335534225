//! Records in flight.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use tokio::time::sleep;

use super::ahead::Credit;
use super::{READ_RETRY_INTERVAL, Stored, record};
use crate::pipeline::batch::Batch;
use tributary_storage::{Record, RecordLocation};

/// Handle of the record that a request was read from. On drop, the record is acknowledged or returned to the log.
pub(in crate::queue) struct RecordHandle {
    stored: Arc<Stored>,
    record: RecordRef,
    /// The record's share of the read-ahead.
    credit: Mutex<Option<Credit>>,
    returns_to_log: AtomicBool,
    /// Items that are already delivered or dropped. If the record is returned, these items are sent again.
    finished_items: AtomicUsize,
}

/// A record without its content.
#[derive(Debug, Clone, Copy)]
struct RecordRef {
    sequence: u64,
    items: usize,
    location: RecordLocation,
}

impl RecordHandle {
    /// Creates the handle of a record. A record dropped before [`begin`](Self::begin) returns to the log.
    pub(super) fn new(stored: &Arc<Stored>, record: &Record) -> Self {
        stored.in_flight.fetch_add(1, Relaxed);
        RecordHandle {
            stored: stored.clone(),
            record: RecordRef {
                sequence: record.sequence,
                items: record.items,
                location: record.location,
            },
            credit: Mutex::new(None),
            returns_to_log: AtomicBool::new(true),
            finished_items: AtomicUsize::new(0),
        }
    }

    /// From now on, dropping the record acknowledges it, unless [`return_to_log`](Self::return_to_log) is called first.
    pub(in crate::queue) fn begin(&mut self) {
        *self.returns_to_log.get_mut() = false;
    }

    /// Returns the number of items in the record.
    pub(in crate::queue) fn items(&self) -> usize {
        self.record.items
    }

    /// Returns the record to the log, whose next reader sends it again.
    pub(in crate::queue) fn return_to_log(&self) {
        self.returns_to_log.store(true, Relaxed);
    }

    /// Counts items that were delivered or dropped.
    pub(in crate::queue) fn add_finished(&self, items: usize) {
        self.finished_items.fetch_add(items, Relaxed);
    }

    /// Keeps the record's share of the read-ahead.
    pub(in crate::queue) fn hold(&self, credit: Credit) {
        *self.credit.lock() = Some(credit);
    }

    /// Releases the read-ahead credit, because the content is not in memory. Other records may be read instead.
    pub(in crate::queue) fn unloaded(&self) {
        self.credit.lock().take();
    }

    /// Reads the content again. Returns `None` if the record is damaged.
    pub(in crate::queue) async fn reload(&self) -> Option<Batch> {
        loop {
            let log = self.stored.log().clone();
            let RecordRef {
                sequence, location, ..
            } = self.record;
            let read = tokio::task::spawn_blocking(move || log.reread(sequence, location)).await;
            match read {
                Ok(Ok(record)) => {
                    let record = record?;
                    let permit = self.stored.ahead.memory(record.bytes());
                    let mut batch = record::decode(record.parts, record.items)?;
                    batch.hold(permit);
                    return Some(batch);
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "Cannot read a queue on disk; retrying. Check its directory and the \
                                             disk.");
                    sleep(READ_RETRY_INTERVAL).await;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for RecordHandle {
    fn drop(&mut self) {
        let RecordRef {
            sequence,
            items,
            location,
        } = self.record;
        let log = self.stored.log();
        if *self.returns_to_log.get_mut() {
            // The finished items will be sent and counted again.
            self.stored
                .ledger
                .metrics
                .recovered(*self.finished_items.get_mut());
            log.requeue(sequence, location);
        } else {
            log.acknowledge(sequence, items);
        }
        self.stored.in_flight.fetch_sub(1, Relaxed);
        self.stored.update_metrics();
    }
}
