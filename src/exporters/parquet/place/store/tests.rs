//! Uploads to a server that speaks the part of S3's protocol that is needed, and fails as told.
//!
//! On real time: requests go through sockets, which a paused clock does not wait for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::super::Unfinished as AnyUnfinished;
use super::*;
use crate::config::ByteSize;
use crate::memory::Budget;

/// What happens to the next request of a kind.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// It is answered with that status, and nothing is done.
    Status(u16),
    /// It is done, and the connection is closed without an answer.
    Lost,
    /// It is done after a while.
    Slow,
}

/// A bucket's content, and what will go wrong.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    uploads: HashMap<String, BTreeMap<u32, Vec<u8>>>,
    /// By kind of request: `put`, `begin`, `part`, `complete`, `abort`, `head`, `delete`.
    faults: HashMap<&'static str, VecDeque<Fault>>,
    part_sizes: Vec<usize>,
    parts_at_once: usize,
    most_parts_at_once: usize,
    requests: Vec<&'static str>,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Bucket>>);

impl Server {
    /// A server and a store in it, with parts of 1000 bytes.
    async fn start() -> (Self, Arc<Store>, Arc<Budget>) {
        let server = Server::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
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
        let options = [
            ("endpoint", endpoint.as_str()),
            ("allow_http", "true"),
            ("access_key_id", "key"),
            ("secret_access_key", "secret"),
            ("region", "here"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.into()));
        let config = ObjectStoreConfig {
            url: "s3://bucket/some/prefix".to_owned(),
            options: options.into(),
            part_size: ByteSize(1000),
            ..ObjectStoreConfig::default()
        };
        let budget = Budget::new(1 << 30);
        let memory = Memory::new(1 << 20, &budget);
        let store = Arc::new(Store::new(&config, &memory).unwrap());
        (server, store, budget)
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.0.lock().unwrap()
    }

    fn will(&self, kind: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.bucket().faults.entry(kind).or_default().extend(faults);
    }

