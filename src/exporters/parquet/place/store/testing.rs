//! A server that implements the necessary part of S3's protocol, or a proxy for a real server. It
//! injects faults.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::exporters::parquet::config::ObjectStoreConfig;
use tributary_config::ByteSize;

/// A fault for the next request of a kind.
#[derive(Debug, Clone, Copy)]
pub(in crate::exporters::parquet) enum Fault {
    /// The server responds with this status and ignores the request.
    Status(u16),
    /// The server executes the request and closes the connection without a response.
    Lost,
    /// The server executes the request after a delay.
    Slow,
    /// The server closes the connection before the request is complete, and ignores the request.
    Cut,
}

/// Contents of a bucket, and the faults to inject.
#[derive(Default)]
pub(in crate::exporters::parquet) struct Bucket {
    pub(in crate::exporters::parquet) objects: BTreeMap<String, Vec<u8>>,
    pub(in crate::exporters::parquet) uploads: HashMap<String, BTreeMap<u32, Vec<u8>>>,
    /// Faults by kind of request: `put`, `begin`, `part`, `complete`, `abort`, `head`, `delete`.
    faults: HashMap<&'static str, VecDeque<Fault>>,
    pub(super) part_sizes: Vec<usize>,
    parts_at_once: usize,
    pub(super) most_parts_at_once: usize,
    requests: Vec<&'static str>,
}

#[derive(Clone, Default)]
pub(in crate::exporters::parquet) struct Server {
    bucket: Arc<Mutex<Bucket>>,
    /// The real server, if this one is a proxy.
    real: Option<SocketAddr>,
}

/// Returns a store in the server at that address, with parts of 1000 bytes, below the minimum of
/// the configuration.
pub(in crate::exporters::parquet) fn store_at(server: SocketAddr) -> ObjectStoreConfig {
    let endpoint = format!("http://{server}");
    let options = [
        ("endpoint", endpoint.as_str()),
        ("allow_http", "true"),
        ("access_key_id", "key"),
        ("secret_access_key", "secret"),
        ("region", "here"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.into()));
    ObjectStoreConfig {
        url: "s3://bucket/some/prefix".to_owned(),
        options: options.into(),
        part_size: ByteSize(1000),
        ..ObjectStoreConfig::default()
    }
}

impl Server {
    /// Starts a server; returns it with a store in it.
    pub(in crate::exporters::parquet) async fn start() -> (Self, ObjectStoreConfig) {
        Server::default().listen().await
    }

    /// Starts a proxy that forwards requests to another server unless they should fail; returns it
    /// with a store.
    pub(in crate::exporters::parquet) async fn in_front_of(
        real: SocketAddr,
    ) -> (Self, ObjectStoreConfig) {
        let server = Server {
            real: Some(real),
            ..Server::default()
        };
        server.listen().await
    }

