//! One connection: handshake, protocol, and its end by idleness, age or shutdown.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Handler, Options, Owner, Protocol};
use crate::net::tls::accept::{self, AcceptError};
use crate::net::tls::reason::Reason;
use crate::telemetry::HandshakeFailures;

/// What all connections of a server share.
pub(super) struct Shared<H> {
    pub(super) owner: Owner,
    handler: H,
    options: Options,
    /// When the last failure of each kind was logged for people.
    complained: Mutex<HashMap<&'static str, Instant>>,
    /// Counts TLS handshakes that failed; None without TLS.
    handshake_failures: Option<HandshakeFailures>,
}

impl<H> Shared<H> {
    pub(super) fn new(handler: H, options: Options, owner: Owner) -> Self {
        let tls = options.tls.as_ref();
        Shared {
            handshake_failures: tls.map(|_| HandshakeFailures::new(&owner.id, owner.kind)),
            owner,
            handler,
            options,
            complained: Mutex::default(),
        }
    }

    /// Whether it is time to log a failure of this kind. One broken client must not hide what is wrong with others.
    pub(super) fn may_complain(&self, kind: &'static str) -> bool {
        let mut complained = self
            .complained
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let last = complained.get(kind);
        let due = last.is_none_or(|last| last.elapsed() >= COMPLAINTS_EVERY);
        if due {
            complained.insert(kind, Instant::now());
        }
        due
    }

    fn count(&self, reason: Reason) {
        if let Some(failures) = &self.handshake_failures {
            failures.count(reason);
        }
    }
}

/// Why a connection ended other than by agreement.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The two sides do not understand each other: somebody has to change a configuration.
    #[error("{text}")]
    Mismatch {
        /// In one word; one of a few.
        kind: &'static str,
        /// For people.
        text: String,
    },
    /// What happens in networks.
    #[error(transparent)]
    Network(#[from] io::Error),
    /// What happens to HTTP in networks.
    #[error(transparent)]
    Http(Box<dyn std::error::Error + Send + Sync>),
}

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Who it is, from its verified certificate: the first URI of the subject alternative names (a SPIFFE id), else the
    /// first DNS name, else the common name. None without mutual TLS.
    pub identity: Option<Arc<str>>,
    /// The largest piece of a request that this connection brought. Buffers are about that large, and a slice of one
    /// keeps all of it: whoever keeps slices compares.
    pub largest_piece: AtomicUsize,
    opened: Instant,
    requests_under_way: AtomicUsize,
    /// Milliseconds after `opened` at which the last request ended.
    last_request: AtomicU64,
}

impl Failure {
    fn mismatch(kind: &'static str, text: impl Into<String>) -> Self {
        Failure::Mismatch {
            kind,
            text: text.into(),
        }
    }
}

impl Peer {
    fn new(address: SocketAddr, identity: Option<Arc<str>>) -> Self {
        Peer {
            address,
            identity,
            largest_piece: AtomicUsize::new(0),
            opened: Instant::now(),
            requests_under_way: AtomicUsize::new(0),
            last_request: AtomicU64::new(0),
        }
    }

    /// Since when there was no request; now while there is one.
    fn idle_since(&self) -> Instant {
        if self.requests_under_way.load(Relaxed) > 0 {
            return Instant::now();
        }
        self.opened + Duration::from_millis(self.last_request.load(Relaxed))
    }
}

/// Counts a request as under way until it is answered or given up.
struct UnderWay(Arc<Peer>);

impl UnderWay {
    fn new(peer: &Arc<Peer>) -> Self {
        peer.requests_under_way.fetch_add(1, Relaxed);
        UnderWay(peer.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let age = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_request.store(age, Relaxed);
        self.0.requests_under_way.fetch_sub(1, Relaxed);
    }
}

/// Serves a connection to its end.
pub(super) async fn serve<H: Handler>(
    shared: Arc<Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
    stop: CancellationToken,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    // A client that connects and says nothing at all costs no more than its socket, and not for long.
    let mut first = [0; 4];
    let read = tokio::select! {
        biased;
        read = timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)) => read.map_err(|_| timed_out())??,
        () = stop.cancelled() => return Ok(()),
    };
    let first = first.get(..read).unwrap_or_default();
    if first.is_empty() {
        // A probe that connects and leaves.
        return Ok(());
    }
    let protocol = shared.options.protocol;
    if let Some(mistake) = Mistake::of(first, protocol, shared.options.tls.is_some()) {
        if mistake.is_about_tls() {
            shared.count(Reason::Plaintext);
        }
        return mistake.answer(stream).await;
    }
    let Some(tls) = &shared.options.tls else {
        return speak(
            &shared,
            TokioIo::new(stream),
            Peer::new(address, None),
            stop,
        )
        .await;
    };
    let stream = tokio::select! {
        biased;
        done = timeout(HANDSHAKE_TIMEOUT, accept::accept(tls.config(), stream)) => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(AcceptError::Network(error))) => {
                shared.count(Reason::Closed);
                return Err(error.into());
            }
            Ok(Err(AcceptError::Refused(refused))) => {
                shared.count(refused.reason);
                return Err(Failure::mismatch(refused.reason.name(), refused.to_string()));
            }
            Err(_) => {
                shared.count(Reason::Timeout);
                return Err(timed_out().into());
            }
        },
        () = stop.cancelled() => return Ok(()),
    };
    let peer = Peer::new(address, accept::identity(&stream));
    speak(&shared, TokioIo::new(stream), peer, stop).await
}

