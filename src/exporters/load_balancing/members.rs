//! The current members and their state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::config::{MemberBackoff, check_address};
use super::health::{Health, Way};
use super::metrics::{MemberMetrics, ResolverMetrics};
use super::protocol::Otlp;
use super::rendezvous::seed;
use crate::exporters::otlp_grpc::Exporter;
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::turns::{BLOCKING_BYTES, on_a_turn};
use crate::queue::{Encoded, Fault, Outcome, SendError, Sender};
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::auth::ClientAuthenticator;
use tributary_net::tls::rotation::RotatingClient;
use tributary_otlp::{Requests, Signal};

/// Longest wait of the first batch for the first resolution.
const FIRST_RESOLUTION: Duration = Duration::from_secs(5);

pub(super) struct Members {
    current: ArcSwap<Vec<Arc<Member>>>,
    resolved: watch::Sender<bool>,
    maker: Maker,
    metrics: ResolverMetrics,
}

/// Settings that all members share.
pub(super) struct Maker {
    pub(super) id: ComponentId,
    pub(super) otlp: Otlp,
    pub(super) tls: Option<RotatingClient>,
    pub(super) auth: Option<Arc<dyn ClientAuthenticator>>,
    pub(super) backoff: MemberBackoff,
    pub(super) budget: Arc<Budget>,
}

pub(super) struct Member {
    id: ComponentId,
    pub(super) address: String,
    pub(super) seed: u64,
    sender: Arc<Exporter>,
    budget: Arc<Budget>,
    timeout: Option<Duration>,
    /// Health by signal: the backend behind a member may accept one signal and refuse another.
    health: [Health; 4],
    /// Bytes in flight to the member.
    load: AtomicU64,
    metrics: MemberMetrics,
}

/// Permission to send to a member.
pub(super) struct Admission {
    pub(super) member: Arc<Member>,
    signal: Signal,
    way: Way,
}

impl Members {
    pub(super) fn new(maker: Maker, metrics: ResolverMetrics) -> Self {
        Members {
            current: ArcSwap::default(),
            resolved: watch::Sender::new(false),
            maker,
            metrics,
        }
    }

    /// Records a failed resolution. The members stay.
    pub(super) fn unresolved(&self, reason: &str) {
        self.metrics.resolved(false);
        warn!(
            otelcol.component.id = %self.maker.id,
            otelcol.component.kind = "exporter",
            error = reason,
            "Cannot resolve the members; still using the previous ones. Check `resolver`"
        );
    }

    /// Replaces the members. A member that stays keeps its connections.
    pub(super) fn resolved(&self, addresses: &BTreeSet<String>) {
        self.metrics.resolved(true);
        let before = self.current.load_full();
        let known = |address: &String| before.iter().find(|member| member.address == *address);
        let mut members = Vec::with_capacity(addresses.len());
        for address in addresses {
            let member = match known(address) {
                Some(member) => Ok(member.clone()),
                None => self.maker.make(address).map(Arc::new),
            };
            match member {
                Ok(member) => members.push(member),
                Err(reason) => warn!(
                    otelcol.component.id = %self.maker.id,
                    otelcol.component.kind = "exporter",
                    endpoint = address,
                    error = reason,
                    "Ignoring a member: its address cannot be used. Check `resolver`"
                ),
            }
        }
        let same =
            before.len() == members.len() && members.iter().all(|m| known(&m.address).is_some());
        let first = !*self.resolved.borrow();
        if !same || first {
            info!(
                otelcol.component.id = %self.maker.id,
                otelcol.component.kind = "exporter",
                members = members.len(),
                "Resolved the members."
            );
            self.metrics.updated(members.len());
            self.current.store(Arc::new(members));
        }
        self.resolved.send_replace(true);
    }

    /// Waits for the first resolution of the members, up to [`FIRST_RESOLUTION`].
    pub(super) async fn known(&self) {
        if *self.resolved.borrow() {
            return;
        }
        let mut resolved = self.resolved.subscribe();
        // After a timeout, sending reports the missing members.
        let _ = timeout(FIRST_RESOLUTION, resolved.wait_for(|resolved| *resolved)).await;
    }

    /// Returns the members that accept requests of the signal now, except the members in `tried`.
    pub(super) fn admit(&self, signal: Signal, tried: &[Arc<Member>]) -> Vec<Admission> {
        let current = self.current.load();
        let admit = |alone: bool| -> Vec<Admission> {
            let untried = current.iter().filter(|member| {
                let is_tried = tried.iter().any(|other| Arc::ptr_eq(other, member));
                !is_tried
            });
            let admit = |member: &Arc<Member>| {
                member.health(signal).enter(alone).map(|way| Admission {
                    member: member.clone(),
                    signal,
                    way,
                })
            };
            untried.filter_map(admit).collect()
        };
        match admit(false) {
            nobody if nobody.is_empty() => admit(true),
            admitted => admitted,
        }
    }

    /// Whether `these` contains all members.
    pub(super) fn are(&self, these: &[Arc<Member>]) -> bool {
        let current = self.current.load();
        current
            .iter()
            .all(|member| these.iter().any(|one| Arc::ptr_eq(one, member)))
    }

