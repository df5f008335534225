//! Splitting of batches: to respect a limit, and to find the data at fault after a permanent refusal.
//!
//! If a batch of several clients is refused permanently, its halves are sent separately, then the halves of a refused
//! half, and so on. Only the data at fault is dropped. Every stage that sends merged data uses this search: the buffering
//! processors, the sending queue and `load_balancing`.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::batch::{Batch, Code};
use super::gathering::is_within;
use super::output_memory::OutputMemory;
use super::turns::on_a_turn_if_large;
use tributary_memory::Budget;
use tributary_otlp::{Limit, Requests, Signal};
use tributary_profiles::decoded_bytes;

/// Maximum number of extra sends to find the data at fault in one refused batch. Isolating one bad request among a
/// thousand takes twenty sends. The limit protects a next hop that refuses everything from receiving every part
/// separately.
const EXTRA_SENDS: usize = 256;
/// Maximum number of extra sends while no part was accepted, because then the data may not be at fault. The limit
/// suffices to find a good part unless at least every eighth part of the batch is bad.
const EXTRA_SENDS_UNCLEAR: usize = 16;

/// Splits a valid request into parts within `limit`, each with its number of items. See [`tributary_otlp::split`] and,
/// for profiles, [`tributary_profiles::split`].
pub fn split(signal: Signal, request: &Bytes, limit: Limit) -> Vec<(usize, Bytes)> {
    match signal {
        Signal::Profiles => tributary_profiles::split(request, limit),
        _ => tributary_otlp::split(signal, request, limit),
    }
}

/// Splits a batch that exceeds the limit `max`. If `budget` has no room to decode profiles, they are not split: the
/// result exceeds the limit, but no data is lost.
pub(crate) async fn within(batch: Batch, max: Limit, budget: &Arc<Budget>) -> Parts<Batch> {
    let size = Limit {
        items: batch.items(),
        bytes: batch.bytes(),
    };
    if is_within(size, max) {
        return Parts::from_iter([batch]);
    }
    let (signal, requests) = (batch.signal(), batch.clone().into_wire());
    let mut structs = budget.output_permit();
    if signal == Signal::Profiles {
        let needed = requests.parts().iter().map(|part| decoded_bytes(part));
        if structs.grow(needed.fold(0, usize::saturating_add)).is_err() {
            return Parts::from_iter([batch]);
        }
    }
    let whole = requests.to_bytes();
    let split_whole = move || {
        let _structs = structs;
        split(signal, &whole, max)
    };
    let parts = match signal {
        // Splitting profiles works on every byte.
        Signal::Profiles => on_a_turn_if_large(size.bytes, split_whole).await,
        _ => Some(split_whole()),
    };
    // `None` means that the process is shutting down.
    let parts = parts.unwrap_or_default();
    if parts.len() < 2 {
        return Parts::from_iter([batch]);
    }
    let parts = parts
        .into_iter()
        .map(|(items, requests)| part(&batch, items, requests, signal == Signal::Profiles));
    parts.collect()
}

/// Returns a part of a batch. A part of split profiles has a dictionary of its own. If the budget has room, such a part
/// gets its own memory permit. Other parts share the permits.
fn part(batch: &Batch, items: usize, requests: impl Into<Requests>, grows: bool) -> Batch {
    match grows {
        true => batch.remade(items, requests),
        false => batch.clone().with_wire(items, requests),
    }
}

/// Conclusion from a permanent refusal about the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The data is not at fault; any data would be refused.
    Elsewhere,
    /// Some of the data is bad. Parts of the batch may be accepted on their own.
    Content,
    /// Some of the data may be bad, or the server may be failing with a misleading status.
    Unclear,
    /// The batch is too large. Each half may be accepted.
    Size,
}

impl Fault {
    /// Returns the conclusion from the status of a permanent refusal.
    pub(crate) fn of(code: Code) -> Self {
        match code {
            Code::ResourceExhausted => Fault::Size,
            // Servers return INTERNAL and UNKNOWN both for bad data and for their own failures. For example, the
            // generated servers of tonic and Go return them for undecodable requests.
            Code::Internal | Code::Unknown => Fault::Unclear,
            Code::InvalidArgument => Fault::Content,
            _ => Fault::Elsewhere,
        }
    }
}

/// Data that is sent as one and can be split.
pub(crate) trait Divisible: Sized {
    /// Returns the memory in bytes that [`halve`](Self::halve) takes.
    fn bytes_to_halve(&mut self, fault: Fault) -> usize;

    /// Splits the data in two parts (seldom more) that can be sent separately.
    ///
    /// # Errors
    /// The unchanged data, if no part of it could be accepted alone.
    fn halve(self, fault: Fault) -> Result<Parts<Self>, Self>;
}

