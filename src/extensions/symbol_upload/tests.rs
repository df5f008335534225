//! Over HTTP, with a reader that is no process of its own.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::component::{Extensions, Host};
use crate::pipeline::Component as _;
use tributary_config::units::{ByteSize, Endpoint};
use tributary_config::{Problems, Validate as _};
use tributary_net::server::Server;
use tributary_symbols::library::testing::InProcess;
use tributary_symbols::testing::{elf, id};

struct World {
    directory: TempDir,
    server: Server,
    address: SocketAddr,
}

/// Starts a server that accepts the token `right`.
fn serve(edit: impl Fn(&mut Config)) -> World {
    let directory = tempfile::tempdir().unwrap();
    let auth: crate::extensions::bearertokenauth::Config =
        serde_json::from_str(r#"{"token": "right"}"#).unwrap();
    let host = Host::for_tests();
    let auth_id: tributary_config::ComponentId = "bearertokenauth".parse().unwrap();
    let extension = auth.build(&host.context(&auth_id)).unwrap();
    let mut cx = host.context(&"symbol_upload".parse().unwrap());
    cx.extensions = Extensions::from_iter([(auth_id.clone(), extension.services)]);
    let mut config = Config {
        endpoint: Endpoint("127.0.0.1:0".to_owned()),
        auth: Some(crate::component::auth::Auth {
            authenticator: auth_id,
        }),
        directory: directory.path().join("made"),
        max_upload_bytes: ByteSize::kib(64),
        ..Config::default()
    };
    edit(&mut config);
    let mut serving = config.bind(&cx, Arc::new(InProcess)).unwrap();
    serving.start();
    let server = serving.server.unwrap();
    World {
        address: server.local_address().unwrap(),
        directory,
        server,
    }
}

impl World {
    async fn send(&self, request: Request<Full<bytes::Bytes>>) -> (StatusCode, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn put(&self, path: &str, body: &[u8]) -> (StatusCode, String) {
        self.send(put(path, body)).await
    }

    /// Returns the stored files, without directories.
    fn files(&self) -> Vec<String> {
        let root = self.directory.path().join("made");
        let mut files = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => {
                        let name = path.strip_prefix(&root).unwrap();
                        files.push(name.display().to_string());
                    }
                }
            }
        }
        files.sort();
        files
    }
}

fn put(path: &str, body: &[u8]) -> Request<Full<bytes::Bytes>> {
    let body = Full::new(bytes::Bytes::copy_from_slice(body));
    let request = Request::put(path).header("host", "x");
    let request = request.header("authorization", "Bearer right");
    request.body(body).unwrap()
}

#[tokio::test]
async fn uploaded_file_is_stored_where_processor_looks() {
    let world = serve(|_| {});
    let binary = elf(&id(0xab), &["main"]);
    let path = format!("/symbols/{}", id(0xab));
    assert_eq!(world.put(&path, &binary).await.0, 201);
    let upper = format!(
        "/symbols/{}/executable",
        id(0xab).to_string().to_uppercase()
    );
    assert_eq!(world.put(&upper, &binary).await.0, 201);
    assert_eq!(world.put(&path, &binary).await.0, 201, "again");
    let rest = "ab".repeat(19);
    let files = [
        format!(".build-id/ab/{rest}"),
        format!(".build-id/ab/{rest}.debug"),
    ];
    assert_eq!(world.files(), files);
    let kept = world.directory.path().join("made").join(&files[1]);
    assert_eq!(std::fs::read(kept).unwrap(), binary);
    world.server.shutdown(Instant::now()).await;
}

#[tokio::test]
async fn refused_upload_leaves_no_file() {
    let world = serve(|_| {});
    let binary = elf(&id(1), &["main"]);
    let path = format!("/symbols/{}", id(1));
    let (status, said) = world.put(&format!("/symbols/{}", id(2)), &binary).await;
    assert_eq!(status, 400);
    assert!(said.contains(&id(1).to_string()), "{said}");
    for (path, body, status) in [
        (path.as_str(), &b"#!/bin/sh"[..], 400),
        ("/symbols/..%2f..%2fetc", &binary, 400),
        ("/symbols/abc", &binary, 400),
        ("/symbols/../../etc/passwd", &binary, 404),
        (&format!("{path}/other"), &binary, 404),
        ("/", &binary, 404),
        (&path, &vec![0; 65 << 10], 413),
    ] {
        assert_eq!(world.put(path, body).await.0.as_u16(), status, "{path}");
    }
    let mut request = put(&path, &binary);
    let headers = request.headers_mut();
    headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    assert_eq!(world.send(request).await.0, 415);
    let mut request = put(&path, &binary);
    *request.method_mut() = http::Method::POST;
    assert_eq!(world.send(request).await.0, 405);
    for token in [None, Some("Bearer wrong")] {
        let mut request = put(&path, &binary);
        request.headers_mut().remove("authorization");
        if let Some(token) = token {
            let token = HeaderValue::from_static(token);
            request.headers_mut().insert("authorization", token);
        }
        assert_eq!(world.send(request).await.0, 401);
    }
    assert_eq!(world.files(), Vec::<String>::new());
}

#[tokio::test]
async fn full_directory_refuses_and_replacements_count_once() {
    let binary = elf(&id(1), &["main"]);
    let size = binary.len() as u64;
    let world = serve(|config| config.max_bytes = ByteSize::bytes(5 * size / 2));
    let path = format!("/symbols/{}", id(1));
    for _ in 0..3 {
        assert_eq!(world.put(&path, &binary).await.0, 201);
    }
    let other = elf(&id(2), &["main"]);
    assert_eq!(
        world.put(&format!("/symbols/{}", id(2)), &other).await.0,
        201
    );
    let third = elf(&id(3), &["main"]);
    let refused = world.put(&format!("/symbols/{}", id(3)), &third).await.0;
    assert_eq!(refused, 507);
    assert_eq!(world.files().len(), 2);
    // Removes one file, and replaces the other by a larger file.
    let kept = |name: &str| world.directory.path().join("made").join(name);
    std::fs::remove_file(kept(&world.files()[0])).unwrap();
    assert_eq!(
        world.put(&format!("/symbols/{}", id(3)), &third).await.0,
        201
    );
    std::fs::write(kept(&world.files()[0]), vec![0; 10 * binary.len()]).unwrap();
    assert_eq!(
        world.put(&format!("/symbols/{}", id(1)), &binary).await.0,
        507
    );
    std::fs::remove_file(kept(&world.files()[0])).unwrap();
    assert_eq!(world.put(&path, &binary).await.0, 201);
}

#[test]
fn uploading_without_authentication_is_not_possible() {
    let mut problems = Problems::default();
    Config::default().validate(&mut problems);
    let found: Vec<_> = problems
        .found()
        .iter()
        .map(|problem| problem.path.clone())
        .collect();
    assert_eq!(found, [["auth"]]);
}

#[test]
fn new_instance_keeps_uploads_of_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let open = || uploads::Uploads::open(directory.path(), 1 << 20, Arc::new(InProcess)).unwrap();
    let (coming, crashed) = (open().begin().unwrap(), open().begin().unwrap());
    let long_ago = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
    crashed.file.set_modified(long_ago).unwrap();
    let count = || {
        let entries = std::fs::read_dir(directory.path()).unwrap().flatten();
        entries.filter(|entry| entry.path().is_file()).count()
    };
    assert_eq!(count(), 2);
    open();
    assert_eq!(count(), 1);
    drop(coming);
    assert_eq!(count(), 0);
}
