//! What flows through a pipeline: a [`Batch`] of one [`Signal`], and the [`Nack`] that refuses it.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;
use smallvec::SmallVec;
use tokio::sync::Notify;
pub use tonic::Code;

use tributary_memory::{Permit, Permits};
pub use tributary_otlp::{Decoded, Nack, Requests, Signal};

/// Some telemetry of one signal on its way.
///
/// Cloning is cheap while the payload is on the wire: the bytes are shared.
#[derive(Debug, Clone)]
pub struct Batch {
    signal: Signal,
    items: usize,
    payload: Payload,
    /// What the client sent along (headers), when the receiver was asked to keep it.
    pub metadata: Option<Arc<Metadata>>,
    /// Set by a stage that will try again after a refusal: see [`Progress`].
    pub progress: Option<Arc<Progress>>,
    /// Set by a stage that can wait long for the outcome: see [`Patience`].
    pub patience: Option<Arc<Patience>>,
    joined: bool,
    /// Keeps the bytes of this batch counted in the process-wide budget until the last clone is gone.
    permits: Permits,
}

/// Which branches of a fan-out have already taken a batch.
///
/// A stage that holds a batch and offers it again after a refusal gives all attempts the same progress, so that one
/// exporter that refuses does not make the others send twice.
#[derive(Debug, Default)]
pub struct Progress(Mutex<SmallVec<[usize; 4]>>);

impl Progress {
    /// Whether the branch has the batch.
    pub fn has(&self, branch: usize) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&branch)
    }

    /// Whether no branch has it.
    pub fn is_empty(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// The same branches, for a part of the batch that goes its own way from here.
    pub fn fork(&self) -> Self {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Progress(Mutex::new(taken.clone()))
    }

    /// The branch took the batch.
    pub fn add(&self, branch: usize) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(branch);
    }
}

/// Who offers a batch has it on a disk until the outcome is known, and can wait for that as long as it takes.
///
/// So a stage that gathers batches for seconds need not answer for this one, and must not: it says that the batch is
/// [taken in](Self::taken_in), and gives the outcome once what it made of the batch has gone on.
#[derive(Debug, Default)]
pub struct Patience(Notify);

impl Patience {
    /// The batch is where it will be for long: what is behind it may come.
    pub fn taken_in(&self) {
        self.0.notify_one();
    }

    /// Waits for that, which does not happen where the outcome is known at once.
    pub async fn until_taken_in(&self) {
        self.0.notified().await;
    }
}

/// Request headers that travel with a batch: lower-case name to values, in order.
pub type Metadata = BTreeMap<String, Vec<String>>;

/// What kept headers cost, in bytes of memory. Each is a node of a tree, a list and two strings.
pub fn metadata_bytes(metadata: &Metadata) -> usize {
    const HEADER_BYTES: usize = 128;
    const VALUE_BYTES: usize = 32;
    let header = |(name, values): (&String, &Vec<String>)| {
        let values = values.iter().map(|value| VALUE_BYTES + value.len());
        HEADER_BYTES + name.len() + values.sum::<usize>()
    };
    metadata.iter().map(header).sum()
}

/// The telemetry itself, in whichever form was asked for last.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Encoded requests.
    Wire(Requests),
    /// The structs of `opentelemetry-proto`.
    Decoded(Box<Decoded>),
}

impl Batch {
    /// A batch of requests that were validated, with the number of items that [`tributary_otlp::validate`] counted.
    pub fn new(signal: Signal, items: usize, requests: impl Into<Requests>) -> Self {
        Batch {
            signal,
            items,
            payload: Payload::Wire(requests.into()),
            metadata: None,
            progress: None,
            patience: None,
            joined: false,
            permits: SmallVec::new(),
        }
    }

    /// The signal.
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// How many spans, data points, log records or samples.
    pub fn items(&self) -> usize {
        self.items
    }

    /// Attaches what keeps the bytes counted in the memory budget.
    pub fn hold(&mut self, permit: Permit) {
        self.permits.push(Arc::new(permit));
    }

    /// What keeps the bytes counted, for whoever shares them.
    pub fn memory(&self) -> Permits {
        self.permits.clone()
    }

    /// Attaches the [`memory`](Self::memory) of a batch that this one shares its bytes with.
    pub fn share(&mut self, memory: Permits) {
        self.permits.extend(memory);
    }

    /// Says that one of its requests was made of several clients'. Should it be refused for good, somebody may have to find
    /// out what of it is at fault.
    pub fn mark_joined(&mut self) {
        self.joined = true;
    }