/// The parts of a batch, at least two.
pub(crate) type Parts<P> = SmallVec<[P; 2]>;

/// The search for the data at fault in one refused batch.
#[derive(Debug, Default)]
pub(crate) struct Search {
    extra_sends: usize,
    any_accepted: bool,
}

impl Search {
    pub(crate) fn accepted(&mut self) {
        self.any_accepted = true;
    }

    /// Splits refused data into parts, to be sent instead. The memory is taken from `budget`.
    ///
    /// # Errors
    ///
    /// The data to drop. The data is at fault or cannot be split further, or the search has used up its sends.
    pub(crate) fn refused<P: Divisible>(
        &mut self,
        mut data: P,
        fault: Fault,
        budget: Option<&Arc<Budget>>,
    ) -> Result<Parts<P>, P> {
        let max_sends = match fault {
            Fault::Elsewhere => 0,
            Fault::Unclear if !self.any_accepted => EXTRA_SENDS_UNCLEAR,
            _ => EXTRA_SENDS,
        };
        if self.extra_sends >= max_sends {
            return Err(data);
        }
        let memory = budget.map(OutputMemory::new);
        if let Some(memory) = &memory
            && memory.take(data.bytes_to_halve(fault)).is_err()
        {
            return Err(data);
        }
        let parts = data.halve(fault)?;
        self.extra_sends += parts.len();
        Ok(parts)
    }
}

/// Splits requests that were sent together into parts, each with its number of items. Several requests are split
/// between requests. A single request is split only if it is too large or was `joined` from several requests: otherwise
/// the fault concerns one client only. Returns `None` if the requests cannot be split.
pub(crate) fn halve(
    signal: Signal,
    items: usize,
    requests: &Requests,
    joined: bool,
    fault: Fault,
) -> Option<Parts<(usize, Requests)>> {
    let parts = requests.parts();
    if !is_divisible(parts.len(), items, joined, fault) {
        return None;
    }
    let [request] = parts else {
        let (first, second) = parts.split_at(parts.len().div_ceil(2));
        let half = |parts: &[Bytes]| {
            let items = parts
                .iter()
                .map(|part| tributary_otlp::count(signal, part))
                .sum();
            (items, parts.iter().cloned().collect())
        };
        return Some(Parts::from_iter([half(first), half(second)]));
    };
    if signal == Signal::Profiles
        && fault != Fault::Size
        && let Some(halves) = tributary_profiles::halve(request)
    {
        return Some(
            halves
                .into_iter()
                .map(|(items, half)| (items, half.into()))
                .collect(),
        );
    }
    let limit = Limit {
        items: items.div_ceil(2),
        bytes: usize::MAX,
    };
    let halves: Parts<_> = split(signal, request, limit)
        .into_iter()
        .map(|(items, half)| (items, half.into()))
        .collect();
    (halves.len() > 1).then_some(halves)
}

/// Returns the memory in bytes that [`halve`] takes. Several requests are split without a copy.
pub(crate) fn bytes_to_halve(
    signal: Signal,
    items: usize,
    requests: &Requests,
    joined: bool,
    fault: Fault,
) -> usize {
    match requests.parts() {
        [request] if is_divisible(1, items, joined, fault) => {
            let parts = request.len().saturating_mul(2);
            match signal {
                Signal::Profiles => parts.saturating_add(decoded_bytes(request)),
                _ => parts,
            }
        }
        _ => 0,
    }
}

fn is_divisible(requests: usize, items: usize, joined: bool, fault: Fault) -> bool {
    match (requests, fault) {
        (0, _) | (_, Fault::Elsewhere) => false,
        (1, Fault::Size) => items > 1,
        (1, Fault::Content | Fault::Unclear) => joined && items > 1,
        (_, Fault::Content | Fault::Unclear | Fault::Size) => true,
    }
}

impl Divisible for Batch {
    fn bytes_to_halve(&mut self, fault: Fault) -> usize {
        let (signal, items, joined) = (self.signal(), self.items(), self.is_joined());
        bytes_to_halve(signal, items, &self.clone().into_wire(), joined, fault)
    }

    fn halve(self, fault: Fault) -> Result<Parts<Self>, Self> {
        let (signal, requests) = (self.signal(), self.clone().into_wire());
        let Some(halves) = halve(signal, self.items(), &requests, self.is_joined(), fault) else {
            return Err(self);
        };
        let grows = signal == Signal::Profiles && requests.parts().len() == 1;
        let half = |(items, requests)| {
            let mut half = part(&self, items, requests, grows);
            let progress = self.progress.as_ref();
            half.progress = progress.map(|progress| Arc::new(progress.fork()));
            half
        };
        Ok(halves.into_iter().map(half).collect())
    }
}

#[cfg(test)]
mod tests;
