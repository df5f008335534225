//! One connection: TLS handshake, protocol detection, HTTP.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Version;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::admission::Admission;
use super::answer::answer;
use super::client_limit::ClientLimit;
use super::ending::{Distrust, drive};
pub(super) use super::failure::Failure;
use super::gate::Gate;
use super::guard::{DetectedProtocol, Guard};
use super::linger::Lingering;
use super::metrics::HandshakeFailures;
use super::not_tls::NotTls;
use super::peer::{OpenRequest, Peer};
use super::{Handler, Protocol, ServerOptions, refusal};
use crate::sampled_log::SampledLog;
use crate::tls::accept::AcceptError;
use crate::tls::reason::Reason;
use crate::tls::{TlsSource, accept};

/// State that all connections of a server share.
pub(super) struct Shared<H> {
    pub(super) gate: Arc<Gate>,
    handler: H,
    pub(super) options: ServerOptions,
    /// Rate limiters by kind of failure, so that one broken client does not hide other failures.
    logs: Mutex<HashMap<&'static str, SampledLog>>,
    /// Counters of failed TLS handshakes; `None` without TLS.
    handshake_failures: Option<HandshakeFailures>,
}

impl<H> Shared<H> {
    pub(super) fn new(handler: H, options: ServerOptions, gate: Arc<Gate>) -> Self {
        let owner = &gate.owner;
        let tls = options.tls.as_ref();
        Shared {
            handshake_failures: tls.map(|_| HandshakeFailures::new(owner)),
            gate,
            handler,
            options,
            logs: Mutex::default(),
        }
    }

    /// Whether a failure of this kind is to be logged. See [`SampledLog::admit`].
    fn admits(&self, kind: &'static str) -> Option<u64> {
        let mut logs = self.logs.lock();
        let log = logs.entry(kind).or_insert_with(SampledLog::of_one_line);
        log.admit()
    }

    /// Logs the reason why a connection failed. No response can explain the failure to a client with the wrong
    /// certificate or protocol.
    fn report(&self, peer: SocketAddr, identity: Option<&str>, error: &Failure) {
        let mismatch = match error {
            Failure::Mismatch { kind, .. } => {
                self.admits(kind).map(|suppressed| (kind, suppressed))
            }
            _ => None,
        };
        let Some((reason, suppressed)) = mismatch else {
            debug!(client.address = %peer, client.identity = identity, %error, "Connection ended");
            return;
        };
        let owner = &self.gate.owner;
        warn!(
            otelcol.component.id = %owner.id,
            otelcol.component.kind = owner.kind,
            transport = owner.transport,
            client.address = %peer,
            client.identity = identity,
            reason,
            %error,
            suppressed,
            "Cannot serve a client; for the next ten seconds, refusals with this reason are logged at debug level"
        );
    }

    fn count(&self, reason: Reason) {
        if let Some(failures) = &self.handshake_failures {
            failures.count(reason);
        }
    }

    /// Returns the deadline of a handshake that begins now, or `None` for no limit.
    fn handshake_deadline(&self) -> Option<Instant> {
        let limit = self.gate.limits.handshake_timeout.unless_zero()?;
        Some(Instant::now() + limit)
    }
}

/// Serves a connection to its end, and reports a failure.
pub(super) async fn serve<H: Handler>(
    shared: Arc<Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
    admission: Admission,
    stop: CancellationToken,
) {
    // Responses are written in several small chunks. With Nagle's algorithm, a chunk would wait 40 ms for the client's
    // delayed acknowledgement. If the option cannot be set, the socket is broken, and the next read reports it.
    let _ = stream.set_nodelay(true);
    let mut identity = None;
    let mut peer = Peer::new(address, shared.gate.clone());
    peer.network = admission.network();
    peer.state = admission.state.clone();
    let ended = match &shared.options.tls {
        None => serve_protocol(&shared, stream, peer, None, stop).await,
        Some(tls) => {
            let accepting = Accepting {
                tls: tls.as_ref(),
                admission: &admission,
                identity: &mut identity,
            };
            serve_tls(&shared, accepting, stream, peer, stop).await
        }
    };
    if let Err(error) = ended {
        shared.report(address, identity.as_deref(), &error);
    }
}

/// Inputs of a TLS handshake.
struct Accepting<'a> {
    tls: &'a dyn TlsSource,
    admission: &'a Admission,
    identity: &'a mut Option<Arc<str>>,
}