    /// Whether one of its requests was made of several: see [`mark_joined`](Self::mark_joined).
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// Bytes of the payload; for a decoded payload what its encoding would take.
    pub fn bytes(&self) -> usize {
        match &self.payload {
            Payload::Wire(requests) => requests.len(),
            Payload::Decoded(decoded) => match decoded.as_ref() {
                Decoded::Traces(request) => request.encoded_len(),
                Decoded::Metrics(request) => request.encoded_len(),
                Decoded::Logs(request) => request.encoded_len(),
                Decoded::Profiles(request) => request.encoded_len(),
            },
        }
    }

    /// The payload as encoded requests; encodes at most once.
    pub fn wire(&mut self) -> &Requests {
        if let Payload::Decoded(decoded) = &self.payload {
            self.payload = Payload::Wire(decoded.encode().into());
        }
        match &self.payload {
            Payload::Wire(requests) => requests,
            Payload::Decoded(_) => unreachable!("was encoded above"),
        }
    }

    /// The payload as encoded requests, without the batch.
    pub fn into_wire(mut self) -> Requests {
        self.wire();
        match self.payload {
            Payload::Wire(requests) => requests,
            Payload::Decoded(_) => unreachable!("was encoded above"),
        }
    }

    /// Whether the payload is in the form of structs at the moment.
    pub fn is_decoded(&self) -> bool {
        matches!(self.payload, Payload::Decoded(_))
    }

    /// The payload as structs; decodes at most once.
    ///
    /// # Errors
    /// When the bytes are not a valid request: a permanent [`Nack`].
    pub fn decoded(&mut self) -> Result<&mut Decoded, Nack> {
        if let Payload::Wire(requests) = &self.payload {
            let decoded = Decoded::decode(self.signal, &requests.to_bytes()).map_err(|error| {
                Nack::invalid(format!("malformed {} request: {error}", self.signal))
            })?;
            self.payload = Payload::Decoded(Box::new(decoded));
        }
        match &mut self.payload {
            Payload::Decoded(decoded) => Ok(decoded),
            Payload::Wire(_) => unreachable!("was decoded above"),
        }
    }

    /// The same batch with other content; permits and metadata stay.
    pub fn with_wire(self, items: usize, requests: impl Into<Requests>) -> Self {
        Batch {
            items,
            payload: Payload::Wire(requests.into()),
            ..self
        }
    }

    /// The same batch with content that was made of its own, for which `permit` is. What it held before is given back,
    /// unless some of the requests are still the same.
    pub fn with_output(self, items: usize, requests: impl Into<Requests>, permit: Permit) -> Self {
        let requests = requests.into();
        let is_same = |part: &Bytes| match &self.payload {
            Payload::Wire(before) => {
                let same = |other: &Bytes| other.as_ptr() == part.as_ptr();
                before.parts().iter().any(same)
            }
            Payload::Decoded(_) => false,
        };
        let keeps_some = requests.parts().iter().any(is_same);
        let mut batch = self.with_wire(items, requests);
        if !keeps_some {
            batch.permits.clear();
        }
        batch.hold(permit);
        batch
    }

    /// The same batch with other structs; permits and metadata stay.
    pub fn with_decoded(self, items: usize, decoded: Decoded) -> Self {
        Batch {
            items,
            payload: Payload::Decoded(Box::new(decoded)),
            ..self
        }
    }

    /// Other content made from this batch's, for the same client. It holds memory of its own where there is room for
    /// both; otherwise it shares what this one holds.
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

    /// The same for content that is this batch's and more: `added` is the permit for the latter.
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
            payload: Payload::Wire(requests),
            metadata: self.metadata.clone(),
            progress: self.progress.clone(),
            patience: self.patience.clone(),
            joined: self.joined,
            permits,
        }
    }

    /// Telemetry of another signal that was made from this batch, for the same client. See [`remade`](Self::remade).
    pub fn derived(&self, signal: Signal, items: usize, requests: impl Into<Requests>) -> Self {
        Batch {
            signal,
            ..self.remade(items, requests)
        }
    }

    /// Appends `other`, which must be of the same signal. Nothing is copied.
    pub fn append(&mut self, mut other: Batch) {
        debug_assert_eq!(self.signal, other.signal);
        self.wire();
        other.wire();
        self.items += other.items;
        self.joined |= other.joined;
        self.permits.append(&mut other.permits);
        if let (Payload::Wire(mine), Payload::Wire(theirs)) = (&mut self.payload, other.payload) {
            mine.append(theirs);
        }
    }
}
