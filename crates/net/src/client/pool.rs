//! A few HTTP/2 connections to one target. A request may use any of them.
//!
//! When certificates change, old connections are replaced one by one. A new connection is established first. Only then
//! do new requests stop using the old connection, which ends with its last request. If the new connection fails, the
//! old connection stays.

mod settings;
mod slot;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::{Mutex, MutexGuard};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

pub use self::settings::{Balancing, PoolSettings};
use self::slot::{Connection, LONGEST_PAUSE, Slot};
use super::body::Chunks;
use super::connect::Connector;
use super::connect_error::ConnectError;
use super::full_error;

/// Total timeout of connecting, equal to gRPC's minimum:
/// <https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md>.
const CONNECT: Duration = Duration::from_secs(20);
/// Maximum number of retries of one request whose connection closed before the request was sent.
const MAX_UNSENT_RETRIES: usize = 4;
/// Maximum number of connections, regardless of the number of addresses.
const MAX_CONNECTIONS: usize = 256;

/// HTTP/2 connections that are established on demand and replaced when they break.
pub struct Pool(Arc<Shared>);

/// Reason why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection, or its stream for this request, broke.
    #[error("the connection was closed: {}", full_error(.0))]
    Broken(#[source] hyper::Error),
    /// The server ended the connection and gave a reason.
    #[error("the server refused the connection: {0}")]
    Refused(String),
}

struct Shared {
    connector: Connector,
    settings: PoolSettings,
    slots: Mutex<Vec<Slot>>,
    turn: AtomicUsize,
    number: AtomicU64,
    /// Notified whenever an attempt to connect ends.
    changed: watch::Sender<()>,
}

/// A request without a response. If the request fails or its caller drops it, no new request uses
/// its connection: the peer may have vanished silently, which TCP detects only after 15 minutes.
struct Unanswered<'a> {
    pool: &'a Shared,
    number: u64,
}

enum Pick {
    Ready(Connection),
    Connecting,
    Failed(ConnectError, Instant),
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.pool.discard(self.number);
    }
}

impl Pool {
    /// Creates a pool, which connects on the first request.
    pub fn new(connector: Connector, settings: PoolSettings) -> Self {
        let slots = (0..settings.connections.clamp(1, MAX_CONNECTIONS)).map(|_| Slot::NEW);
        Pool(Arc::new(Shared {
            connector,
            slots: Mutex::new(slots.collect()),
            settings,
            turn: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            changed: watch::Sender::new(()),
        }))
    }

    /// Sends a request and returns the head of the response.
    ///
    /// If a connection that has served requests breaks, the server most likely closed it in the meantime, with or
    /// without a GOAWAY. Then the request is retried once, at once, on another connection. An unsent request is always
    /// retried if the server had announced the end of the connection.
    ///
    /// # Errors
    /// The connection is missing or broke. The server may have processed the request.
    pub async fn send(
        &self,
        request: impl Fn() -> Request<Chunks>,
    ) -> Result<Response<Incoming>, RequestError> {
        let mut again = true;
        let mut unsent = 0;
        loop {
            let mut connection = self.connection().await?;
            let served_before = connection.used.swap(true, Relaxed);
            let unanswered = Unanswered {
                pool: &self.0,
                number: connection.number,
            };
            let sent = match connection.sender.ready().await {
                Ok(()) => connection.sender.send_request(request()).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(response) => {
                    connection.proven.store(true, Relaxed);
                    std::mem::forget(unanswered);
                    return Ok(response);
                }
                Err(error) => {
                    let unsent_at_all = error.is_canceled();
                    let error = self.refusal(error);
                    if !connection.proven.load(Relaxed) {
                        self.0.connection_failed(connection.number, &error);
                    }
                    drop(unanswered);
                    if unsent_at_all && unsent < MAX_UNSENT_RETRIES {
                        unsent += 1;
                        continue;
                    }
                    if !(again && served_before) {
                        return Err(error);
                    }
                    again = false;
                }
            }
        }
    }

    /// Returns the reason why a connection ended without a response.
    fn refusal(&self, error: hyper::Error) -> RequestError {
        match self.0.connector.last_failure() {
            Some(last_failure) => RequestError::Refused(last_failure),
            None => RequestError::Broken(error),
        }
    }

    async fn connection(&self) -> Result<Connection, ConnectError> {
        let mut changed = self.0.changed.subscribe();
        loop {
            changed.mark_unchanged();
            match self.0.pick() {
                Pick::Ready(connection) => return Ok(connection),
                // The sender is in `self`, so the channel is open.
                Pick::Connecting => drop(changed.changed().await),
                Pick::Failed(_, until) if self.0.settings.wait_for_ready => {
                    sleep_until(until).await
                }
                Pick::Failed(error, _) => return Err(error),
            }
        }
    }
}

