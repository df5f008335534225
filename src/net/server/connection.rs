//! One connection: TLS handshake, first bytes, protocol.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ending::drive;
use super::farewell;
use super::gate::{Admission, Gate, Limit, due};
use super::guard::{Guard, Version};
use super::linger::Lingering;
use super::peer::{Peer, UnderWay};
use super::{Handler, Options, Protocol};

/// What all connections of a server share.
pub(super) struct Shared<H> {
    pub(super) gate: Arc<Gate>,
    handler: H,
    pub(super) options: Options,
    /// When the last failure was logged for people.
    complained: Mutex<Option<Instant>>,
}

impl<H> Shared<H> {
    pub(super) fn new(handler: H, options: Options, gate: Arc<Gate>) -> Self {
        Shared {
            gate,
            handler,
            options,
            complained: Mutex::new(None),
        }
    }

    /// Whether it is time to log a failure.
    pub(super) fn may_complain(&self) -> bool {
        due(&self.complained)
    }
}

/// Why a connection ended other than by agreement.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The two sides do not understand each other: somebody has to change a configuration.
    #[error("{0}")]
    Mismatch(String),
    /// The client went over a limit, which was counted and logged.
    #[error("over the limit `{}`", .0.key())]
    Limited(Limit),
    /// What happens in networks.
    #[error(transparent)]
    Network(#[from] io::Error),
    /// What happens to HTTP in networks.
    #[error(transparent)]
    Http(Box<dyn std::error::Error + Send + Sync>),
}

/// Serves a connection to its end.
pub(super) async fn serve<H: Handler>(
    shared: Arc<Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
    admission: Admission,
    stop: CancellationToken,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let peer = Peer::new(address, shared.gate.clone());
    let Some(tls) = &shared.options.tls else {
        return speak(&shared, stream, peer, stop).await;
    };
    let by = shared.handshake_deadline();
    // A client that connects and says nothing at all costs no more than its socket, and not for long.
    let silence = async {
        tokio::select! {
            biased;
            ready = within(by, &peer, stream.readable()) => ready.map(|()| false),
            () = stop.cancelled() => Ok(true),
        }
    };
    if silence.await? {
        return Ok(());
    }
    let Some(handshake) = admission.handshake() else {
        peer.limited(Limit::MaxHandshakes);
        farewell::say(&shared.gate, stream, peer, true).await;
        return Err(Failure::Limited(Limit::MaxHandshakes));
    };
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.config());
    let accepted = async {
        let stream = acceptor.accept(stream).await;
        Ok(stream.map_err(|error| Failure::Mismatch(format!("TLS handshake: {error}"))))
    };
    let stream = tokio::select! {
        biased;
        done = within(by, &peer, accepted) => done??,
        () = stop.cancelled() => return Ok(()),
    };
    drop(handshake);
    speak(&shared, stream, peer, stop).await
}

impl<H> Shared<H> {
    /// When a handshake that begins now must be complete; None for no limit.
    fn handshake_deadline(&self) -> Option<Instant> {
        let limit = *self.gate.limits.handshake_timeout;
        (!limit.is_zero()).then(|| Instant::now() + limit)
    }
}

/// The outcome, if it comes before the handshake timeout is over.
async fn within<T>(
    deadline: Option<Instant>,
    peer: &Peer,
    outcome: impl Future<Output = io::Result<T>>,
) -> Result<T, Failure> {
    let Some(deadline) = deadline else {
        return Ok(outcome.await?);
    };
    match timeout_at(deadline, outcome).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => {
            peer.limited(Limit::HandshakeTimeout);
            Err(Failure::Limited(Limit::HandshakeTimeout))
        }
    }
}

/// Finds out what the client speaks, and speaks it.
async fn speak<H, S>(
    shared: &Arc<Shared<H>>,
    stream: S,
    peer: Peer,
    stop: CancellationToken,
) -> Result<(), Failure>
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (options, peer) = (&shared.options, Arc::new(peer));
    let mut guard = Guard::new(stream, peer.clone(), options.header_timeout);
    let version = tokio::select! {
        biased;
        version = within(shared.handshake_deadline(), &peer, guard.greet()) => version?,
        () = stop.cancelled() => return Ok(()),
    };
    match (version, options.protocol) {
        (Version::Nothing, _) => return Ok(()),
        (Version::Tls, _) => {
            let mistake = "the client speaks TLS, and this port does not";
            return Err(Failure::Mismatch(mistake.to_owned()));
        }
        (Version::Http1, Protocol::Http2) => {
            guard.part(farewell::NOT_HTTP1).await;
            let mistake = "the client speaks HTTP/1, and this port only gRPC";
            return Err(Failure::Mismatch(mistake.to_owned()));
        }
        _ => {}
    }
    let service = {
        let (shared, peer) = (shared.clone(), peer.clone());
        service_fn(move |request| {
            let shared = shared.clone();
            let under_way = UnderWay::new(&peer);
            async move {
                let response = if under_way.admitted {
                    shared.handler.handle(request, &under_way.peer).await
                } else {
                    shared.handler.busy(&request)
                };
                Ok::<_, Infallible>(response)
            }
        })
    };
    // Every HTTP/2 request is a task of its own. Polling requests in the connection's task first was measured: a tenth
    // cheaper at best, dearer where bodies come later than heads, and one connection would keep to one core.
    let io = Lingering::new(TokioIo::new(guard), peer.clone());
    let ended = match (version, options.protocol) {
        (Version::Http2, Protocol::Http2 | Protocol::Either) => {
            let connection = http2_builder(options).serve_connection(io, service);
            drive(connection, &peer, options, stop).await
        }
        _ => {
            let connection = http1_builder(options).serve_connection(io, service);
            drive(connection, &peer, options, stop).await
        }
    };
    if let Err(Failure::Http(error)) = &ended
        && let Some(error) = error.downcast_ref::<hyper::Error>()
        && error.is_parse_too_large()
    {
        peer.limited(Limit::MaxHeaderSize);
    }
    ended
}

fn http1_builder(options: &Options) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The guard times request heads: hyper would count from the end of the request before.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(options.limits.max_header_size.as_usize())
        .keep_alive(options.keep_alive);
    builder
}

fn http2_builder(options: &Options) -> http2::Builder<TokioExecutor> {
    let size = options.limits.max_header_size.0;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(options.max_concurrent_streams)
        .initial_stream_window_size(options.stream_window)
        .initial_connection_window_size(options.connection_window)
        .max_frame_size(MAX_FRAME_SIZE)
        .max_send_buf_size(options.max_send_buffer)
        .max_header_list_size(u32::try_from(size).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_ERROR_STREAMS)
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout);
    builder
}

/// The largest DATA frame a client may send. A request that comes in one frame is not copied.
const MAX_FRAME_SIZE: u32 = 1 << 20;
/// Streams that a client opened and reset before they were looked at (CVE-2023-44487, "rapid reset").
const MAX_RESET_STREAMS: usize = 200;
/// Streams that this side had to reset because of the client's errors (CVE-2025-8671, "made you reset").
const MAX_ERROR_STREAMS: usize = 1024;
