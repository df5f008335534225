//! The server behind every listening socket of this program: OTLP over gRPC and HTTP, health, metrics.
//!
//! There is one accept loop per socket (a name may have several addresses) and one task per connection. There is no
//! router: a [`Handler`] gets every request. [`Server::shutdown`] is graceful: it stops accepting, sends GOAWAY or
//! `connection: close`, waits for open requests, and closes the remaining connections at the deadline.

mod admission;
mod answer;
mod buffered;
mod client_limit;
mod connection;
mod ending;
mod failure;
#[doc(hidden)]
pub mod frames;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod guard;
mod handler;
mod limit_report;
mod limits;
mod linger;
mod metrics;
mod not_tls;
mod peer;
mod refusal;
mod request_slots;
mod shared_page;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::gate::Gate;
pub use self::handler::{BUSY_RETRY_AFTER, Handler, SimpleHandler, busy, plain};
use crate::Owner;
use crate::listeners::Sockets;
use crate::sampled_log::SampledLog;
use crate::tls::rotation::RotatingServer;
use crate::tls::{ServerTls, TlsError, TlsSource};
pub use gate::ClientLimit;
pub use limits::Limits;
pub use peer::{DatagramPeers, Peer, cores};
pub use shared_page::SharedPage;
use tributary_config::Section;
use tributary_memory::Budget;

/// Protocols of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2 only, for gRPC. Without TLS, clients need prior knowledge.
    Http2,
    /// Either protocol, detected by the first bytes of a connection.
    Either,
}

/// Returns the source of a server's TLS configuration for its `tls` section, or `None` for plain text. The files are
/// read now, and again when the configuration is reloaded.
///
/// # Errors
/// A file cannot be read or used.
pub fn tls_source(
    section: &Section<ServerTls>,
    protocol: Protocol,
    owner: &Owner,
) -> Result<Option<Arc<dyn TlsSource>>, TlsError> {
    let Some(tls) = &**section else {
        return Ok(None);
    };
    let alpn: &[&[u8]] = match protocol {
        Protocol::Http1 => &[b"http/1.1"],
        Protocol::Http2 => &[b"h2"],
        Protocol::Either => &[b"h2", b"http/1.1"],
    };
    Ok(Some(Arc::new(RotatingServer::new(
        tls,
        alpn,
        owner.clone(),
    )?)))
}

/// Limits and timeouts of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Protocols of the server.
    pub protocol: Protocol,
    /// Source of the TLS configuration; `None` for plain text.
    pub tls: Option<Arc<dyn TlsSource>>,
    /// HTTP/1: whether connections stay open between requests.
    pub keep_alive: bool,
    /// HTTP/1: maximum time for a request head to arrive, if that is less than the limit.
    pub header_timeout: Option<Duration>,
    /// HTTP/2: maximum number of open requests on one connection.
    pub max_concurrent_streams: u32,
    /// HTTP/2: flow control window of one request, in bytes.
    pub stream_window: u32,
    /// HTTP/2: flow control window of all requests of a connection together, in bytes. This memory is not counted in
    /// the memory budget.
    pub connection_window: u32,
    /// HTTP/2: maximum size of unsent responses to one client, in bytes.
    pub max_send_buffer: usize,
    /// HTTP/2: idle time after which a client is pinged.
    pub ping_interval: Option<Duration>,
    /// HTTP/2: timeout of a ping.
    pub ping_timeout: Duration,
    /// Time without requests after which a connection is closed.
    pub max_idle: Option<Duration>,
    /// Age at which a connection is closed, with 10% jitter, so that clients spread over new servers.
    pub max_age: Option<Duration>,
    /// Time for open requests to finish once a connection is closing because of its age or idleness.
    pub grace: Option<Duration>,
    /// Limits on clients.
    pub limits: Limits,
    /// Memory budget. A quarter of its limit bounds the memory of open connections, in addition to the bytes that the
    /// budget counts. An eighth each bounds partly received frames, open requests, and unsent responses. Without a
    /// budget, only `limits` applies.
    pub budget: Option<Arc<Budget>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            protocol: Protocol::Either,
            tls: None,
            keep_alive: true,
            header_timeout: None,
            max_concurrent_streams: 1000,
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            max_send_buffer: 400 << 10,
            ping_interval: Some(Duration::from_secs(2 * 60 * 60)),
            ping_timeout: Duration::from_secs(20),
            max_idle: Some(Duration::from_secs(5 * 60)),
            max_age: None,
            grace: None,
            limits: Limits::default(),
            budget: None,
        }
    }
}

/// A server that was built but does not accept yet.
pub struct BoundServer<H> {
    listeners: Vec<TcpListener>,
    /// Owner of `listeners`. While this server keeps them open, a successor finds the sockets.
    sockets: Arc<Sockets>,
    handler: H,
    options: ServerOptions,
    name: &'static str,
    owner: Owner,
}

