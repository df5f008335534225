//! Reads the log ahead of the consumers.

use std::sync::{Arc, PoisonError};

use tokio::time::sleep;

use super::{Credit, Kept, PAUSE, Read, Stored, record};
use crate::pipeline::Settle;
use crate::queue::batcher::Batcher;
use crate::queue::delivery::Delivery;
use crate::queue::entry::{Entry, Job, Request};
use crate::queue::held::Held;
use crate::queue::sending::URGE;
use tributary_storage::Record;

/// How many bytes of records are asked for at once.
const CHUNK: usize = 256 << 10;

/// Hands records to the batcher as they can be sent, until another exporter takes the log over or the queue is closed.
pub(in crate::queue) async fn feed(stored: &Arc<Stored>, batcher: &Batcher, delivery: &Delivery) {
    while stored.reads() {
        stored.log().keep_recent(stored.ahead.allowance());
        let readable = stored.log().readable();
        tokio::pin!(readable);
        // From here on nothing is missed.
        readable.as_mut().enable();
        match stored.next(CHUNK).await {
            Ok(Read::Records(records)) => {
                for (kept, record) in records {
                    // Those that are left are given back.
                    let Some(credit) = credit(stored, delivery, &record).await else {
                        break;
                    };
                    *kept.credit.lock().unwrap_or_else(PoisonError::into_inner) = Some(credit);
                    push(stored, batcher, delivery, kept, record).await;
                }
            }
            Ok(Read::Empty) => readable.await,
            Ok(Read::Ended) => break,
            Err(error) => {
                tracing::error!(
                    directory = %stored.log().directory().display(), %error,
                    "A stored queue cannot be read. It is tried again."
                );
                sleep(PAUSE).await;
            }
        }
        stored.show();
    }
    // What is under way is tried once more at most: somebody else has the rest.
    delivery.stopping.cancel();
    batcher.clear();
}

/// Waits until the consumers have got on. A sender that gathers is asked to settle meanwhile. `None` when another exporter takes
/// the log over first.
async fn credit(stored: &Stored, delivery: &Delivery, record: &Record) -> Option<Credit> {
    let bytes = stored.ahead_of(record);
    loop {
        let readable = stored.log().readable();
        tokio::pin!(readable);
        readable.as_mut().enable();
        let given_back = stored.ahead.given_back();
        tokio::pin!(given_back);
        given_back.as_mut().enable();
        if !stored.reads() {
            return None;
        }
        if let Some(credit) = stored.ahead.try_take(bytes) {
            return Some(credit);
        }
        tokio::select! {
            () = given_back => {}
            () = readable => {}
            () = sleep(URGE), if delivery.sender.gathers() => delivery.sender.settle(Settle::Full),
        }
    }
}

async fn push(
    stored: &Arc<Stored>,
    batcher: &Batcher,
    delivery: &Delivery,
    mut kept: Kept,
    mut record: Record,
) {
    let (items, merging) = (record.items, batcher.merging());
    // What waits to be merged is not under way.
    let step = record.permit.take().filter(|_| merging.is_none());
    let (bytes, memory) = (record.bytes(), std::mem::take(&mut record.memory));
    let batch = record::decode(record.parts, items).filter(|batch| batch.signal() == stored.signal);
    let Some(mut batch) = batch else {
        tracing::error!(
            directory = %stored.log().directory().display(),
            items,
            "A record of a stored queue is not what this program writes. It is dropped."
        );
        delivery.ledger.damaged(items);
        kept.begin();
        return;
    };
    match memory.is_empty() {
        true => batch.hold(stored.ahead.memory(bytes)),
        // It shares its bytes with the request that it came in, which counts them.
        false => batch.share(memory),
    }
    let partition = merging.map_or_else(Vec::new, |merging| merging.partition_of(&batch));
    let pieces = match merging {
        Some(merging) => merging.pieces(batch, &delivery.budget).await,
        None => vec![batch],
    };
    // From here on each piece has an outcome, or gives the record back.
    kept.begin();
    let request = Request::of_record(kept, step);
    let entry = |piece| Entry::new(Held::Plain(piece), request.clone(), delivery.ledger.clone());
    let entries: Job = pieces.into_iter().map(entry).collect();
    drop(request);
    // Once the queue is closed they come back, and the record with them to the log.
    drop(batcher.push(partition, entries));
}
