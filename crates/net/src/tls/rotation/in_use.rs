//! Registry of the certificates in use, for metrics and expiry warnings.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::Owner;
use crate::tls::certificate::{CertificateFields, date};

/// Role of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificateRole {
    /// The own certificate, or an intermediate certificate that is presented with it.
    Certificate,
    /// A trusted authority of servers.
    Authority,
    /// A trusted authority of clients.
    ClientAuthority,
}

impl CertificateRole {
    /// Returns the value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            CertificateRole::Certificate => "certificate",
            CertificateRole::Authority => "ca",
            CertificateRole::ClientAuthority => "client_ca",
        }
    }
}

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInUse {
    /// Role of the certificate.
    pub kind: CertificateRole,
    /// Fields of the certificate.
    pub fields: CertificateFields,
}

impl CertificateInUse {
    /// Returns the days until the certificate expires, as a fraction; negative after expiry.
    pub fn days_left(&self, now: SystemTime) -> f64 {
        let seconds = match self.fields.not_after.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(past) => -past.duration().as_secs_f64(),
        };
        seconds / DAY.as_secs_f64()
    }
}

pub(super) trait Holder: Send + Sync {
    fn owner(&self) -> &Owner;
    fn certificates(&self) -> Vec<CertificateInUse>;
}

/// All living holders. The list is global because the metrics are.
static HOLDERS: Mutex<Vec<Weak<dyn Holder>>> = Mutex::new(Vec::new());

/// Registers `holder`, whose certificates are [`in_use`] while it lives.
pub(super) fn register(holder: Weak<dyn Holder>) {
    let mut holders = HOLDERS.lock();
    holders.retain(|holder| holder.strong_count() > 0);
    holders.push(holder);
}

/// Returns the certificates in use by the process, and their owners. The system's authorities are not included.
pub fn in_use() -> Vec<(Owner, CertificateInUse)> {
    let holders = HOLDERS.lock();
    // Dropped after the lock is released, because the drop may release the last reference to a holder.
    let living: Vec<_> = holders.iter().filter_map(Weak::upgrade).collect();
    drop(holders);
    let each = living.iter().flat_map(|holder| {
        let owner = holder.owner().clone();
        let certificates = holder.certificates().into_iter();
        certificates.map(move |certificate| (owner.clone(), certificate))
    });
    each.collect()
}

/// Rate limiter for the log lines about expiring certificates: once a day for each certificate.
#[derive(Default)]
pub(super) struct Warnings {
    /// Time of the last line, and whether the certificate had expired by then, by serial number.
    said: HashMap<String, (Instant, bool)>,
}

impl Warnings {
    pub(super) fn check(&mut self, owner: &Owner, certificates: &[CertificateInUse], now: Instant) {
        let clock = SystemTime::now();
        self.said.retain(|serial, _| {
            certificates
                .iter()
                .any(|used| used.fields.serial == *serial)
        });
        for used in certificates {
            let days = used.days_left(clock);
            let expired = days < 0.0;
            let lifetime = used
                .fields
                .not_after
                .duration_since(used.fields.not_before)
                .unwrap_or_default();
            let soon = EXPIRY_WARNING_TIME.min(lifetime / SHARE);
            let fresh = |(when, then): &(Instant, bool)| {
                *then == expired && now.duration_since(*when) < DAY
            };
            if days >= soon.as_secs_f64() / DAY.as_secs_f64()
                || self.said.get(&used.fields.serial).is_some_and(fresh)
            {
                continue;
            }
            self.said.insert(used.fields.serial.clone(), (now, expired));
            let (kind, title) = (used.kind.name(), used.fields.title());
            let until = date(used.fields.not_after);
            if expired {
                error!(
                    otelcol.component.id = %owner.id,
                    otelcol.component.kind = owner.kind,
                    transport = owner.transport,
                    kind,
                    certificate = title,
                    serial = used.fields.serial,
                    valid_until = until,
                    "A certificate in use has expired; connections fail until its file is renewed"
                );
            } else {
                warn!(
                    otelcol.component.id = %owner.id,
                    otelcol.component.kind = owner.kind,
                    transport = owner.transport,
                    kind,
                    certificate = title,
                    serial = used.fields.serial,
                    valid_until = until,
                    "A certificate in use expires soon: renew its file"
                );
            }
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Remaining lifetime at which a warning is logged, limited to a fifth of the whole lifetime. Programs renew
/// certificates with lifetimes of an hour or a day half-way or at two thirds.
const EXPIRY_WARNING_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const SHARE: u32 = 5;
