//! A link between two processes: a TCP proxy that resets and swallows connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Faults of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkFault {
    /// Current connections stay silent forever. New connections work.
    BlackHole,
    /// All connections are reset repeatedly, at this interval.
    Flap(Duration),
}

/// Maximum bytes moved at a time.
const PIECE: usize = 16 << 10;

/// A fixed address that forwards connections to another address.
pub struct Link {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    target: SocketAddr,
    state: watch::Sender<State>,
    connections: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    trouble: Option<LinkFault>,
    reset_before: u64,
    /// Connections up to this number stay silent forever.
    swallowed: u64,
}

impl Link {
    /// Opens a link to `target`, at a free port of 127.0.0.1.
    pub async fn open(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            state: watch::Sender::new(State::default()),
            connections: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Link {
            address,
            shared,
            task,
        })
    }

    /// Begins a fault.
    pub fn begin(&self, trouble: LinkFault) {
        let number = self.shared.connections.load(Relaxed);
        self.shared.state.send_modify(|state| {
            state.trouble = Some(trouble);
            if trouble == LinkFault::BlackHole {
                state.swallowed = number;
            }
        });
        if let LinkFault::Flap(apart) = trouble {
            let shared = self.shared.clone();
            tokio::spawn(async move {
                while shared.state.borrow().trouble == Some(trouble) {
                    shared.reset();
                    tokio::time::sleep(apart).await;
                }
            });
        }
    }

    /// Ends the fault. Swallowed bytes stay lost.
    pub fn end(&self) {
        self.shared.state.send_modify(|state| state.trouble = None);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
        self.task.abort();
    }
}

impl Shared {
    fn reset(&self) {
        let number = self.connections.load(Relaxed);
        self.state.send_modify(|state| state.reset_before = number);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // The process may briefly be out of file descriptors.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(serve(client, shared.clone()));
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    // The close drops pending data, so the other side gets a reset.
    let _ = client.set_zero_linger();
    let Ok(server) = TcpStream::connect(shared.target).await else {
        return;
    };
    let _ = server.set_nodelay(true);
    let number = shared.connections.fetch_add(1, Relaxed) + 1;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut state = shared.state.subscribe();
    let resets = async {
        let _ = state.wait_for(|state| number <= state.reset_before).await;
    };
    // The end of one direction ends the other: neither HTTP/2 nor HTTP/1.1 needs half-open
    // connections.
    tokio::select! {
        () = pump(from_client, to_server, &shared, number, true) => {}
        () = pump(from_server, to_client, &shared, number, false) => {}
        () = resets => {}
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    shared: &Shared,
    number: u64,
    is_request: bool,
) {
    let mut piece = vec![0; PIECE];
    let state = shared.state.subscribe();
    loop {
        let read = match from.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        if number <= state.borrow().swallowed {
            continue;
        }
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
    // A peer behind a black hole receives nothing, not even the end of the connection.
    if number <= state.borrow().swallowed && !is_request {
        std::future::pending::<()>().await;
    }
}
