//! Detection of connected clients that are no longer trusted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::Owner;
use crate::sampled_log::SampledLog;
use crate::tls::metrics::TlsMetrics;
use crate::tls::{certificate, notes};

/// Detects that a connected client is no longer trusted: its certificate has expired, or changed authorities, names or
/// revocation lists would refuse the client now.
pub struct TrustWatch {
    pub(super) verifier: watch::Receiver<Option<Arc<dyn ClientCertVerifier>>>,
    pub(super) report: Arc<Report>,
}

pub(super) struct Report {
    pub(super) owner: Owner,
    pub(super) metrics: TlsMetrics,
    log: SampledLog,
}

impl TrustWatch {
    /// Completes when the client at `peer`, which presented this chain, is no longer trusted. The event has been
    /// counted and logged by then.
    ///
    /// The certificates are verified again when the trust settings change and when a certificate of the chain expires.
    /// Between these events, nothing is computed.
    pub async fn lost(mut self, peer: SocketAddr, chain: Vec<CertificateDer<'static>>) {
        let Some((leaf, others)) = chain.split_first() else {
            return std::future::pending().await;
        };
        let fields = chain
            .iter()
            .filter_map(|der| certificate::describe(der).ok());
        let mut ends: Vec<SystemTime> = fields.map(|fields| fields.not_after + SECOND).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        loop {
            let wait = match ends.last() {
                Some(end) => end.duration_since(SystemTime::now()).unwrap_or_default(),
                None => LONGEST_SLEEP,
            };
            let at = tokio::select! {
                changed = self.verifier.changed() => match changed {
                    Ok(()) => SystemTime::now(),
                    // The server is shutting down.
                    Err(_) => return std::future::pending().await,
                },
                // Bounded, because the system clock may be changed meanwhile.
                () = sleep(wait.min(LONGEST_SLEEP)) => match ends.last() {
                    Some(end) if wait <= LONGEST_SLEEP => {
                        let end = *end;
                        ends.pop();
                        // The expiry may be long past: clients may present superfluous certificates, even expired
                        // certificates. At that time, other certificates were not valid yet.
                        end.max(SystemTime::now())
                    }
                    _ => continue,
                }
            };
            let verifier = self.verifier.borrow_and_update().clone();
            let at = at
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            let Some(verifier) = verifier else { continue };
            let verify = async {
                let at = UnixTime::since_unix_epoch(at);
                verifier.verify_client_cert(leaf, others, at)
            };
            let (verified, notes) = notes::taken(verify).await;
            if let Err(error) = verified {
                let words = notes.refused.map(|(_, words)| words);
                let reason = words.unwrap_or_else(|| error.to_string());
                return self.report.count_and_log(peer, leaf, &reason);
            }
        }
    }
}

impl Report {
    pub(super) fn new(owner: Owner) -> Self {
        Report {
            metrics: TlsMetrics::new(&owner),
            owner,
            log: SampledLog::of_one_line(),
        }
    }

    fn count_and_log(&self, peer: SocketAddr, leaf: &CertificateDer<'_>, error: &str) {
        self.metrics.distrusted();
        let certificate = certificate::describe(leaf).map_or_else(
            |error| error.to_string(),
            |fields| format!("{}, serial {}", fields.title(), fields.serial),
        );
        // A premature change of an authority affects thousands of clients.
        let Some(suppressed) = self.log.admit() else {
            debug!(client.address = %peer, certificate, error, "Closing the connection of a client that is no longer trusted");
            return;
        };
        warn!(
            otelcol.component.id = %self.owner.id,
            otelcol.component.kind = self.owner.kind,
            transport = self.owner.transport,
            client.address = %peer,
            certificate,
            error,
            suppressed,
            "Closing the connection of a client that is no longer trusted; for the next ten seconds, such events \
             are logged at debug level"
        );
    }
}

/// A certificate is valid through the second that it names (RFC 5280, 4.1.2.5).
const SECOND: Duration = Duration::from_secs(1);
const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60);