async fn serve_tls<H: Handler>(
    shared: &Arc<Shared<H>>,
    accepting: Accepting<'_>,
    stream: TcpStream,
    mut peer: Peer,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let Accepting {
        tls,
        admission,
        identity,
    } = accepting;
    let by = shared.handshake_deadline();
    // A client that sends nothing has only a socket, for a short time.
    let mut first = [0; 4];
    let read = tokio::select! {
        biased;
        read = within(by, &peer, stream.peek(&mut first)) => read?,
        () = stop.cancelled() => return Ok(()),
    };
    let first = first.get(..read).unwrap_or_default();
    if first.is_empty() {
        // A port probe that connects and closes.
        return Ok(());
    }
    if let Some(not_tls) = NotTls::of(first) {
        shared.count(Reason::Plaintext);
        return not_tls.answer(stream).await;
    }
    let Some(handshake) = admission.handshake() else {
        peer.report_limit(ClientLimit::MaxHandshakes);
        refusal::send(&shared.gate, stream, peer, true).await;
        return Err(Failure::Limited(ClientLimit::MaxHandshakes));
    };
    let trust = tls.trust();
    let accepted = async { Ok(accept::accept(tls.config(), stream).await) };
    let accepted = tokio::select! {
        biased;
        done = within(by, &peer, accepted) => done.inspect_err(|_| shared.count(Reason::Timeout))?,
        () = stop.cancelled() => return Ok(()),
    };
    drop(handshake);
    let stream = accepted.map_err(|error| match error {
        AcceptError::Network(error) => {
            shared.count(Reason::Closed);
            error.into()
        }
        AcceptError::TlsRefusal(refused) => {
            shared.count(refused.reason);
            Failure::mismatch(refused.reason.name(), refused.to_string())
        }
    })?;
    let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
    if let Some(certificate) = chain.as_ref().and_then(|chain| chain.first()) {
        peer.identity = tls.identity(certificate);
        identity.clone_from(&peer.identity);
        peer.mark_authenticated();
    }
    let address = peer.address;
    let distrust = trust.zip(chain);
    let distrust =
        distrust.map(|(trust, chain)| -> Distrust { Box::pin(trust.lost(address, chain)) });
    serve_protocol(shared, stream, peer, distrust, stop).await
}

/// Returns the outcome of `future`, or an error at the deadline.
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
            peer.report_limit(ClientLimit::HandshakeTimeout);
            Err(Failure::Limited(ClientLimit::HandshakeTimeout))
        }
    }
}

async fn serve_protocol<H, S>(
    shared: &Arc<Shared<H>>,
    stream: S,
    peer: Peer,
    distrust: Option<Distrust>,
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
        (DetectedProtocol::Nothing, _) => return Ok(()),
        (DetectedProtocol::Tls, _) => {
            // Sends no message, since the client could not parse it, and no reset, which would look like a network
            // failure.
            guard.close_with("").await;
            let not_tls = "the client speaks TLS, but this port does not: set tls::insecure to true at the client, \
                           or configure tls here";
            return Err(Failure::mismatch("tls_to_plaintext", not_tls));
        }
        (DetectedProtocol::Http1, Protocol::Http2) => {
            guard.close_with(refusal::NOT_HTTP1).await;
            let not_tls = "the client speaks HTTP/1, but this port supports only gRPC";
            return Err(Failure::mismatch("http1_to_grpc", not_tls));
        }
        _ => {}
    }
    let service = {
        let (shared, peer) = (shared.clone(), peer.clone());
        service_fn(move |request| {
            let shared = shared.clone();
            let mut under_way = OpenRequest::new(&peer);
            let admitted = under_way.admitted.take();
            if admitted.is_none() && request.version() < Version::HTTP_2 {
                peer.answered_early();
            }
            async move {
                let response = answer(&shared.handler, request, &under_way.peer, admitted).await;
                Ok::<_, Infallible>(response)
            }
        })
    };
    // Every HTTP/2 request runs in a separate task. Polling requests in the connection's task first was measured: at
    // best a tenth cheaper, but slower when bodies arrive after heads, and it would confine a connection to one core.
    let io = Lingering::new(TokioIo::new(guard), peer.clone());
    let ended = match (version, options.protocol) {
        (DetectedProtocol::Http2, Protocol::Http2 | Protocol::Either) => {
            let connection = http2_builder(options).serve_connection(io, service);
            drive(connection, &peer, options, distrust, stop).await
        }
        _ => {
            let connection = http1_builder(options).serve_connection(io, service);
            drive(connection, &peer, options, distrust, stop).await
        }
    };
    if let Err(Failure::Http(error)) = &ended
        && let Some(error) = error.downcast_ref::<hyper::Error>()
        && error.is_parse_too_large()
    {
        peer.report_limit(ClientLimit::MaxHeaderSize);
    }
    ended
}

fn http1_builder(options: &ServerOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The guard times request heads, because hyper would count from the end of the previous request.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(options.limits.max_header_size.as_usize())
        .keep_alive(options.keep_alive);
    builder
}

fn http2_builder(options: &ServerOptions) -> http2::Builder<TokioExecutor> {
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
        // h2 counts refusals, and the data in flight at that time, over the whole life of a connection. It would
        // disconnect a client that retries in an overload as an attacker. The guard limits the rate of real errors.
        .max_local_error_reset_streams(None)
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout);
    builder
}

/// Maximum size in bytes of a DATA frame. A request that arrives in one frame is not copied.
const MAX_FRAME_SIZE: u32 = 1 << 20;
/// Maximum number of streams that a client opens and resets before they are processed (CVE-2023-44487, "rapid reset").
const MAX_RESET_STREAMS: usize = 200;
