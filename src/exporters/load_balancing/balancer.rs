//! Splits a batch by key, sends each share to the member of its keys, and to the next member after
//! a failure.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::keys::Keys;
use super::members::{Admission, Member, Members, is_members_trouble};
use super::progress::{Attempt, Progress, Work};
use super::rendezvous::Candidates;
use crate::pipeline::batch::Code;
use crate::pipeline::turns::on_a_turn_if_large;
use crate::queue::{Encoded, Fault, Outcome, PartialDeliveries, SendError, Sender};
use futures_util::future::BoxFuture;
use tributary_memory::{Budget, Permit};
use tributary_otlp::{Requests, Signal};
use tributary_otlp::{count, partition};
use tributary_profiles::decoded_bytes;

/// Retry delay while there is no memory to decode profiles.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Sends batches to members.
pub(super) struct Balancer {
    members: Arc<Members>,
    keys: Arc<Keys>,
    /// Limit of a member's load in percent of the average; 0 means no limit.
    factor: u32,
    /// Memory budget for decoding profiles before the split.
    budget: Arc<Budget>,
    partial: PartialDeliveries<Progress>,
}

/// A part of a batch for the member at a position.
struct Share {
    to: usize,
    work: Work,
}

impl Balancer {
    pub(super) fn new(members: Arc<Members>, keys: Keys, factor: u32, budget: Arc<Budget>) -> Self {
        Balancer {
            members,
            keys: Arc::new(keys),
            factor,
            budget,
            partial: PartialDeliveries::default(),
        }
    }

    async fn deliver(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        self.members.known().await;
        let mut attempt = Attempt::new(batch, &self.partial, &self.budget);
        let mut tried: Vec<Arc<Member>> = Vec::new();
        let mut reasons = Vec::new();
        // The first permanent refusal, unless a refusal may be retried.
        let mut for_good: Option<SendError> = None;
        // Every round excludes a member or makes smaller shares, so the loop ends.
        loop {
            let left = attempt.left();
            if left.is_empty() {
                return attempt.outcome();
            }
            let admitted = self.members.admit(batch.signal, &tried);
            if admitted.is_empty() {
                let Some(error) = for_good.filter(|_| self.members.are(&tried)) else {
                    return Err(self.members.nobody(batch.signal, &reasons));
                };
                attempt.refused_all(&error);
                return attempt.outcome();
            }
            let shares = self.route(batch.signal, left, &admitted).await?;
            attempt.replace(shares.iter().map(|share| share.work.clone()));
            let mut sending: FuturesUnordered<_> = with_members(shares, admitted, batch.signal)
                .enumerate()
                .map(|(at, (work, member, admission))| async move {
                    let sent = admission.send(work.items, &work.requests);
                    (at, member, sent.await)
                })
                .collect();
            while let Some((at, member, outcome)) = sending.next().await {
                match outcome {
                    Ok(outcome) => attempt.taken(at, member.seed, outcome),
                    Err(error) if !is_members_trouble(&error) => {
                        attempt.refused(at, member.seed, error);
                    }
                    Err(error) => {
                        if tried.iter().any(|other| Arc::ptr_eq(other, &member)) {
                            continue;
                        }
                        reasons.push(error.reason.clone());
                        for_good = match (tried.is_empty(), error.retryable) {
                            (_, true) => None,
                            (true, false) => Some(error),
                            (false, false) => for_good,
                        };
                        tried.push(member);
                    }
                }
            }
        }
    }

    /// Splits the remaining work among the members that accept requests now.
    async fn route(
        &self,
        signal: Signal,
        left: Vec<Work>,
        admitted: &[Admission],
    ) -> Result<Vec<Share>, SendError> {
        let members = admitted.iter().map(|admission| &admission.member);
        let members = members.map(|member| (member.seed, member.load()));
        let mut candidates = Candidates::new(members.collect(), self.factor);
        let bytes: usize = left.iter().map(|work| work.requests.len()).sum();
        if admitted.len() == 1 {
            let whole = left.into_iter().map(|work| Share { to: 0, work });
            return Ok(whole.collect());
        }
        let _room = self.room(signal, &left)?;
        let keys = self.keys.clone();
        let route = move || route(&keys, signal, &left, &mut candidates);
        on_a_turn_if_large(bytes, route).await.ok_or_else(|| {
            SendError::transient(Code::Unavailable, "the collector is shutting down")
        })
    }
}

