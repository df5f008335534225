//! An HTTP server for a test.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server of HTTP/1.1. The drop closes all its connections.
pub struct Site {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

/// A response; `None` closes the connection without a response.
pub type Answered = Option<Response<Full<Bytes>>>;

impl Site {
    /// Starts a server that responds to every request with `answer`.
    pub async fn start<A, F>(answer: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Answered> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answered = answer(request);
                    async move {
                        let closed = || io::Error::from(io::ErrorKind::ConnectionReset);
                        answered.await.ok_or_else(closed)
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let connection = http.serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Site { address, task }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response with this body.
pub fn page(status: StatusCode, body: impl Into<Bytes>) -> Answered {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    Some(response)
}