impl Shared {
    /// Picks the next ready connection, and starts to connect idle ones.
    fn pick(self: &Arc<Self>) -> Pick {
        let turn = self.turn.fetch_add(1, Relaxed);
        let now = Instant::now();
        let tls = self.connector.tls_config();
        let mut connecting = false;
        let mut failed: Option<(ConnectError, Instant)> = None;
        let mut slots = self.lock();
        let count = slots.len();
        for step in 0..count {
            let at = turn.wrapping_add(step) % count;
            let Some(slot) = slots.get_mut(at) else {
                continue;
            };
            let failures = match slot {
                Slot::Ready {
                    connection,
                    renewal,
                    ..
                } if !connection.sender.is_closed() => {
                    if connection.is_outdated(tls.as_ref()) && *renewal <= now {
                        *renewal = now + CONNECT + LONGEST_PAUSE;
                        self.connect(at);
                    }
                    return Pick::Ready(connection.clone());
                }
                Slot::Connecting { .. } => {
                    connecting = true;
                    continue;
                }
                Slot::Failed { error, until, .. } if *until > now => {
                    if failed
                        .as_ref()
                        .is_none_or(|(_, earliest)| *until < *earliest)
                    {
                        failed = Some((error.clone(), *until));
                    }
                    continue;
                }
                Slot::Failed { failures, .. } | Slot::Idle { failures } => *failures,
                Slot::Ready {
                    failures,
                    connection,
                    ..
                } => connection.failures(*failures),
            };
            *slot = Slot::Connecting { failures };
            connecting = true;
            self.connect(at);
        }
        match failed {
            Some((error, until)) if !connecting => Pick::Failed(error, until),
            _ => Pick::Connecting,
        }
    }

    fn connect(self: &Arc<Self>, at: usize) {
        tokio::spawn(connect(
            Arc::downgrade(self),
            self.connector.clone(),
            self.settings.clone(),
            at,
        ));
    }

    /// Stores the result of an attempt to connect with `tls`.
    fn connected(
        &self,
        at: usize,
        tls: Option<Arc<ClientConfig>>,
        outcome: Result<SendRequest<Chunks>, ConnectError>,
    ) {
        let number = self.number.fetch_add(1, Relaxed);
        if let Some(slot) = self.lock().get_mut(at) {
            let now = Instant::now();
            let failures = match slot {
                Slot::Connecting { failures } | Slot::Idle { failures } => *failures,
                Slot::Failed { failures, .. } => *failures,
                Slot::Ready { .. } => 0,
            };
            match (outcome, &mut *slot) {
                (Ok(sender), slot) => {
                    let connection = Connection {
                        number,
                        sender,
                        used: Arc::default(),
                        proven: Arc::default(),
                        tls,
                    };
                    *slot = Slot::Ready {
                        failures,
                        connection,
                        renewal: now,
                    };
                }
                // The old connection still works, so the pool keeps it.
                (
                    Err(error),
                    Slot::Ready {
                        connection,
                        renewal,
                        ..
                    },
                ) if !connection.sender.is_closed() => {
                    warn!(
                        %error,
                        "Cannot connect with the new certificates; still using the connection with the previous ones"
                    );
                    *renewal = now + LONGEST_PAUSE;
                }
                (Err(error), slot) => *slot = Slot::failed(error, failures.saturating_add(1)),
            }
        }
        self.changed.send_replace(());
    }

    /// Stops new requests on this connection. Open requests may finish.
    fn discard(&self, number: u64) {
        self.replace(number, |failures| Slot::Idle { failures });
    }

    /// Handles a connection that ended without a response. The first failure may be a server
    /// restart, so another attempt follows at once. Later attempts are delayed, because every
    /// request would open a connection otherwise.
    fn connection_failed(&self, number: u64, why: &RequestError) {
        self.replace(number, |failures| match failures {
            0 => Slot::Idle { failures: 1 },
            _ => Slot::failed(ConnectError(why.to_string()), failures.saturating_add(1)),
        });
    }

    /// Replaces the slot of this connection. `with` gets the number of earlier failures.
    fn replace(&self, number: u64, with: impl FnOnce(u32) -> Slot) {
        for slot in self.lock().iter_mut() {
            match slot {
                Slot::Ready {
                    failures,
                    connection,
                    ..
                } if connection.number == number => {
                    *slot = with(connection.failures(*failures));
                    return;
                }
                _ => {}
            }
        }
    }

    fn resize(&self, count: usize) {
        self.lock()
            .resize_with(count.clamp(1, MAX_CONNECTIONS), || Slot::NEW);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock()
    }
}

/// Establishes one connection for the pool. Runs in a separate task, so that a cancelled request does not cancel a
/// connection that other requests wait for.
async fn connect(pool: Weak<Shared>, connector: Connector, settings: PoolSettings, at: usize) {
    let tls = connector.tls_config();
    let outcome = timeout(CONNECT, open(&pool, &connector, &settings, at))
        .await
        .unwrap_or_else(|_| Err(ConnectError(format!("no connection within {CONNECT:?}"))));
    if let Some(pool) = pool.upgrade() {
        pool.connected(at, tls, outcome);
    }
}

async fn open(
    pool: &Weak<Shared>,
    connector: &Connector,
    settings: &PoolSettings,
    at: usize,
) -> Result<SendRequest<Chunks>, ConnectError> {
    let mut addresses = connector.resolve().await?;
    if settings.balancing == Balancing::RoundRobin {
        // Sorted, because name servers rotate the order.
        addresses.sort();
        if let Some(pool) = pool.upgrade() {
            pool.resize(settings.connections * addresses.len());
        }
        addresses = vec![addresses[at % addresses.len()]];
    }
    let stream = connector.connect(&addresses).await?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(settings.receive_window)
        .initial_connection_window_size(settings.receive_window)
        .max_send_buf_size(settings.send_buffer);
    if let Some((interval, timeout, while_idle)) = settings.keepalive {
        builder
            .keep_alive_interval(interval)
            .keep_alive_timeout(timeout)
            .keep_alive_while_idle(while_idle);
    }
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| {
            ConnectError(format!("HTTP/2 handshake failed: {}", full_error(&error)))
        })?;
    // The task ends with the last sender. Its errors are returned to the requests.
    tokio::spawn(connection);
    Ok(sender)
}
