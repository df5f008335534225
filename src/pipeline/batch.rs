//! The data that flows through a pipeline: a [`Batch`] of one [`Signal`], and the [`Nack`] that refuses it.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::Notify;
pub use tonic::Code;

use tributary_memory::{Permit, Permits};
pub use tributary_otlp::{Decoded, Nack, Requests, Signal};

/// Telemetry of one signal on its way through a pipeline.
///
/// Cloning is cheap: the bytes are shared.
#[derive(Debug, Clone)]
pub struct Batch {
    signal: Signal,
    items: usize,
    requests: Requests,
    /// Request headers of the client, if the receiver is configured to keep them.
    pub metadata: Option<Arc<Metadata>>,
    /// Set by a stage that retries after a refusal. See [`Progress`].
    pub progress: Option<Arc<Progress>>,
    /// Set by a stage that has persisted the batch and can wait indefinitely for the outcome. See [`PersistedUpstream`].
    pub persisted_upstream: Option<Arc<PersistedUpstream>>,
    joined: bool,
    /// Permits that count the bytes of this batch in the process-wide budget until the last clone is dropped.
    permits: Permits,
}

/// The branches of a fan-out that have already accepted a batch.
///
/// A stage that retries a batch uses the same progress for all attempts. Otherwise an exporter that refuses would
/// cause duplicates at the other exporters.
#[derive(Debug, Default)]
pub struct Progress(Mutex<SmallVec<[usize; 4]>>);

impl Progress {
    /// Whether the branch has accepted the batch.
    pub fn has(&self, branch: usize) -> bool {
        self.0.lock().contains(&branch)
    }

    /// Whether no branch has accepted the batch.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Copies the progress for a part of the batch that is delivered separately from now on.
    pub fn fork(&self) -> Self {
        let accepted = self.0.lock();
        Progress(Mutex::new(accepted.clone()))
    }

    /// Records that the branch accepted the batch.
    pub fn add(&self, branch: usize) {
        self.0.lock().push(branch);
    }
}

/// Marks a batch that the upstream queue has persisted, so that the queue can wait for the outcome indefinitely.
///
/// A stage that buffers such a batch must not acknowledge the batch early. The stage signals that the batch is
/// [buffered](Self::mark_buffered), and returns the outcome once the next stage has accepted the data.
#[derive(Debug, Default)]
pub struct PersistedUpstream(Notify);

impl PersistedUpstream {
    /// Signals that the batch is buffered downstream, so the queue may hand out the next batch.
    pub fn mark_buffered(&self) {
        self.0.notify_one();
    }

    /// Waits for [`mark_buffered`](Self::mark_buffered). Never returns if the outcome is known at once.
    pub async fn until_buffered(&self) {
        self.0.notified().await;
    }
}

/// Request headers that travel with a batch: lower-case name to values, in order.
pub type Metadata = BTreeMap<String, Vec<String>>;

/// Returns the memory of kept headers, in bytes. Each header is a tree node, a list and two strings.
pub fn metadata_bytes(metadata: &Metadata) -> usize {
    const HEADER_BYTES: usize = 128;
    const VALUE_BYTES: usize = 32;
    let header = |(name, values): (&String, &Vec<String>)| {
        let values = values.iter().map(|value| VALUE_BYTES + value.len());
        HEADER_BYTES + name.len() + values.sum::<usize>()
    };
    metadata.iter().map(header).sum()
}

impl Batch {
    /// Creates a batch of validated requests. `items` is the count from [`tributary_otlp::validate`].
    pub fn new(signal: Signal, items: usize, requests: impl Into<Requests>) -> Self {
        Batch {
            signal,
            items,
            requests: requests.into(),
            metadata: None,
            progress: None,
            persisted_upstream: None,
            joined: false,
            permits: SmallVec::new(),
        }
    }

    /// Returns the signal.
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Returns the number of spans, data points, log records or samples.
    pub fn items(&self) -> usize {
        self.items
    }

    /// Attaches a permit, so that the batch's bytes stay counted in the memory budget.
    pub fn hold(&mut self, permit: Permit) {
        self.permits.push(Arc::new(permit));
    }

    /// Returns the permits of this batch, for another batch that shares its bytes.
    pub fn memory(&self) -> Permits {
        self.permits.clone()
    }

