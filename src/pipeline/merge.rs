//! Merging of requests of profiles. Requests of other signals are merged by concatenation, without decoding.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::batch::Batch;
use super::output_memory::OutputMemory;
use super::turns::on_a_turn_if_large;
use tributary_memory::{Budget, NoRoom};
use tributary_otlp::{Signal, count};
use tributary_profiles::{Joined, decoded_bytes, join};

/// Merges requests of profiles into one, if the result has at most `most_bytes` bytes. Each request has its own
/// dictionary, so merging decodes all of them; the samples do not change. See [`join`]. The memory is reserved in
/// `memory` first.
///
/// # Errors
///
/// The budget has no room.
pub(crate) fn merge_profiles(
    requests: &[Bytes],
    most_bytes: usize,
    memory: &OutputMemory,
) -> Result<Vec<Joined>, NoRoom> {
    let sizes = requests
        .iter()
        .map(|request| decoded_bytes(request).saturating_add(request.len()));
    memory.take(sizes.fold(0, usize::saturating_add))?;
    Ok(join(requests, most_bytes))
}

/// Merges the requests of a complete batch into the batches to send, normally one. Profiles that cannot be merged, or
/// cannot be decoded within `budget`, become separate batches.
pub(crate) async fn merge(
    batch: Batch,
    most_bytes: usize,
    budget: &Arc<Budget>,
) -> SmallVec<[Batch; 1]> {
    let parts: Vec<Bytes> = match batch.signal() {
        Signal::Profiles => batch.clone().into_wire().into_parts().collect(),
        _ => Vec::new(),
    };
    if parts.len() < 2 {
        return SmallVec::from_iter([batch]);
    }
    let (from, budget) = (parts.clone(), budget.clone());
    let work = move || merge_profiles(&from, most_bytes, &OutputMemory::new(&budget));
    let Some(Ok(joined)) = on_a_turn_if_large(batch.bytes(), work).await else {
        let each = parts.into_iter().map(|part| {
            let items = count(Signal::Profiles, &part);
            batch.clone().with_wire(items, part)
        });
        return each.collect();
    };
    let merged = joined.into_iter().map(|joined| {
        let items = count(Signal::Profiles, &joined.request);
        let mut whole = batch.remade(items, joined.request);
        if joined.parts.len() > 1 {
            whole.mark_joined();
        }
        whole
    });
    merged.collect()
}