/// What a client speaks that this port does not. These are common mistakes in configurations, and neither side's
/// library gives a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// TLS to a plaintext port.
    Tls,
    /// HTTP/1 to a port for gRPC.
    Http1,
    /// HTTP/1 in plaintext to a TLS port.
    PlainHttp1,
    /// HTTP/2 in plaintext to a TLS port.
    PlainHttp2,
    /// Neither TLS nor HTTP, to a TLS port.
    Noise,
}

impl Mistake {
    /// What the first bytes of a connection show, if they all came at once.
    fn of(first: &[u8], protocol: Protocol, tls: bool) -> Option<Self> {
        let is_http1 = matches!(
            first,
            b"GET " | b"POST" | b"HEAD" | b"OPTI" | b"PUT " | b"DELE" | b"PATC"
        );
        match first {
            // A TLS record of type "handshake" (RFC 8446, 5.1).
            [0x16, ..] if tls => None,
            [0x16, 0x03, ..] => Some(Mistake::Tls),
            _ if tls && is_http1 => Some(Mistake::PlainHttp1),
            b"PRI " if tls => Some(Mistake::PlainHttp2),
            _ if tls => Some(Mistake::Noise),
            _ if is_http1 && protocol == Protocol::Http2 => Some(Mistake::Http1),
            _ => None,
        }
    }

    fn is_about_tls(self) -> bool {
        matches!(
            self,
            Mistake::PlainHttp1 | Mistake::PlainHttp2 | Mistake::Noise
        )
    }

    /// Tells the client in the words of its own protocol, as far as there are any, and closes.
    async fn answer(self, mut stream: TcpStream) -> Result<(), Failure> {
        let (answer, kind, text): (&[u8], _, _) = match self {
            Mistake::Tls => (
                b"",
                "tls_to_plaintext",
                "the client speaks TLS, and this port does not: set tls::insecure to true at the client, or tls here",
            ),
            Mistake::Http1 => (
                NOT_HTTP1,
                "http1_to_grpc",
                "the client speaks HTTP/1, and this port only gRPC",
            ),
            Mistake::PlainHttp1 => (
                NOT_PLAIN_HTTP1,
                Reason::Plaintext.name(),
                "the client speaks plaintext HTTP, and this port TLS: let the client's URL begin with https://",
            ),
            Mistake::PlainHttp2 => (
                NOT_PLAIN_HTTP2,
                Reason::Plaintext.name(),
                "the client speaks plaintext HTTP/2, and this port TLS: remove tls::insecure at the client",
            ),
            Mistake::Noise => (
                NOT_TLS,
                Reason::Plaintext.name(),
                "the client speaks neither TLS, as this port does, nor HTTP",
            ),
        };
        stream.write_all(answer).await?;
        accept::end(stream).await;
        Err(Failure::mismatch(kind, text))
    }
}

async fn speak<H, I>(
    shared: &Arc<Shared<H>>,
    io: I,
    peer: Peer,
    stop: CancellationToken,
) -> Result<(), Failure>
where
    H: Handler,
    I: Read + Write + Unpin + Send + 'static,
{
    let options = &shared.options;
    let peer = Arc::new(peer);
    let service = {
        let (shared, peer) = (shared.clone(), peer.clone());
        service_fn(move |request| {
            let shared = shared.clone();
            let under_way = UnderWay::new(&peer);
            async move {
                let response = shared.handler.handle(request, &under_way.0).await;
                Ok::<_, Infallible>(response)
            }
        })
    };
    // Every HTTP/2 request is a task of its own. Polling requests in the connection's task first was measured: a tenth
    // cheaper at best, dearer where bodies come later than heads, and one connection would keep to one core.
    match options.protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .keep_alive(options.keep_alive)
                .header_read_timeout(options.header_timeout);
            drive(builder.serve_connection(io, service), &peer, options, stop).await
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .auto_date_header(false)
                .max_concurrent_streams(options.max_concurrent_streams)
                .initial_stream_window_size(options.stream_window)
                .initial_connection_window_size(options.connection_window)
                .max_frame_size(MAX_FRAME_SIZE)
                .max_send_buf_size(options.max_send_buffer)
                .max_header_list_size(MAX_HEADER_LIST_SIZE)
                .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
                .max_local_error_reset_streams(MAX_ERROR_STREAMS)
                .keep_alive_interval(options.ping_interval)
                .keep_alive_timeout(options.ping_timeout);
            drive(builder.serve_connection(io, service), &peer, options, stop).await
        }
        Protocol::Either => {
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder
                .http1()
                .timer(TokioTimer::new())
                .keep_alive(options.keep_alive)
                .header_read_timeout(options.header_timeout);
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_concurrent_streams(options.max_concurrent_streams)
                .initial_stream_window_size(options.stream_window)
                .initial_connection_window_size(options.connection_window)
                .max_frame_size(MAX_FRAME_SIZE)
                .max_send_buf_size(options.max_send_buffer)
                .max_header_list_size(MAX_HEADER_LIST_SIZE)
                .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
                .max_local_error_reset_streams(MAX_ERROR_STREAMS)
                .keep_alive_interval(options.ping_interval)
                .keep_alive_timeout(options.ping_timeout);
            drive(builder.serve_connection(io, service), &peer, options, stop).await
        }
    }
}

