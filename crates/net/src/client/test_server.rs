//! A scripted server for the tests of exporters: HTTP/1.1 or HTTP/2 on a loopback port.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub type Answer = Response<BoxBody<Bytes, Infallible>>;
type Handler = dyn Fn(&Request<Bytes>) -> Option<Answer> + Send + Sync;

/// A running server, which stops on drop.
pub struct TestServer {
    pub address: SocketAddr,
    /// All requests, with complete bodies.
    pub requests: Arc<Mutex<Vec<Request<Bytes>>>>,
    /// Number of accepted connections.
    pub connections: Arc<AtomicUsize>,
    /// Ends the open connections, with GOAWAY or abruptly.
    goaway: Arc<Mutex<CancellationToken>>,
    ended: CancellationToken,
}

impl TestServer {
    /// Starts a server. The function returns the response to a request, or `None` to close the connection.
    pub async fn start(
        tls: Option<rustls::ServerConfig>,
        handler: impl Fn(&Request<Bytes>) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = TestServer {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
            goaway: Arc::default(),
            ended: CancellationToken::new(),
        };
        let handler: Arc<Handler> = Arc::new(handler);
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let (requests, connections) = (server.requests.clone(), server.connections.clone());
        let (goaway, ended) = (server.goaway.clone(), server.ended.clone());
        let accept = async move {
            while let Ok((tcp, _)) = listener.accept().await {
                connections.fetch_add(1, SeqCst);
                let goaway = goaway.lock().unwrap().clone();
                let (handler, requests) = (handler.clone(), requests.clone());
                match acceptor.clone() {
                    None => drop(tokio::spawn(serve(tcp, handler, requests, goaway))),
                    Some(acceptor) => drop(tokio::spawn(async move {
                        if let Ok(stream) = acceptor.accept(tcp).await {
                            serve(stream, handler, requests, goaway).await;
                        }
                    })),
                }
            }
        };
        tokio::spawn(async move { ended.run_until_cancelled(accept).await });
        server
    }

    /// Sends GOAWAY on all open connections.
    pub fn goaway(&self) {
        std::mem::take(&mut *self.goaway.lock().unwrap()).cancel();
    }

    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    handler: Arc<Handler>,
    requests: Arc<Mutex<Vec<Request<Bytes>>>>,
    goaway: CancellationToken,
) {
    let cut = CancellationToken::new();
    let service = service_fn({
        let cut = cut.clone();
        move |request: Request<Incoming>| {
            let (handler, requests, cut) = (handler.clone(), requests.clone(), cut.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let request = Request::from_parts(head, body);
                let answer = handler(&request);
                requests.lock().unwrap().push(request);
                match answer {
                    Some(answer) => Ok::<_, hyper::Error>(answer),
                    None => {
                        cut.cancel();
                        std::future::pending().await
                    }
                }
            }
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = cut.cancelled() => return,
        () = goaway.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Returns a response with a body, and trailers if there are any.
pub fn answer(status: u16, headers: HeaderMap, body: &[u8], trailers: HeaderMap) -> Answer {
    let body = Full::new(Bytes::copy_from_slice(body));
    let body = match trailers.is_empty() {
        true => body.boxed(),
        false => body.with_trailers(async { Some(Ok(trailers)) }).boxed(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status.try_into().unwrap();
    *response.headers_mut() = headers;
    response
}

/// Returns headers from pairs.
pub fn header_map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (http::HeaderName::from_static(name), value.parse().unwrap())
    };
    pairs.iter().map(pair).collect()
}

/// Returns a certificate authority, and a certificate for `localhost` and 127.0.0.1 with its key, all in PEM.
pub fn certificates() -> (String, String, String) {
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(names).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    (ca.pem(), certificate.pem(), key.serialize_pem())
}