    /// Returns the error for a signal that no member accepts, with the members' reasons and the
    /// delay until a member may be probed.
    pub(super) fn nobody(&self, signal: Signal, reasons: &[String]) -> SendError {
        let current = self.current.load();
        let said = match (reasons, current.is_empty()) {
            ([], true) => "there are no members; check `resolver`".to_owned(),
            ([], false) => format!("all {} members failed recently; retry later", current.len()),
            (reasons, _) => format!("no member accepted the request: {}", reasons.join("; ")),
        };
        let mut error = SendError::transient(Code::Unavailable, said);
        let pauses = current.iter().map(|member| member.health(signal).pause());
        error.throttle = pauses.min().filter(|pause| !pause.is_zero());
        error
    }
}

impl Maker {
    fn make(&self, address: &str) -> Result<Member, String> {
        check_address(address)?;
        let config = self.otlp.at(address);
        let exporter = Exporter::new(&config, self.tls.clone(), self.auth.clone())?;
        Ok(Member {
            id: self.id.clone(),
            address: address.to_owned(),
            seed: seed(address),
            sender: Arc::new(exporter),
            budget: self.budget.clone(),
            timeout: config.timeout.unless_zero(),
            health: std::array::from_fn(|_| Health::new(self.backoff.clone())),
            load: AtomicU64::new(0),
            metrics: MemberMetrics::new(&self.id, address),
        })
    }
}

impl Member {
    fn health(&self, signal: Signal) -> &Health {
        &self.health[signal.index()]
    }

    /// Returns the bytes in flight to the member.
    pub(super) fn load(&self) -> u64 {
        self.load.load(Relaxed)
    }

    async fn attempt(
        &self,
        signal: Signal,
        items: usize,
        requests: &Requests,
    ) -> Result<Outcome, SendError> {
        let (chunks, _permit) = self.encode(signal, requests).await?;
        let encoded = Encoded {
            signal,
            items,
            chunks: chunks.into(),
            retained_bytes: 0,
            identity: Arc::default(),
        };
        let sending = self.sender.send(&encoded);
        let Some(limit) = self.timeout else {
            return sending.await;
        };
        timeout(limit, sending).await.unwrap_or_else(|_| {
            let reason = format!("no response within the timeout of {limit:?}");
            Err(SendError::transient(Code::DeadlineExceeded, reason))
        })
    }

    /// The body, and the memory permit of the encoded body.
    async fn encode(
        &self,
        signal: Signal,
        requests: &Requests,
    ) -> Result<(Vec<Bytes>, Permit), SendError> {
        let (sender, requests) = (self.sender.clone(), requests.clone());
        let budget = self.budget.clone();
        let is_short = requests.len() <= BLOCKING_BYTES || !self.sender.encodes_every_byte();
        let work = move || {
            let memory = OutputMemory::new(&budget);
            let chunks = sender.encode(signal, &requests, &memory)?;
            let bytes = chunks.iter().map(Bytes::len).sum();
            Ok((chunks, memory.keep(bytes)))
        };
        if is_short {
            return work();
        }
        let encoded = on_a_turn(work).await;
        encoded.unwrap_or_else(|| {
            let reason = "the collector is shutting down";
            Err(SendError::transient(Code::Unavailable, reason))
        })
    }
}

impl Admission {
    /// Returns a permission for another request to a member that already has one.
    pub(super) fn beside(member: &Arc<Member>, signal: Signal) -> Self {
        Admission {
            member: member.clone(),
            signal,
            way: Way::Open,
        }
    }

    /// Sends, and records the member's health.
    pub(super) async fn send(
        self,
        items: usize,
        requests: &Requests,
    ) -> Result<Outcome, SendError> {
        let (member, signal) = (&*self.member, self.signal);
        let health = member.health(signal);
        let _load = Load::new(&member.load, requests.len() as u64);
        let began = Instant::now();
        let outcome = member.attempt(signal, items, requests).await;
        member.metrics.ended(outcome.is_ok(), began.elapsed());
        match &outcome {
            Err(error) if is_members_trouble(error) => {
                if let Some(pause) = health.failed(self.way, error.throttle) {
                    warn!(
                        otelcol.component.id = %member.id,
                        otelcol.component.kind = "exporter",
                        otelcol.signal = %signal,
                        endpoint = member.address,
                        %error,
                        ?pause,
                        "A member failed. Its requests go to other members until the pause is over."
                    );
                }
            }
            // Any response shows that the member is available.
            _ => {
                if health.answered() {
                    info!(
                        otelcol.component.id = %member.id,
                        otelcol.component.kind = "exporter",
                        otelcol.signal = %signal,
                        endpoint = member.address,
                        "A member accepts requests again."
                    );
                }
            }
        }
        outcome.map_err(|error| SendError {
            reason: format!("{}: {}", member.address, error.reason),
            ..error
        })
    }
}

impl Drop for Admission {
    /// Has no effect after an outcome.
    fn drop(&mut self) {
        if self.way == Way::Probe {
            self.member.health(self.signal).unknown();
        }
    }
}

/// Whether another member may accept data that this member refused: the failure is temporary, or
/// its cause is not in the data (credentials, a signal without a pipeline).
pub(super) fn is_members_trouble(error: &SendError) -> bool {
    error.retryable || error.fault == Fault::Elsewhere
}

/// Bytes in flight, until dropped.
struct Load<'a>(&'a AtomicU64, u64);

impl<'a> Load<'a> {
    fn new(load: &'a AtomicU64, bytes: u64) -> Self {
        load.fetch_add(bytes, Relaxed);
        Load(load, bytes)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}
