//! Uploads to a server with scripted failures.
//!
//! In real time: requests use sockets, which a paused clock does not wait for.

use std::io::Write as _;
use std::time::Duration;

use super::super::Unfinished as AnyUnfinished;
use super::testing::{Fault, Server};
use super::*;
use tributary_memory::Budget;

const NAME: &str = "signal=logs/service=a%20b/part-1.parquet";
const KEY: &str = "some/prefix/signal%3Dlogs/service%3Da%2520b/part-1.parquet";

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

async fn start() -> (Server, Arc<Store>, Arc<Budget>) {
    let (server, config) = Server::start().await;
    let budget = Budget::new(1 << 30);
    let memory = Memory::new(1 << 20, &budget);
    (
        server,
        Arc::new(Store::new(&config, &memory).unwrap()),
        budget,
    )
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
async fn small_file_is_uploaded_in_one_request() {
    let (server, store, budget) = start().await;
    assert_eq!(upload(&store, &content(999)).await.unwrap(), 999);
    assert_eq!(server.bucket().objects[KEY], content(999));
    assert_eq!(server.requests("begin"), 0);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn large_file_is_uploaded_in_equal_parts() {
    let (server, store, budget) = start().await;
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
async fn pending_upload_memory_is_counted() {
    let (_server, store, budget) = start().await;
    let (unfinished, mut out) = store.begin(NAME).unwrap();
    out.write_all(&content(2500)).unwrap();
    assert!((2500..6000).contains(&budget.used()), "{}", budget.used());
    drop((unfinished, out));
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn cancelled_upload_loses_no_part() {
    let (server, store, _) = start().await;
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
async fn temporarily_failed_part_is_retried() {
    let (server, store, _) = start().await;
    server.will("begin", [Fault::Status(503)]);
    let faults = [Fault::Status(500), Fault::Status(503), Fault::Lost];
    server.will("part", faults);
    server.will("complete", [Fault::Status(503)]);
    assert_eq!(upload(&store, &content(5000)).await.unwrap(), 5000);
    assert_eq!(server.bucket().objects[KEY], content(5000));
}

#[tokio::test]
async fn permanently_failed_upload_leaves_no_parts() {
    let (server, store, budget) = start().await;
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
async fn object_with_lost_response_is_not_rewritten() {
    let (server, store, _) = start().await;
    server.will("complete", [Fault::Lost]);
    assert_eq!(upload(&store, &content(5000)).await.unwrap(), 5000);
    server.will("put", [Fault::Lost; 4]);
    assert_eq!(upload(&store, &content(10)).await.unwrap(), 10);
    assert_eq!(server.bucket().objects[KEY], content(10));
    assert_eq!(server.requests("delete"), 0);
}

#[tokio::test]
async fn refused_object_is_deleted_if_it_appears() {
    let (server, store, _) = start().await;
    server.will("put", [Fault::Status(403)]);
    upload(&store, &content(10)).await.unwrap_err();
    assert_eq!((server.requests("head"), server.requests("delete")), (1, 1));
    assert!(server.bucket().objects.is_empty());
}

#[tokio::test]
async fn discarded_upload_is_aborted() {
    let (server, store, _) = start().await;
    let (mut unfinished, mut out) = store.begin(NAME).unwrap();
    out.write_all(&content(1500)).unwrap();
    unfinished.advance().await.unwrap();
    assert_eq!(server.bucket().uploads.len(), 1);
    drop(unfinished);
    while !server.bucket().uploads.is_empty() {
        tokio::task::yield_now().await;
    }
}