/// Runs the connection, and begins its end when the time has come.
async fn drive<C>(
    connection: C,
    peer: &Peer,
    options: &Options,
    stop: CancellationToken,
) -> Result<(), Failure>
where
    C: GracefulConnection<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let failed = |error: C::Error| Failure::Http(error.into());
    let mut connection = pin!(connection);
    let mut due = pin!(ends(peer, options, stop));
    let reason = tokio::select! {
        biased;
        ended = connection.as_mut() => return ended.map_err(failed),
        reason = due.as_mut() => reason,
    };
    connection.as_mut().graceful_shutdown();
    // On shutdown the server's deadline counts, otherwise the connection's own. An idle client that is gone would
    // never confirm the end, so there the default is not to wait for ever.
    let grace = match reason {
        End::Shutdown => None,
        End::Age => options.grace,
        End::Idle => Some(options.grace.unwrap_or(IDLE_GRACE)),
    };
    let Some(grace) = grace else {
        return connection.await.map_err(failed);
    };
    let ended = timeout(grace, connection).await;
    ended.unwrap_or(Ok(())).map_err(failed)
}

/// Why a connection ends although the client did not close it.
enum End {
    Shutdown,
    Age,
    Idle,
}

/// Completes when the connection should begin to end.
async fn ends(peer: &Peer, options: &Options, stop: CancellationToken) -> End {
    // A tenth more or less, so that connections that began together do not end together.
    let jitter = 0.9 + 0.2 * fastrand::f64();
    let mut age = pin!(maybe(
        options.max_age.map(|age| peer.opened + age.mul_f64(jitter))
    ));
    let mut idle = pin!(idle(peer, options.max_idle));
    tokio::select! {
        () = stop.cancelled() => End::Shutdown,
        () = age.as_mut() => End::Age,
        () = idle.as_mut() => End::Idle,
    }
}

async fn idle(peer: &Peer, limit: Option<Duration>) {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    loop {
        let due = peer.idle_since() + limit;
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

/// Waits until `when`, or for ever.
fn maybe(when: Option<Instant>) -> impl Future<Output = ()> {
    let sleep: Option<Pin<Box<Sleep>>> = when.map(|when| Box::pin(sleep_until(when)));
    async move {
        match sleep {
            Some(sleep) => sleep.await,
            None => std::future::pending().await,
        }
    }
}

fn timed_out() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the client did not complete the handshake in time",
    )
}

const NOT_HTTP1: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 71\r\n\r\nthis port speaks OTLP/gRPC (HTTP/2); OTLP/HTTP is usually on port 4318\n";
const NOT_PLAIN_HTTP1: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 36\r\n\r\nthis port speaks TLS; use https://\r\n";
/// An empty SETTINGS frame, as a server must begin (RFC 9113, 3.4), and a GOAWAY: INADEQUATE_SECURITY, with the reason
/// in words (6.8, 7).
const NOT_PLAIN_HTTP2: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
    \0\0\x1c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0cthis port speaks TLS";
/// A fatal alert, unexpected_message (RFC 8446, 6).
const NOT_TLS: &[u8] = &[0x15, 0x03, 0x01, 0, 2, 2, 10];
/// The largest DATA frame a client may send. A request that comes in one frame is not copied.
const MAX_FRAME_SIZE: u32 = 1 << 20;
/// Bytes of request headers, as HPACK counts them.
const MAX_HEADER_LIST_SIZE: u32 = 16 << 10;
/// Streams that a client opened and reset before they were looked at (CVE-2023-44487, "rapid reset").
const MAX_RESET_STREAMS: usize = 200;
/// Streams that this side had to reset because of the client's errors (CVE-2025-8671, "made you reset").
const MAX_ERROR_STREAMS: usize = 1024;
/// The longest wait for a first byte, and for a TLS handshake (grpc-go: 120 s for both).
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(120);
/// The least time between two failures in the log.
const COMPLAINTS_EVERY: Duration = Duration::from_secs(10);
/// How long an idle connection may take to close.
const IDLE_GRACE: Duration = Duration::from_secs(20);
