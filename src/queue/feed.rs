//! Reads records from the log ahead of the consumers.

use std::sync::Arc;

use tokio::time::sleep;

use super::batcher::Batcher;
use super::delivery::Delivery;
use super::entry::{Entry, Job, Request};
use super::payload::Payload;
use super::room::FLUSH_REQUEST_INTERVAL;
use super::stored::{Credit, READ_RETRY_INTERVAL, Read, RecordHandle, Stored, record};
use crate::pipeline::FlushReason;
use tributary_storage::Record;

/// Bytes of records per read.
const CHUNK: usize = 256 << 10;

/// Passes records to the batcher as credit allows, until another exporter acquires the log or the queue is closed.
pub(super) async fn feed(stored: &Arc<Stored>, batcher: &Batcher, delivery: &Delivery) {
    while stored.reads() {
        stored.log().keep_recent(stored.ahead.allowance() / 2);
        let readable = stored.log().readable();
        tokio::pin!(readable);
        // Register before the check, so that no notification is lost.
        readable.as_mut().enable();
        match stored.next(CHUNK).await {
            Ok(Read::Records(records)) => {
                for (handle, record) in records {
                    // The remaining records return to the log on drop.
                    let Some(credit) = credit(stored, delivery, &record).await else {
                        break;
                    };
                    handle.hold(credit);
                    push(stored, batcher, delivery, handle, record).await;
                }
            }
            Ok(Read::Empty) => readable.await,
            Ok(Read::Ended) => break,
            Err(error) => {
                tracing::error!(
                    directory = %stored.log().directory().display(), %error,
                    "Cannot read a queue on disk; retrying. Check its directory and the disk."
                );
                sleep(READ_RETRY_INTERVAL).await;
            }
        }
        stored.update_metrics();
    }
    // Records in flight get at most one more attempt. All other records belong to another exporter.
    delivery.stopping.cancel();
    batcher.clear();
}

/// Waits until consumers release credit for the record, and repeatedly requests a flush from a buffering sender.
/// Returns `None` if another exporter acquires the log first.
async fn credit(stored: &Stored, delivery: &Delivery, record: &Record) -> Option<Credit> {
    let bytes = stored.ahead_of(record);
    loop {
        let readable = stored.log().readable();
        tokio::pin!(readable);
        readable.as_mut().enable();
        let released = stored.ahead.released();
        tokio::pin!(released);
        released.as_mut().enable();
        if !stored.reads() {
            return None;
        }
        if let Some(credit) = stored.ahead.try_take(bytes) {
            return Some(credit);
        }
        tokio::select! {
            () = released => {}
            () = readable => {}
            () = sleep(FLUSH_REQUEST_INTERVAL), if delivery.sender.buffers() => delivery.sender.request_flush(FlushReason::Full),
        }
    }
}

async fn push(
    stored: &Arc<Stored>,
    batcher: &Batcher,
    delivery: &Delivery,
    mut handle: RecordHandle,
    mut record: Record,
) {
    let items = record.items;
    let (bytes, memory) = (record.bytes(), std::mem::take(&mut record.memory));
    let batch = record::decode(record.parts, items).filter(|batch| batch.signal() == stored.signal);
    let Some(mut batch) = batch else {
        tracing::error!(
            directory = %stored.log().directory().display(),
            items,
            "Dropped a record of a queue on disk: it is not a valid batch of this signal. Check that no other \
             program writes to the directory."
        );
        delivery.ledger.damaged(items);
        handle.begin();
        return;
    };
    match memory.is_empty() {
        true => batch.hold(stored.ahead.memory(bytes)),
        // The batch shares its bytes with the original request, whose permits count them.
        false => batch.share(memory),
    }
    let context = delivery.context_of(&batch);
    let (partition, parts) = batcher.split(batch, &delivery.budget).await;
    // From here on, each entry has an outcome or returns the record to the log.
    handle.begin();
    let request = Request::of_record(handle, delivery.ledger.metrics.arrived(), context);
    let entry = |part| {
        Entry::new(
            Payload::Plain(part),
            request.clone(),
            delivery.ledger.clone(),
        )
    };
    let entries: Job = parts.into_iter().map(entry).collect();
    drop(request);
    // If the queue is closed, the entries are dropped and the record returns to the log.
    drop(batcher.push(&partition, entries));
}
