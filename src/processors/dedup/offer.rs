//! A batch under examination: the keys of its items, and the remainder without duplicates.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::keys::{DUPLICATE, Keys, NONE};
use super::profiles::{self, Sketch};
use super::remove::remove;
use crate::pipeline::batch::Batch;
use crate::pipeline::turns::on_a_turn_if_large;
use crate::processors::decoding;
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_otlp::{Requests, Signal};
use tributary_profiles::Shape;
use tributary_profiles::identity::DeliveryIdentity;

/// Requests of a batch.
pub(super) struct Offer {
    signal: Signal,
    parts: SmallVec<[Part; 1]>,
    /// Keys of the items of all requests.
    pub(super) keys: Vec<u128>,
}

/// One request, as sent by a client.
struct Part {
    request: Bytes,
    /// Key of the whole request; [`NONE`] until it is computed.
    key: u128,
    items: Range<usize>,
    profiles: Option<Profiles>,
}

struct Profiles {
    sketches: Vec<Sketch>,
    /// Memory for the sketches and the records of each profile.
    _noted: Permit,
    /// Identities of profiles, where some have no ids.
    deliveries: Vec<Option<DeliveryIdentity>>,
}

/// Memory for a profile while its request is examined: its sketch, its keys, its id and its
/// outcome. The sum is doubled because lists double when they grow.
const PROFILE_BYTES: usize = 2
    * (size_of::<Sketch>()
        + size_of::<Option<DeliveryIdentity>>()
        + 2 * size_of::<(u64, &[u8])>()
        + 80);

/// Remainder of a batch.
pub(super) struct Rest {
    pub(super) requests: Requests,
    /// Number of removed items.
    pub(super) dropped: usize,
}

impl Offer {
    /// Creates the requests of a batch, without the keys of their items. Keys of whole requests are
    /// computed if they save work: otherwise everything that the profiles refer to may have to be
    /// hashed.
    pub(super) fn new(batch: &Batch, keys: &Keys) -> Self {
        let signal = batch.signal();
        let part = |request: &Bytes| Part {
            request: request.clone(),
            key: match signal {
                Signal::Profiles => keys.request(request),
                _ => NONE,
            },
            items: 0..0,
            profiles: None,
        };
        Offer {
            signal,
            parts: batch.wire().parts().iter().map(part).collect(),
            keys: Vec::new(),
        }
    }

    /// Removes requests that are known as a whole. Returns the number of their items.
    pub(super) fn drop_requests(&mut self, known: impl Fn(u128) -> bool) -> usize {
        let mut items = 0;
        let (signal, keys) = (self.signal, &mut self.keys);
        self.parts.retain(|part| {
            let known = part.key != NONE && known(part.key);
            if known {
                items += tributary_otlp::count(signal, &part.request);
                let examined = keys.get_mut(part.items.clone()).unwrap_or_default();
                examined.fill(DUPLICATE);
            }
            !known
        });
        items
    }