impl<H: Handler> BoundServer<H> {
    /// Creates a server on listening sockets (see [`crate::listeners::Listeners::bind`]) for a component. `name` is the
    /// name in log lines: `GRPC`, `HTTP`.
    ///
    /// # Errors
    /// A socket cannot be registered with the runtime, or there is no runtime.
    pub fn new(
        sockets: Arc<Sockets>,
        handler: H,
        options: ServerOptions,
        name: &'static str,
        owner: Owner,
    ) -> io::Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(io::Error::other("a server needs a running tokio runtime"));
        }
        let listeners = sockets.iter().map(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener.try_clone()?)
        });
        Ok(BoundServer {
            listeners: listeners.collect::<io::Result<_>>()?,
            sockets,
            handler,
            options,
            name,
            owner,
        })
    }

    /// Starts to accept connections, and logs the addresses.
    pub fn start(self) -> Server {
        let BoundServer {
            listeners,
            sockets,
            handler,
            options,
            name,
            owner,
        } = self;
        let server = Server {
            address: sockets.local_addr().ok(),
            stop: CancellationToken::new(),
            force: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let (limits, budget) = (options.limits.clone(), options.budget.clone());
        let streams = options.max_concurrent_streams;
        let gate = Gate::new(limits, streams, owner.clone(), budget);
        let shared = Arc::new(connection::Shared::new(handler, options, gate));
        for listener in listeners {
            let address = listener.local_addr().ok();
            info!(
                otelcol.component.id = %owner.id,
                otelcol.component.kind = owner.kind,
                endpoint = address.map(tracing::field::display),
                "Starting {name} server"
            );
            let accepting = accept_loop(listener, sockets.clone(), shared.clone(), server.clone());
            server.tasks.spawn(accepting);
        }
        server
    }
}

/// Serves one handler on one socket, with [`BoundServer::new`] and [`BoundServer::start`].
///
/// # Errors
/// See [`BoundServer::new`].
pub fn serve(
    listener: Arc<std::net::TcpListener>,
    handler: SimpleHandler,
    options: ServerOptions,
    owner: Owner,
) -> io::Result<Server> {
    let sockets = Arc::new(Sockets::from(listener));
    Ok(BoundServer::new(sockets, handler, options, "HTTP", owner)?.start())
}

/// A running server.
#[derive(Clone)]
pub struct Server {
    address: Option<SocketAddr>,
    stop: CancellationToken,
    force: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Returns the first listening address, with the actual port.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops accepting, lets open requests finish until `deadline`, then closes the remaining connections.
    pub async fn shutdown(self, deadline: Instant) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout_at(deadline, self.tasks.wait())
            .await
            .is_err()
        {
            warn!(
                connections = self.tasks.len(),
                "Closing connections with open requests, because the shutdown deadline has passed"
            );
            self.force.cancel();
            self.tasks.wait().await;
        }
    }
}

/// Accepts until the server stops. `_sockets` keeps the sockets open for a successor.
async fn accept_loop<H: Handler>(
    listener: TcpListener,
    _sockets: Arc<Sockets>,
    shared: Arc<connection::Shared<H>>,
    server: Server,
) {
    let owner = &shared.gate.owner;
    let (mut pause, log) = (FIRST_PAUSE, SampledLog::of_one_line());
    loop {
        let accepted = tokio::select! {
            biased;
            () = server.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                pause = FIRST_PAUSE;
                spawn_connection(&server, &shared, stream, address);
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                // Most likely the process is out of file descriptors (EMFILE). The connection stays in the kernel's
                // queue, so an immediate retry would spin.
                if let Some(suppressed) = log.admit() {
                    warn!(
                        otelcol.component.id = %owner.id,
                        otelcol.component.kind = owner.kind,
                        transport = owner.transport,
                        %error,
                        suppressed,
                        "Cannot accept connections; retrying"
                    );
                }
                tokio::select! {
                    () = server.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                }
            }
        }
    }
}

fn spawn_connection<H: Handler>(
    server: &Server,
    shared: &Arc<connection::Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
) {
    let shared = shared.clone();
    // Child tokens have their own lists of waiters, so that connections do not contend on one lock.
    let stop = server.stop.child_token();
    let force = server.force.child_token();
    let admission = shared.gate.admit(address, stop.clone());
    server.tasks.spawn(async move {
        let admission = match admission {
            Ok(admission) => admission,
            Err(limit) => {
                let peer = Peer::new(address, shared.gate.clone());
                peer.report_limit(limit);
                let tls = shared.options.tls.is_some();
                let refusal = refusal::send(&shared.gate, stream, peer, tls);
                tokio::select! {
                    () = refusal => {}
                    () = stop.cancelled() => {}
                }
                return;
            }
        };
        tokio::select! {
            biased;
            () = connection::serve(shared, stream, address, admission, stop) => {}
            () = force.cancelled() => {}
        }
    });
}

/// Whether an error of `accept(2)` concerns only one closed connection.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Pauses after a failed accept. They double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
