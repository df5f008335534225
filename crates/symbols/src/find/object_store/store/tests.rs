//! A test server on the loopback interface that speaks the read part of S3's protocol.
//!
//! The tests use real time, because a paused clock does not wait for sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::HeaderMap;

use super::*;
use crate::library::testing::tools;
use crate::testing::{elf, elf_with, id};
use tributary_config::units::ByteSize;
use tributary_net::client::test_server::{Answer, TestServer, answer, header_map};

fn store(server: &TestServer) -> Store {
    let endpoint = format!("http://{}", server.address);
    let options = [
        ("endpoint", endpoint.as_str()),
        ("allow_http", "true"),
        ("access_key_id", "key"),
        ("secret_access_key", "secret"),
        ("region", "here"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.into()));
    let config = StoreConfig {
        url: "s3://bucket/some/prefix".to_owned(),
        options: options.into(),
        max_bytes: ByteSize::kib(64),
        ..StoreConfig::default()
    };
    Store::new(&config).unwrap()
}

fn object(content: &[u8]) -> Option<Answer> {
    let length = content.len().to_string();
    let headers = header_map(&[
        ("etag", "\"tag\""),
        ("last-modified", "Mon, 14 Sep 2026 05:00:00 GMT"),
        ("content-length", &length),
    ]);
    Some(answer(200, headers, content, HeaderMap::new()))
}

fn plain(status: u16) -> Option<Answer> {
    Some(answer(status, HeaderMap::new(), b"", HeaderMap::new()))
}

async fn serve(objects: BTreeMap<String, Vec<u8>>) -> TestServer {
    TestServer::start(None, move |request| {
        let path = request.uri().path();
        match path
            .strip_prefix("/bucket/some/prefix/")
            .and_then(|name| objects.get(name))
        {
            Some(content) => object(content),
            None => plain(404),
        }
    })
    .await
}

async fn find(store: &Store, id: &BuildId) -> Result<Vec<Vec<u8>>, Failure> {
    let (_directory, tools) = tools();
    let found = store.find(id, &tools).await?;
    let files = [&found.binary].into_iter().chain(&found.supplementary);
    Ok(files.map(|file| std::fs::read(file).unwrap()).collect())
}

#[tokio::test]
async fn directory_names_are_used_and_companions_are_found() {
    let (one, two, supplementary_id) = (id(1), id(2), id(3));
    let alt = [b"x\0".as_slice(), supplementary_id.as_bytes()].concat();
    let debug = elf_with(&one, &["main"], &[(".gnu_debugaltlink", &alt)]);
    let binary = elf(&one, &["main"]);
    let alone = elf(&two, &["main"]);
    let [_, short, _] = layout::debug_information(&supplementary_id);
    let [_, _, executable] = layout::binary(&two);
    let objects = [
        (layout::debug_information(&one)[0].clone(), debug.clone()),
        (layout::binary(&one)[0].clone(), binary.clone()),
        (short, b"supplementary_id".to_vec()),
        (executable, alone.clone()),
    ];
    let server = serve(objects.into()).await;
    let store = store(&server);
    let found = find(&store, &one).await;
    assert_eq!(found, Ok(vec![binary, debug, b"supplementary_id".to_vec()]));
    assert_eq!(find(&store, &two).await, Ok(vec![alone]));
    assert_eq!(find(&store, &id(4)).await, Err(Failure::NotFound));
}

#[tokio::test]
async fn object_over_limit_is_refused() {
    let large = (layout::binary(&id(1))[0].clone(), vec![0; 65 << 10]);
    let server = serve([large].into()).await;
    let failed = find(&store(&server), &id(1)).await;
    assert!(matches!(failed, Err(Failure::TooLarge(_))), "{failed:?}");
}

#[tokio::test]
async fn forbidden_store_is_reported_and_breaker_opens() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = TestServer::start(None, move |_| {
        counted.fetch_add(1, SeqCst);
        plain(403)
    })
    .await;
    let store = store(&server);
    for _ in 0..5 {
        let failed = find(&store, &id(1)).await.unwrap_err();
        assert!(matches!(failed, Failure::Unreachable(_)), "{failed}");
    }
    let failed = find(&store, &id(1)).await.unwrap_err().to_string();
    assert!(
        failed.contains("requests to s3://bucket/some/prefix"),
        "{failed}"
    );
    assert_eq!(count.load(SeqCst), 5, "five failures in a row are enough");
}