    /// Whether no request is left.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn requests(self) -> Requests {
        self.parts.into_iter().map(|part| part.request).collect()
    }

    /// Computes the keys of all items; `items` is their approximate number. Returns the number of
    /// profile samples that could not be examined because of the memory budget: they have no keys.
    /// The function waits only for many profiles without ids.
    pub(super) async fn examine(
        &mut self,
        items: usize,
        keys: &Keys,
        budget: &Arc<Budget>,
    ) -> usize {
        let mut unexamined = 0;
        if self.signal != Signal::Profiles {
            self.keys.reserve_exact(items);
        }
        for part in &mut self.parts {
            let start = self.keys.len();
            match self.signal {
                Signal::Profiles => {
                    let Ok(mut profiles) = Profiles::sketch(&part.request, budget) else {
                        unexamined += tributary_otlp::count(self.signal, &part.request);
                        continue;
                    };
                    match profiles.keys(&part.request, keys, budget).await {
                        Ok(found) => self.keys.extend(found),
                        Err(_) => {
                            let sketches = &profiles.sketches;
                            self.keys.extend(sketches.iter().map(|_| NONE));
                            unexamined += sketches.iter().map(|one| one.samples).sum::<usize>();
                        }
                    }
                    part.profiles = Some(profiles);
                }
                signal => keys.of_items(signal, &part.request, &mut self.keys),
            }
            part.items = start..self.keys.len();
            if part.key == NONE {
                part.key = keys.request_of(self.keys.get(start..).unwrap_or_default());
            }
        }
        unexamined
    }

    /// Returns the keys of requests that will be known as a whole once the batch is accepted. A
    /// request with an item that cannot be identified has no such key. Keys of duplicates in `keys`
    /// have been replaced by [`DUPLICATE`].
    pub(super) fn request_keys(&self, keys: &[u128]) -> SmallVec<[u128; 1]> {
        let whole = |part: &&Part| {
            let items = keys.get(part.items.clone()).unwrap_or_default();
            let passes = items.iter().any(|key| *key != DUPLICATE);
            passes && !items.contains(&NONE)
        };
        self.parts
            .iter()
            .filter(whole)
            .map(|part| part.key)
            .collect()
    }

    /// Returns the requests without the duplicates marked in `keys`. A request without duplicates
    /// is not copied. Profiles without ids get ids.
    pub(super) async fn rest(self, keys: &[u128], budget: &Arc<Budget>) -> Rest {
        let mut rest = Rest {
            requests: Requests::default(),
            dropped: 0,
        };
        for part in self.parts {
            let keys = keys.get(part.items.clone()).unwrap_or_default();
            let drop: Vec<bool> = match keys.contains(&DUPLICATE) {
                true => keys.iter().map(|key| *key == DUPLICATE).collect(),
                false => Vec::new(),
            };
            let weight = |at: usize| match &part.profiles {
                Some(profiles) => profiles.sketches.get(at).map_or(0, |sketch| sketch.samples),
                None => 1,
            };
            let dropped = drop.iter().enumerate().filter(|(_, drop)| **drop);
            let dropped = dropped.map(|(at, _)| weight(at)).sum::<usize>();
            if !drop.is_empty() && !drop.contains(&false) {
                rest.dropped += dropped;
                continue;
            }
            let left = match part.profiles {
                Some(profiles) => profiles.rest(&part.request, drop, budget).await,
                None if drop.is_empty() => None,
                None => remove(self.signal, &part.request, &drop).map(Bytes::from),
            };
            if left.is_some() {
                rest.dropped += dropped;
            }
            rest.requests.push(left.unwrap_or(part.request));
        }
        rest
    }
}

impl Profiles {
    fn sketch(request: &[u8], budget: &Arc<Budget>) -> Result<Self, NoRoom> {
        let noted = budget.acquire(profiles::count(request).saturating_mul(PROFILE_BYTES))?;
        Ok(Profiles {
            sketches: profiles::sketches(request),
            _noted: noted,
            deliveries: Vec::new(),
        })
    }

    async fn keys(
        &mut self,
        request: &Bytes,
        keys: &Keys,
        budget: &Arc<Budget>,
    ) -> Result<Vec<u128>, NoRoom> {
        if profiles::all_have_ids(&self.sketches) {
            return Ok(profiles::keys_by_id(keys, request, &self.sketches));
        }
        let shape = Shape::of(request);
        let room = budget.acquire(shape.hashed_bytes())?;
        let (bytes, ignored) = (request.clone(), keys.ignored());
        let read = on_a_turn_if_large(bytes.len(), move || {
            let _room = room;
            profiles::deliveries(&bytes, &shape, &ignored)
        });
        let Some(Ok(deliveries)) = read.await else {
            return Ok(vec![NONE; self.sketches.len()]);
        };
        self.deliveries = deliveries;
        Ok(profiles::keys(keys, &self.deliveries))
    }

    /// Returns the rewritten request; `None` if the request does not change.
    async fn rest(self, request: &Bytes, drop: Vec<bool>, budget: &Arc<Budget>) -> Option<Bytes> {
        let Profiles {
            sketches,
            deliveries,
            _noted,
        } = self;
        if drop.is_empty() && deliveries.is_empty() {
            return None;
        }
        if drop.is_empty() {
            return profiles::fill(request, &sketches, &deliveries).map(Bytes::from);
        }
        let room = decoding::room(std::slice::from_ref(request), budget).ok();
        let (bytes, request) = (request.len(), request.clone());
        let rewrite = move || {
            // The permit must live until the work is done.
            let room = &room;
            profiles::without(&request, &sketches, &deliveries, &drop, room.is_some())
        };
        on_a_turn_if_large(bytes, rewrite).await
    }
}
