//! Merging of profiles, which cannot simply be appended.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::pipeline::batch::Batch;
use crate::pipeline::turns::on_a_turn_if_large;
use crate::processors::decoding;
use tributary_memory::Budget;
use tributary_otlp::Limit;
use tributary_otlp::Signal;
use tributary_profiles::join;

/// Splits a batch of profiles into batches within the limit. Batches of other signals are split
/// later. If the memory budget has no room to decode the profiles, the batch stays whole: it
/// exceeds the limit, but is not lost.
pub(super) async fn within(
    mut batch: Batch,
    most: Limit,
    budget: &Arc<Budget>,
) -> SmallVec<[Batch; 1]> {
    let fits = batch.items() <= most.items && batch.bytes() <= most.bytes;
    if fits || batch.signal() != Signal::Profiles {
        return SmallVec::from_iter([batch]);
    }
    let Ok(room) = decoding::room(batch.wire().parts(), budget) else {
        return SmallVec::from_iter([batch]);
    };
    let whole = batch.wire().to_bytes();
    let bytes = whole.len();
    let cut = move || {
        let _room = room;
        crate::pipeline::split(Signal::Profiles, &whole, most)
    };
    match on_a_turn_if_large(bytes, cut).await {
        Some(pieces) if pieces.len() > 1 => {
            let pieces = pieces.into_iter();
            pieces
                .map(|(items, piece)| batch.remade(items, piece))
                .collect()
        }
        _ => SmallVec::from_iter([batch]),
    }
}

/// Merges a finished batch into the batches to send, each with its source batch. The result is one
/// batch, unless the profiles cannot be merged or the memory budget has no room to decode them:
/// each request is then sent separately.
pub(super) async fn whole(
    batch: Batch,
    most: Limit,
    budget: &Arc<Budget>,
) -> SmallVec<[(Batch, Batch); 1]> {
    let mut batch = batch;
    let parts = match batch.signal() {
        Signal::Profiles => batch.wire().parts().to_vec(),
        _ => Vec::new(),
    };
    if parts.len() < 2 {
        return SmallVec::from_iter([(batch.clone(), batch)]);
    }
    let Ok(room) = decoding::room(&parts, budget) else {
        return apart(&batch, parts);
    };
    let bytes = batch.bytes();
    let from = parts.clone();
    let join = move || {
        let _room = room;
        join(&from, most.bytes)
    };
    let Some(joined) = on_a_turn_if_large(bytes, join).await else {
        return apart(&batch, parts);
    };
    joined
        .into_iter()
        .map(|joined| {
            let items = tributary_otlp::count(Signal::Profiles, &joined.request);
            let mut whole = batch.remade(items, joined.request);
            if joined.parts.len() > 1 {
                whole.mark_joined();
            }
            let parts = joined.parts.iter().filter_map(|at| parts.get(*at).cloned());
            let parts = batch
                .clone()
                .with_wire(items, parts.collect::<tributary_otlp::Requests>());
            (whole, parts)
        })
        .collect()
}

fn apart(batch: &Batch, parts: Vec<bytes::Bytes>) -> SmallVec<[(Batch, Batch); 1]> {
    let each = parts.into_iter().map(|part| {
        let items = tributary_otlp::count(Signal::Profiles, &part);
        let batch = batch.clone().with_wire(items, part);
        (batch.clone(), batch)
    });
    each.collect()
}
