//! A link between two processes: a proxy for TCP that cuts, delays, throttles and swallows.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::locked;

/// What is wrong with a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// Connections are reset, and new ones too.
    Cut,
    /// Nothing moves in either direction, and nobody is told. Afterwards everything goes on where it was.
    Stall,
    /// What is connected now is never heard of again, not even afterwards. New connections are fine.
    BlackHole,
    /// Requests get through, answers do not. Afterwards those connections are reset.
    Deaf,
    /// Every piece of at most [`PIECE`] bytes takes that long.
    Delay(Duration),
    /// At most so many bytes a second in each direction of each connection.
    Throttle(u64),
    /// All connections are reset, over and over, this long apart.
    Flap(Duration),
}

/// How much is moved at a time.
const PIECE: usize = 16 << 10;

/// A fixed address from which connections are led to wherever the next process listens now.
pub struct Link {
    pub name: String,
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    state: watch::Sender<State>,
    connections: AtomicU64,
    /// When connections ended, since the beginning of the run.
    ends: Mutex<Vec<Duration>>,
    began: Instant,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    trouble: Option<Trouble>,
    /// Connections that were accepted before this generation began are to be reset.
    reset_before: u64,
    /// Connections up to this number are never heard of again.
    swallowed: u64,
}

impl Link {
    /// A link that leads nowhere yet, at a free port of 127.0.0.1.
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

    /// Where new connections lead; without a target they are reset.
    pub fn lead_to(&self, target: Option<SocketAddr>) {
        *locked(&self.shared.target) = target;
    }

    /// Begins.
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

    /// Ends what has begun.
    pub fn end(&self) {
        let was = self.shared.state.borrow().trouble;
        self.shared.state.send_modify(|state| state.trouble = None);
        if was == Some(Trouble::Deaf) {
            // Bytes are missing in the middle of them.
            self.reset();
        }
    }

    /// When connections ended, since the beginning of the run.
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
            // Out of descriptors, perhaps for a moment.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(serve(client, shared.clone()));
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    // What is left unsaid is not said: the other side gets a reset.
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
    // A half that has ended ends the other one: neither HTTP/2 nor HTTP/1.1 needs half a connection.
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
        // While nothing moves, pieces wait here.
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
    // A peer behind a black hole hears of nothing, not even of the end. Whoever gave up is told nothing either.
    if number <= state.borrow().swallowed && !is_request {
        std::future::pending::<()>().await;
    }
}