    /// Attaches the [`memory`](Self::memory) of another batch that shares its bytes with this
    /// batch.
    pub fn share(&mut self, memory: Permits) {
        self.permits.extend(memory);
    }

    /// Marks the batch as merged from requests of several clients. If such a batch is refused permanently, a later
    /// stage may have to split it to find the data at fault.
    pub fn mark_joined(&mut self) {
        self.joined = true;
    }

    /// Whether a request of this batch was merged from several requests. See [`mark_joined`](Self::mark_joined).
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// Returns the size of the encoded requests in bytes.
    pub fn bytes(&self) -> usize {
        self.requests.len()
    }

    /// Returns the encoded requests.
    pub fn wire(&self) -> &Requests {
        &self.requests
    }

    /// Converts the batch into its encoded requests.
    pub fn into_wire(self) -> Requests {
        self.requests
    }

    /// Decodes the requests into structs, as one request.
    ///
    /// # Errors
    /// A permanent [`Nack`] if the bytes are not a valid request.
    pub fn decoded(&self) -> Result<Decoded, Nack> {
        Decoded::decode(self.signal, &self.requests.to_bytes())
            .map_err(|error| Nack::invalid(format!("malformed {} request: {error}", self.signal)))
    }

    /// Replaces the content; permits and metadata stay.
    pub fn with_wire(self, items: usize, requests: impl Into<Requests>) -> Self {
        Batch {
            items,
            requests: requests.into(),
            ..self
        }
    }

    /// Returns the same batch with newly made content, which `permit` accounts for. The previous permits are
    /// released, unless some of the requests are unchanged.
    pub fn with_output(self, items: usize, requests: impl Into<Requests>, permit: Permit) -> Self {
        let requests = requests.into();
        let is_same = |part: &Bytes| {
            let same = |other: &Bytes| other.as_ptr() == part.as_ptr();
            self.requests.parts().iter().any(same)
        };
        let keeps_some = requests.parts().iter().any(is_same);
        let mut batch = self.with_wire(items, requests);
        if !keeps_some {
            batch.permits.clear();
        }
        batch.hold(permit);
        batch
    }

    /// Returns a batch of other content made from this batch, for the same client. If the budget has room for both
    /// batches, the new batch gets a permit of its own; otherwise both batches share this batch's permits.
    pub fn remade(&self, items: usize, requests: impl Into<Requests>) -> Self {
        let requests = requests.into();
        let own = self
            .permits
            .first()
            .and_then(|permit| permit.another(requests.len()).ok());
        let permits = match own {
            Some(permit) => SmallVec::from_iter([Arc::new(permit)]),
            None => self.permits.clone(),
        };
        self.with_permits(items, requests, permits)
    }

    /// Like [`remade`](Self::remade), for content that includes this batch's content. `added` is the permit for the
    /// additional bytes.
    pub fn enlarged(&self, items: usize, requests: impl Into<Requests>, mut added: Permit) -> Self {
        let requests = requests.into();
        let mut permits = match added.resize(requests.len()) {
            Ok(()) => SmallVec::new(),
            Err(_) => self.permits.clone(),
        };
        permits.push(Arc::new(added));
        self.with_permits(items, requests, permits)
    }

    fn with_permits(
        &self,
        items: usize,
        requests: Requests,
        permits: SmallVec<[Arc<Permit>; 1]>,
    ) -> Self {
        Batch {
            signal: self.signal,
            items,
            requests,
            metadata: self.metadata.clone(),
            progress: self.progress.clone(),
            persisted_upstream: self.persisted_upstream.clone(),
            joined: self.joined,
            permits,
        }
    }

    /// Returns a batch of another signal that was made from this batch, for the same client. See
    /// [`remade`](Self::remade).
    pub fn derived(&self, signal: Signal, items: usize, requests: impl Into<Requests>) -> Self {
        Batch {
            signal,
            ..self.remade(items, requests)
        }
    }

    /// Appends `other`, which must be of the same signal. No payload is copied.
    pub fn append(&mut self, mut other: Batch) {
        debug_assert_eq!(self.signal, other.signal);
        self.items += other.items;
        self.joined |= other.joined;
        self.permits.append(&mut other.permits);
        self.requests.append(other.requests);
    }
}
