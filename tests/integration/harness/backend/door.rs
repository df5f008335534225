//! A listening socket that can be closed and reopened without losing its port to another process.

use std::net::SocketAddr;
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Serves one connection. Cancelling the token closes it.
pub type Serve =
    Box<dyn Fn(TokioIo<TcpStream>, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>;

/// An address at which connections are served, or refused.
pub struct ReopenableListener {
    pub address: SocketAddr,
    /// Bound, but never listening. It reserves the port while nothing listens, and the kernel refuses connections.
    _reservation: TcpSocket,
    serve: std::sync::Arc<Serve>,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl ReopenableListener {
    /// Opens a door at a free port.
    pub async fn open(serve: Serve) -> Self {
        let reservation = bind("127.0.0.1:0".parse().unwrap());
        let door = ReopenableListener {
            address: reservation.local_addr().unwrap(),
            _reservation: reservation,
            serve: std::sync::Arc::new(serve),
            listening: Mutex::new(None),
        };
        door.listen();
        door
    }

    /// Listens.
    pub fn listen(&self) {
        let listening = Listening {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let listener = bind(self.address).listen(1024).unwrap();
        let stop = listening.stop.clone();
        let tasks = listening.tasks.clone();
        let serve = self.serve.clone();
        listening.tasks.spawn(async move {
            stop.run_until_cancelled(accept(listener, &serve, &tasks, &stop))
                .await;
        });
        *self.listening.lock().unwrap() = Some(listening);
    }

    /// Stops listening and closes all connections.
    pub async fn close(&self) {
        let listening = self.listening.lock().unwrap().take();
        if let Some(Listening { stop, tasks }) = listening {
            stop.cancel();
            tasks.close();
            tasks.wait().await;
        }
    }
}

async fn accept(
    listener: TcpListener,
    serve: &Serve,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let close = stop.child_token();
        let connection = serve(TokioIo::new(stream), close.clone());
        tasks.spawn(async move {
            close.run_until_cancelled(connection).await;
        });
    }
}

fn bind(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}
