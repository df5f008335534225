//! A link between two processes: a TCP proxy that cuts, delays, throttles and drops traffic.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::locked;

/// Faults of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// Connections are reset, including new ones.
    Cut,
    /// No data moves in either direction, without an error. Afterwards the transfer continues.
    Stall,
    /// Current connections stay silent forever. New connections work.
    BlackHole,
    /// Requests pass, responses do not. Afterwards the affected connections are reset.
    Deaf,
    /// Each chunk of at most [`PIECE`] bytes is delayed by this time.
    Delay(Duration),
    /// Each direction of each connection is limited to this many bytes a second.
    Throttle(u64),
    /// All connections are reset repeatedly, at this interval.
    Flap(Duration),
}

/// Maximum bytes moved at a time.
const PIECE: usize = 16 << 10;

/// A fixed address that forwards connections to the current address of the next process.
pub struct Link {
    pub name: String,
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    state: watch::Sender<State>,
    connections: AtomicU64,
    /// Ends of connections, since the beginning of the run.
    ends: Mutex<Vec<Duration>>,
    began: Instant,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    trouble: Option<Trouble>,
    /// Connections accepted before this generation are to be reset.
    reset_before: u64,
    /// Connections up to this number stay silent forever.
    swallowed: u64,
}

impl Link {
    /// Opens a link without a target, at a free port of 127.0.0.1.
    pub async fn open(name: &str, began: Instant) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(None),
            state: watch::Sender::new(State::default()),
            connections: AtomicU64::new(0),
            ends: Mutex::default(),
            began,
        });
        tokio::spawn(accept(listener, shared.clone()));
        Ok(Link {
            name: name.to_owned(),
            address,
            shared,
        })
    }

    /// Sets the target of new connections; without a target they are reset.
    pub fn lead_to(&self, target: Option<SocketAddr>) {
        *locked(&self.shared.target) = target;
    }

    /// Begins a fault.
    pub fn begin(&self, trouble: Trouble) {
        let number = self.shared.connections.load(Relaxed);
        self.shared.state.send_modify(|state| {
            state.trouble = Some(trouble);
            if trouble == Trouble::BlackHole {
                state.swallowed = number;
            }
        });
        if trouble == Trouble::Cut {
            self.reset();
        }
        if let Trouble::Flap(apart) = trouble {
            let shared = self.shared.clone();
            tokio::spawn(async move {
                while shared.state.borrow().trouble == Some(trouble) {
                    shared.reset();
                    tokio::time::sleep(apart).await;
                }
            });
        }
    }

    /// Ends the fault.
    pub fn end(&self) {
        let was = self.shared.state.borrow().trouble;
        self.shared.state.send_modify(|state| state.trouble = None);
        if was == Some(Trouble::Deaf) {
            // Bytes are missing in the middle of the connections.
            self.reset();
        }
    }

    /// Returns the ends of connections, since the beginning of the run.
    pub fn ends(&self) -> Vec<Duration> {
        locked(&self.shared.ends).clone()
    }

    fn reset(&self) {
        self.shared.reset();
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
            // Out of file descriptors, perhaps briefly.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(serve(client, shared.clone()));
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    // The close drops pending data: the other side gets a reset.
    let _ = client.set_zero_linger();
    let target = *locked(&shared.target);
    let (Some(target), false) = (target, is_cut(&shared)) else {
        return;
    };
    let Ok(server) = TcpStream::connect(target).await else {
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
    locked(&shared.ends).push(shared.began.elapsed());
}

fn is_cut(shared: &Shared) -> bool {
    shared.state.borrow().trouble == Some(Trouble::Cut)
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    shared: &Shared,
    number: u64,
    is_request: bool,
) {
    let mut piece = vec![0; PIECE];
    let mut state = shared.state.subscribe();
    loop {
        let read = match from.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        // While the link stalls, chunks wait here.
        if state
            .wait_for(|state| state.trouble != Some(Trouble::Stall))
            .await
            .is_err()
        {
            return;
        }
        let now = *state.borrow();
        if number <= now.swallowed {
            continue;
        }
        match now.trouble {
            Some(Trouble::Deaf) if !is_request => continue,
            Some(Trouble::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Trouble::Throttle(rate)) => {
                tokio::time::sleep(Duration::from_secs_f64(read as f64 / rate as f64)).await;
            }
            _ => {}
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
