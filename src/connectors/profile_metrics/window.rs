//! Data buffered until it is emitted as metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::kinds::Quantity;
use super::measured::{Counted, Measured, Measurement, Received, Values};
use super::requests::Served;
use super::series::Series;
use super::subject::overflow;
use crate::pipeline::batch::Batch;
use crate::pipeline::holding;
use crate::pipeline::senders::Senders;
use tributary_memory::Permit;

/// Data received within one window.
pub(super) struct Window {
    /// Time at which the window is emitted.
    pub(super) due: Instant,
    /// Start of the window, in nanoseconds since 1970.
    pub(super) start: u64,
    /// End of the window; 0 while it is open.
    pub(super) end: u64,
    /// Resources, by their retained attributes.
    pub(super) resources: BTreeMap<Vec<u8>, Resource>,
    pub(super) requests: BTreeMap<Vec<u8>, Requests>,
    /// Number of acknowledged items.
    pub(super) items: usize,
    pub(super) senders: Senders,
    pub(super) bytes: usize,
    pub(super) permit: Permit,
    /// Batches without content. Their permits are charged where the budget had no room for `permit`
    /// to grow.
    pub(super) others: Vec<Batch>,
}

impl holding::Bytes for Window {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Buffered data of a resource.
#[derive(Debug, Default)]
pub(super) struct Resource {
    pub(super) service: Vec<u8>,
    pub(super) received: Received,
    pub(super) gathered: BTreeMap<(Quantity, Option<Arc<str>>), Gathered>,
}

/// Buffered values of one quantity.
#[derive(Debug)]
pub(super) enum Gathered {
    /// Values that add up.
    Sum(Values),
    /// Last level of each instance, with its time.
    Levels(HashMap<Vec<u8>, (u64, Counted), RandomState>),
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) spans: u64,
    /// Requests according to the service's own counters, if there are any.
    pub(super) counted: Option<f64>,
}

impl Requests {
    /// Returns the number of requests. The service's counters take precedence: they see every
    /// request, while spans may be sampled.
    pub(super) fn count(&self) -> f64 {
        self.counted.unwrap_or(self.spans as f64)
    }
}

/// Maximum number of combinations of quantity and source per resource.
const MOST_GATHERED: usize = 128;

/// Memory of a resource, a service and an entry of buffered values, besides keys and functions.
const RESOURCE_BYTES: usize = 384;
const SERVICE_BYTES: usize = 96;
const GATHERED_BYTES: usize = 128;

/// Result of an addition to the window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Added {
    /// Growth of the window in bytes.
    pub(super) bytes: usize,
    /// Number of cumulative profiles that are the first of their series.
    pub(super) first: usize,
}

impl Window {
    /// Adds the measurement of a resource. After `most` resources, further ones are combined into
    /// one.
    pub(super) fn add(&mut self, more: Measured, series: &mut Series, most: usize) -> Added {
        let mut added = Added::default();
        let key = bounded(more.retained, self.resources.len(), most, |key| {
            self.resources.contains_key(key)
        });
        let bytes = key.len() + more.service.len() + RESOURCE_BYTES;
        let resource = self.resources.entry(key).or_insert_with(|| {
            added.bytes += bytes;
            Resource {
                service: more.service,
                ..Resource::default()
            }
        });
        resource.received.add(more.received);
        for profile in more.profiles {
            let Measurement {
                kind,
                source,
                time,
                series: counts,
                mut values,
            } = profile;
            if let Some(counts) = counts {
                match series.profile(&counts, time, &values) {
                    Some(difference) => values = difference,
                    None => {
                        added.first += 1;
                        continue;
                    }
                }
            }
            added.bytes += resource.gather((kind, source), &more.instance, time, values);
        }
        added
    }

    pub(super) fn serve(&mut self, more: Served, series: &mut Series, most: usize) -> Added {
        let mut added = Added::default();
        let key = bounded(more.service, self.requests.len(), most, |key| {
            self.requests.contains_key(key)
        });
        let bytes = key.len() + SERVICE_BYTES;
        let requests = self.requests.entry(key).or_insert_with(|| {
            added.bytes += bytes;
            Requests::default()
        });
        requests.spans += more.spans;
        for counter in more.counters {
            let value = match counter.series {
                Some(key) => series.counter(&key, (counter.start, counter.time), counter.value),
                None => counter.value,
            };
            *requests.counted.get_or_insert(0.0) += value;
        }
        added
    }
}

impl Resource {
    /// Adds values. Returns the growth in bytes.
    fn gather(
        &mut self,
        mut key: (Quantity, Option<Arc<str>>),
        instance: &[u8],
        time: u64,
        values: Counted,
    ) -> usize {
        if self.gathered.len() >= MOST_GATHERED && !self.gathered.contains_key(&key) {
            key.1 = None;
        }
        let mut grown = 0;
        let kind = key.0;
        let gathered = self.gathered.entry(key).or_insert_with(|| {
            grown += GATHERED_BYTES;
            match kind.metric().is_level {
                true => Gathered::Levels(HashMap::default()),
                false => Gathered::Sum(Values::default()),
            }
        });
        match gathered {
            Gathered::Sum(sum) => grown + sum.add(&values),
            Gathered::Levels(levels) => match levels.get_mut(instance) {
                Some((last, _)) if *last > time => grown,
                // The replaced value stays charged: the charge is an upper bound, not an exact
                // balance.
                Some(known) => {
                    let more = values.bytes().saturating_sub(known.1.bytes());
                    *known = (time, values);
                    grown + more
                }
                None => {
                    grown += instance.len() + GATHERED_BYTES + values.bytes();
                    levels.insert(instance.to_vec(), (time, values));
                    grown
                }
            },
        }
    }
}

/// Returns the key, or the overflow key if the limit is reached.
fn bounded(key: Vec<u8>, known: usize, most: usize, is_known: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    match known < most || is_known(&key) {
        true => key,
        false => overflow(),
    }
}