    async fn listen(self) -> (Self, ObjectStoreConfig) {
        let server = self;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let server = serving.clone();
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { server.answer(request).await }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(connection);
            }
        });
        (server, store_at(address))
    }

    pub(in crate::exporters::parquet) fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap()
    }

    pub(in crate::exporters::parquet) fn will(
        &self,
        kind: &'static str,
        faults: impl IntoIterator<Item = Fault>,
    ) {
        self.bucket().faults.entry(kind).or_default().extend(faults);
    }

    pub(in crate::exporters::parquet) fn requests(&self, kind: &str) -> usize {
        let bucket = self.bucket();
        bucket
            .requests
            .iter()
            .filter(|other| **other == kind)
            .count()
    }

    /// Whether all faults were injected.
    pub(in crate::exporters::parquet) fn is_done_failing(&self) -> bool {
        self.bucket().faults.values().all(VecDeque::is_empty)
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let query: HashMap<String, String> = head
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let kind = match (&head.method, query.contains_key("uploadId")) {
            (&Method::PUT, true) => "part",
            (&Method::PUT, false) => "put",
            (&Method::POST, true) => "complete",
            (&Method::POST, false) if query.contains_key("uploads") => "begin",
            (&Method::POST, false) => "delete",
            (&Method::DELETE, true) => "abort",
            (&Method::HEAD, _) => "head",
            other => panic!("{other:?}"),
        };
        let fault = {
            let mut bucket = self.bucket();
            bucket.requests.push(kind);
            bucket.faults.get_mut(kind).and_then(VecDeque::pop_front)
        };
        if let Some(Fault::Cut) = fault {
            return Err(io::Error::other("cut"));
        }
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        if kind == "part" {
            let mut bucket = self.bucket();
            bucket.parts_at_once += 1;
            bucket.most_parts_at_once = bucket.most_parts_at_once.max(bucket.parts_at_once);
        }
        if let Some(Fault::Slow) = fault {
            sleep(Duration::from_millis(50)).await;
        }
        if kind == "part" {
            self.bucket().parts_at_once -= 1;
        }
        if let Some(Fault::Status(status)) = fault {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            return Ok(response);
        }
        if let Some(real) = self.real {
            let response = pass_on(real, Request::from_parts(head, Full::new(body))).await?;
            return match fault {
                Some(Fault::Lost) => Err(io::Error::other("lost")),
                _ => Ok(response),
            };
        }
        let key = head.uri.path().trim_start_matches("/bucket/").to_owned();
        let response = self.bucket().perform(kind, key, &query, &body);
        match fault {
            Some(Fault::Lost) => Err(io::Error::other("lost")),
            _ => Ok(response),
        }
    }
}

/// Forwards a request and returns the response of the server at that address.
async fn pass_on(
    real: SocketAddr,
    request: Request<Full<Bytes>>,
) -> io::Result<Response<Full<Bytes>>> {
    let io = TokioIo::new(TcpStream::connect(real).await?);
    let handshake = hyper::client::conn::http1::handshake(io).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let (mut head, body) = response.map_err(io::Error::other)?.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    // Hop-by-hop headers do not belong to the response.
    for name in [http::header::CONNECTION, http::header::TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Full::new(body)))
}

impl Bucket {
    fn perform(
        &mut self,
        kind: &str,
        key: String,
        query: &HashMap<String, String>,
        body: &Bytes,
    ) -> Response<Full<Bytes>> {
        let response = Response::builder().header("etag", "\"tag\"");
        let missing = || {
            let response = Response::builder().status(StatusCode::NOT_FOUND);
            response.body(Full::default()).unwrap()
        };
        let upload = query.get("uploadId").cloned().unwrap_or_default();
        let answer = match kind {
            "put" => {
                self.objects.insert(key, body.to_vec());
                String::new()
            }
            "begin" => {
                let upload = format!("upload-{}", self.requests.len());
                self.uploads.insert(upload.clone(), BTreeMap::new());
                format!(
                    "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                )
            }
            "part" => {
                let Some(parts) = self.uploads.get_mut(&upload) else {
                    return missing();
                };
                parts.insert(query["partNumber"].parse().unwrap(), body.to_vec());
                self.part_sizes.push(body.len());
                String::new()
            }
            "complete" => {
                let Some(parts) = self.uploads.remove(&upload) else {
                    return missing();
                };
                let whole = parts.into_values().flatten().collect();
                self.objects.insert(key, whole);
                "<CompleteMultipartUploadResult><ETag>tag</ETag></CompleteMultipartUploadResult>"
                    .to_owned()
            }
            "abort" => {
                self.uploads.remove(&upload);
                String::new()
            }
            "head" => {
                let Some(object) = self.objects.get(&key) else {
                    return missing();
                };
                let response = response
                    .header("content-length", object.len())
                    .header("last-modified", "Mon, 14 Sep 2026 05:00:00 GMT");
                return response.body(Full::default()).unwrap();
            }
            _ => {
                let body = String::from_utf8(body.to_vec()).unwrap();
                let key = body.split("<Key>").nth(1).unwrap();
                let key = key.split("</Key>").next().unwrap();
                self.objects.remove(key);
                format!("<DeleteResult><Deleted><Key>{key}</Key></Deleted></DeleteResult>")
            }
        };
        response.body(Full::from(answer)).unwrap()
    }
}
