//! A connection of a pool.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::client::conn::http2::SendRequest;
use rustls::ClientConfig;
use tokio::time::Instant;

use super::super::body::Chunks;
use crate::client::connect_error::ConnectError;

/// Time after a failed attempt in which requests fail at once. The time doubles with every failure in a row. The
/// maximum is far below gRPC's two minutes, because only requests trigger attempts, and requests back off themselves. A
/// connection that breaks before its first response counts as a failure: under TLS 1.3, a server refuses a client
/// certificate only at that time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// State of one connection. `failures` is the number of consecutive attempts without a response.
pub(super) enum Slot {
    Idle {
        failures: u32,
    },
    Connecting {
        failures: u32,
    },
    Ready {
        failures: u32,
        connection: Connection,
        /// Earliest time of the next attempt to replace the connection.
        renewal: Instant,
    },
    Failed {
        error: ConnectError,
        until: Instant,
        failures: u32,
    },
}

impl Slot {
    pub(super) const NEW: Slot = Slot::Idle { failures: 0 };

    /// Returns the state after the last of `failures` consecutive failures.
    pub(super) fn failed(error: ConnectError, failures: u32) -> Self {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let pause = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
        Slot::Failed {
            error,
            until: Instant::now() + pause,
            failures,
        }
    }
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) sender: SendRequest<Chunks>,
    pub(super) used: Arc<AtomicBool>,
    /// Whether the connection has brought a response.
    pub(super) proven: Arc<AtomicBool>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Connection {
    /// Returns the number of failures in a row. `before` is the number before this connection.
    pub(super) fn failures(&self, before: u32) -> u32 {
        match self.proven.load(Relaxed) {
            true => 0,
            false => before,
        }
    }

    /// Whether a new connection would use different certificates.
    pub(super) fn is_outdated(&self, current: Option<&Arc<ClientConfig>>) -> bool {
        match (&self.tls, current) {
            (Some(tls), Some(current)) => !Arc::ptr_eq(tls, current),
            _ => false,
        }
    }
}