    fn requests(&self, kind: &str) -> usize {
        let bucket = self.bucket();
        bucket
            .requests
            .iter()
            .filter(|other| **other == kind)
            .count()
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
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let fault = {
            let mut bucket = self.bucket();
            bucket.requests.push(kind);
            if kind == "part" {
                bucket.parts_at_once += 1;
                bucket.most_parts_at_once = bucket.most_parts_at_once.max(bucket.parts_at_once);
            }
            bucket.faults.get_mut(kind).and_then(VecDeque::pop_front)
        };
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
        let key = head.uri.path().trim_start_matches("/bucket/").to_owned();
        let response = self.bucket().perform(kind, key, &query, &body);
        match fault {
            Some(Fault::Lost) => Err(io::Error::other("lost")),
            _ => Ok(response),
        }
    }
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

const NAME: &str = "signal=logs/service=a%20b/part-1.parquet";
const KEY: &str = "some/prefix/signal%3Dlogs/service%3Da%2520b/part-1.parquet";

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Writes in pieces of 700 bytes.
async fn upload(store: &Arc<Store>, content: &[u8]) -> std::result::Result<u64, PlaceError> {
    let (mut unfinished, mut out) = store.begin(NAME)?;
    for piece in content.chunks(700) {
        out.write_all(piece).unwrap();
        unfinished.advance().await?;
    }
    AnyUnfinished::Store(unfinished).finish().await
}

#[tokio::test]
async fn what_is_smaller_than_a_part_is_put_at_once() {
    let (server, store, budget) = Server::start().await;
    assert_eq!(upload(&store, &content(999)).await.unwrap(), 999);
    assert_eq!(server.bucket().objects[KEY], content(999));
    assert_eq!(server.requests("begin"), 0);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn what_is_larger_is_uploaded_in_equal_parts_a_few_at_a_time() {
    let (server, store, budget) = Server::start().await;
    server.will("part", [Fault::Slow; 12]);
    assert_eq!(upload(&store, &content(12_345)).await.unwrap(), 12_345);
    assert_eq!(server.bucket().objects[KEY], content(12_345));
    let mut sizes = server.bucket().part_sizes.clone();
    sizes.sort_unstable();
    assert_eq!((sizes.remove(0), sizes), (345, vec![1000; 12]));
    assert_eq!(server.bucket().most_parts_at_once, PARALLEL_PARTS);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn the_memory_of_what_is_not_uploaded_yet_is_counted() {
    let (_server, store, budget) = Server::start().await;
    let (unfinished, mut out) = store.begin(NAME).unwrap();
    out.write_all(&content(2500)).unwrap();
    assert!((2500..6000).contains(&budget.used()), "{}", budget.used());
    drop((unfinished, out));
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn who_goes_away_while_it_is_uploaded_takes_nothing_of_it_along() {
    let (server, store, _) = Server::start().await;
    server.will("begin", [Fault::Slow]);
    server.will("part", [Fault::Slow; 9]);
    let (mut unfinished, mut out) = store.begin(NAME).unwrap();
    for piece in content(9500).chunks(700) {
        out.write_all(piece).unwrap();
        let impatient = unfinished.advance();
        let _ = tokio::time::timeout(Duration::from_millis(1), impatient).await;
    }
    assert_eq!(unfinished.finish().await.unwrap(), 9500);
    assert_eq!(server.bucket().objects[KEY], content(9500));
}

#[tokio::test]
async fn a_part_that_fails_for_a_moment_is_sent_again() {
    let (server, store, _) = Server::start().await;
    server.will("begin", [Fault::Status(503)]);
    let faults = [Fault::Status(500), Fault::Status(503), Fault::Lost];
    server.will("part", faults);
    server.will("complete", [Fault::Status(503)]);
    assert_eq!(upload(&store, &content(5000)).await.unwrap(), 5000);
    assert_eq!(server.bucket().objects[KEY], content(5000));
}

#[tokio::test]
async fn an_upload_that_fails_for_good_leaves_nothing_behind() {
    let (server, store, budget) = Server::start().await;
    server.will("part", [Fault::Status(403)]);
    let error = upload(&store, &content(5000)).await.unwrap_err();
    let expected = "cannot upload some/prefix/signal=logs/service=a%20b/part-1.parquet: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    while !server.bucket().uploads.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(server.bucket().objects.is_empty());
    assert_eq!(server.requests("complete"), 0);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn an_object_whose_answer_was_lost_is_found_and_not_written_again() {
    let (server, store, _) = Server::start().await;
    server.will("complete", [Fault::Lost]);
    assert_eq!(upload(&store, &content(5000)).await.unwrap(), 5000);
    server.will("put", [Fault::Lost; 4]);
    assert_eq!(upload(&store, &content(10)).await.unwrap(), 10);
    assert_eq!(server.bucket().objects[KEY], content(10));
    assert_eq!(server.requests("delete"), 0);
}

#[tokio::test]
async fn an_object_that_was_refused_is_deleted_should_it_come_into_being_after_all() {
    let (server, store, _) = Server::start().await;
    server.will("put", [Fault::Status(403)]);
    upload(&store, &content(10)).await.unwrap_err();
    assert_eq!((server.requests("head"), server.requests("delete")), (1, 1));
    assert!(server.bucket().objects.is_empty());
}

#[tokio::test]
async fn an_upload_that_is_given_up_is_aborted() {
    let (server, store, _) = Server::start().await;
    let (mut unfinished, mut out) = store.begin(NAME).unwrap();
    out.write_all(&content(1500)).unwrap();
    unfinished.advance().await.unwrap();
    assert_eq!(server.bucket().uploads.len(), 1);
    drop(unfinished);
    while !server.bucket().uploads.is_empty() {
        tokio::task::yield_now().await;
    }
}