impl Balancer {
    /// Reserves memory for decoding profiles.
    fn room(&self, signal: Signal, left: &[Work]) -> Result<Option<Permit>, SendError> {
        if signal != Signal::Profiles {
            return Ok(None);
        }
        let requests = left.iter().flat_map(|work| work.requests.parts());
        let needed = requests.map(|request| decoded_bytes(request));
        let room = self.budget.acquire(needed.fold(0, usize::saturating_add));
        room.map(Some).map_err(|no_room| match no_room.may_fit_later() {
            true => {
                let reason = "the memory budget of this collector is used up; cannot split the profiles now";
                let mut error = SendError::transient(Code::ResourceExhausted, reason);
                error.throttle = Some(RETRY_AFTER);
                error
            }
            false => {
                let reason = format!(
                    "cannot split the profiles: {no_room}; send smaller requests, or raise the limit of \
                     `memory_limiter`"
                );
                SendError::permanent(Code::ResourceExhausted, Fault::Size, reason)
            }
        })
    }
}

impl Sender for Balancer {
    /// The number of bytes sent depends on the members, so it is not known in advance.
    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(self.deliver(batch))
    }
}

fn route(keys: &Keys, signal: Signal, left: &[Work], candidates: &mut Candidates) -> Vec<Share> {
    let mut shares = Vec::new();
    for work in left {
        // Requests of one batch stay together if they go to the same member.
        let first = shares.len();
        for request in work.requests.parts() {
            for (to, items, requests) in split_request(keys, signal, request, candidates) {
                let mut known = shares.iter_mut().skip(first);
                let known = match signal {
                    // Two profile requests cannot be concatenated into one.
                    Signal::Profiles => None,
                    _ => known.find(|share: &&mut Share| share.to == to),
                };
                match known {
                    Some(share) => {
                        share.work.items += items;
                        share.work.requests.append(requests);
                    }
                    None => shares.push(Share {
                        to,
                        work: Work { items, requests },
                    }),
                }
            }
        }
    }
    shares
}

fn split_request(
    keys: &Keys,
    signal: Signal,
    request: &Bytes,
    candidates: &mut Candidates,
) -> Vec<(usize, usize, Requests)> {
    let mut hasher = keys.hasher(signal);
    if signal != Signal::Profiles {
        let shares = partition::partition(signal, request, keys.grain(signal), |place| {
            let message = place.point.map(|(_, point)| point).or(place.entry);
            let message = message.unwrap_or_else(|| place.resource.message());
            let key = hasher.key(place);
            candidates
                .choose(key, message.encoded().len())
                .unwrap_or_default()
        });
        let shares = shares.into_iter();
        return shares
            .map(|share| (share.destination, share.items, share.requests))
            .collect();
    }
    let shares = tributary_profiles::partition::partition(request, |place| {
        let samples = place.profile.map_or(0, |profile| profile.samples.len());
        let key = hasher.profile_key(place);
        let bytes = samples * tributary_profiles::model::Samples::BYTES;
        candidates.choose(key, bytes).unwrap_or_default()
    });
    match shares {
        Some(shares) => shares
            .into_iter()
            .map(|(to, items, request)| (to, items, request.into()))
            .collect(),
        // Requests of an unknown protocol version and invalid requests all have the same key.
        None => {
            let to = candidates.choose(0, request.len()).unwrap_or_default();
            vec![(to, count(signal, request), request.clone().into())]
        }
    }
}

/// Pairs each part with its member and the permission to send. If several parts are for one member, only one of them
/// is a probe.
fn with_members(
    shares: Vec<Share>,
    admitted: Vec<Admission>,
    signal: Signal,
) -> impl Iterator<Item = (Work, Arc<Member>, Admission)> {
    let mut admitted: Vec<(Arc<Member>, Option<Admission>)> = admitted
        .into_iter()
        .map(|admission| (admission.member.clone(), Some(admission)))
        .collect();
    let sent = shares.into_iter().filter_map(move |share| {
        let (member, admission) = admitted.get_mut(share.to)?;
        let admission = match admission.take() {
            Some(admission) => admission,
            None => Admission::beside(member, signal),
        };
        Some((share.work, member.clone(), admission))
    });
    // Collected before anything is sent, so that the permissions of members without a share are
    // released.
    sent.collect::<Vec<_>>().into_iter()
}
