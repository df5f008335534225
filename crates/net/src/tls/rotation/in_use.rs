//! Which certificates are in use, and how long they last.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{error, warn};

use crate::Owner;
use crate::tls::certificate::{Facts, date};

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Our own, or an intermediate one that we present with it.
    Certificate,
    /// An authority whose servers we trust.
    Authority,
    /// An authority whose clients we trust.
    ClientAuthority,
}

impl Kind {
    /// The label's value.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Certificate => "certificate",
            Kind::Authority => "ca",
            Kind::ClientAuthority => "client_ca",
        }
    }
}

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// What for.
    pub kind: Kind,
    /// What it says.
    pub facts: Facts,
}

impl InUse {
    /// Days until it expires, with their fraction; negative afterwards.
    pub fn days_left(&self, now: SystemTime) -> f64 {
        let seconds = match self.facts.not_after.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(past) => -past.duration().as_secs_f64(),
        };
        seconds / DAY.as_secs_f64()
    }
}

/// Something that uses certificates.
pub(super) trait Holder: Send + Sync {
    fn owner(&self) -> &Owner;
    fn certificates(&self) -> Vec<InUse>;
}

/// All that live. The metrics are the process's, and so is this list.
static HOLDERS: Mutex<Vec<Weak<dyn Holder>>> = Mutex::new(Vec::new());

/// From now on the certificates of `holder` are [`in_use`], for as long as it lives.
pub(super) fn register(holder: Weak<dyn Holder>) {
    let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    holders.retain(|holder| holder.strong_count() > 0);
    holders.push(holder);
}

/// The certificates that the process uses at this moment, and for whom. Those of the system's pool are not among them.
pub fn in_use() -> Vec<(Owner, InUse)> {
    let holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    // Dropped after the lock: the last reference may be one of these.
    let living: Vec<_> = holders.iter().filter_map(Weak::upgrade).collect();
    drop(holders);
    let each = living.iter().flat_map(|holder| {
        let owner = holder.owner().clone();
        let certificates = holder.certificates().into_iter();
        certificates.map(move |certificate| (owner.clone(), certificate))
    });
    each.collect()
}

/// Says in the log that certificates expire soon, or have expired: once a day for each.
#[derive(Default)]
pub(super) struct Warnings {
    /// By serial number: when it was said, and whether it had expired by then.
    said: HashMap<String, (Instant, bool)>,
}

impl Warnings {
    pub(super) fn check(&mut self, owner: &Owner, certificates: &[InUse], now: Instant) {
        let clock = SystemTime::now();
        self.said
            .retain(|serial, _| certificates.iter().any(|used| used.facts.serial == *serial));
        for used in certificates {
            let days = used.days_left(clock);
            let expired = days < 0.0;
            let lifetime = used
                .facts
                .not_after
                .duration_since(used.facts.not_before)
                .unwrap_or_default();
            let soon = SOON.min(lifetime / SHARE);
            let fresh = |(when, then): &(Instant, bool)| {
                *then == expired && now.duration_since(*when) < DAY
            };
            if days >= soon.as_secs_f64() / DAY.as_secs_f64()
                || self.said.get(&used.facts.serial).is_some_and(fresh)
            {
                continue;
            }
            self.said.insert(used.facts.serial.clone(), (now, expired));
            let (kind, title) = (used.kind.name(), used.facts.title());
            let until = date(used.facts.not_after);
            if expired {
                error!(
                    otelcol.component.id = %owner.id,
                    otelcol.component.kind = owner.kind,
                    transport = owner.transport,
                    kind,
                    certificate = title,
                    serial = used.facts.serial,
                    valid_until = until,
                    "A certificate in use has expired: connections fail until its file is renewed"
                );
            } else {
                warn!(
                    otelcol.component.id = %owner.id,
                    otelcol.component.kind = owner.kind,
                    transport = owner.transport,
                    kind,
                    certificate = title,
                    serial = used.facts.serial,
                    valid_until = until,
                    "A certificate in use expires soon: renew its file"
                );
            }
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A certificate that lasts no longer than this is worth a warning, unless that is more than a fifth of its lifetime:
/// those that live for an hour or a day are renewed by programs, half-way or at two thirds.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const SHARE: u32 = 5;
