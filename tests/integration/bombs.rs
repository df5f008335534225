//! A small body that decompresses to a huge one is refused before its decompression.

use futures_util::future::join_all;
use http::Method;
use tonic::Code;

use crate::harness::attacks::zeros;
use crate::harness::{Backend, Client, Collector, Oracle, Signal, codec, grpc_to, raw, yaml};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn decompression_bombs_are_refused_within_budget() {
    let backend = Backend::start().await;
    let limiter = "{limit_mib: 56, spike_limit_mib: 8}";
    let yaml = yaml(
        &[("memory_limiter", limiter)],
        &[("otlp_grpc", &grpc_to(&backend, ""))],
    );
    let collector = Collector::start(&yaml).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 10))
        .await
        .unwrap();
    let before = collector.peak_memory();

    for encoding in codec::HTTP.into_iter().filter(|name| *name != "identity") {
        let bomb = zeros(encoding);
        // One bomb, which is refused for its size ...
        let headers = [
            ("content-type", "application/x-protobuf"),
            ("content-encoding", encoding),
        ];
        let path = raw::path(Signal::Traces);
        let post = || raw::http(collector.http(), Method::POST, path, &headers, bomb.clone());
        let response = post().await;
        assert_eq!(response.status, 413, "{encoding}: {response:?}");
        // ... and several concurrent bombs, for which the memory has no room.
        for response in join_all((0..4).map(|_| post())).await {
            let status = response.status.as_u16();
            assert!([413, 429].contains(&status), "{encoding}: {response:?}");
        }
        if codec::GRPC.contains(&encoding) {
            let frame = raw::frame(true, &bomb);
            let headers = [("grpc-encoding", encoding)];
            let method = raw::method(Signal::Traces);
            let reply = raw::grpc(collector.grpc(), method, &headers, frame).await;
            assert_eq!(
                reply.code,
                Code::ResourceExhausted as i32,
                "{encoding}: {reply:?}"
            );
            assert_eq!(
                reply.retry_after, None,
                "{encoding}: it would be the same again"
            );
        }
        client
            .send(&client.request(Signal::Traces, 10))
            .await
            .unwrap();
    }

    let grown = collector.peak_memory().saturating_sub(before);
    // Decompressed, the bodies would have gigabytes. The allocator keeps some freed memory, so the bound is above the
    // budget of 48 MiB.
    let bound = 160 * MIB as u64;
    assert!(grown < bound, "the process grew by {grown} bytes");
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn oversized_requests_are_refused_unread() {
    let backend = Backend::start().await;
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
    let before = collector.peak_memory();
    // One byte above the default limit of 20 MiB.
    let large = vec![0; 20 * MIB + 1];
    let headers = [("content-type", "application/x-protobuf")];
    let path = raw::path(Signal::Logs);
    let response = raw::http(
        collector.http(),
        Method::POST,
        path,
        &headers,
        large.clone(),
    )
    .await;
    assert_eq!(response.status, 413, "{response:?}");
    assert!(
        String::from_utf8_lossy(&response.body).contains("max_request_body_size"),
        "the answer names the key to raise: {response:?}"
    );
    let frame = raw::frame(false, &large);
    let reply = raw::grpc(collector.grpc(), raw::method(Signal::Logs), &[], frame).await;
    assert_eq!(reply.code, Code::ResourceExhausted as i32, "{reply:?}");
    assert!(reply.message.contains("max_recv_msg_size_mib"), "{reply:?}");
    let grown = collector.peak_memory().saturating_sub(before);
    let bound = 24 * MIB as u64;
    assert!(grown < bound, "the process grew by {grown} bytes");
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    client.send(&client.request(Signal::Logs, 1)).await.unwrap();
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn requests_with_too_many_items_name_count_and_key() {
    let collector = Collector::start(
        "receivers:
  otlp:
    protocols:
      grpc: {endpoint: '127.0.0.1:0', max_items_per_request: 3}
      http: {endpoint: '127.0.0.1:0', max_items_per_request: 3}
exporters:
  nop: {}
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [nop]}
    metrics: {receivers: [otlp], exporters: [nop]}
    logs: {receivers: [otlp], exporters: [nop]}
    profiles: {receivers: [otlp], exporters: [nop]}
",
    )
    .await;
    let oracle = Oracle::default();
    let http = Client::http("http", collector.http(), &oracle);
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    for client in [http, grpc] {
        for signal in Signal::ALL {
            client.send(&client.request(signal, 3)).await.unwrap();
            let refused = client.send(&client.request(signal, 4)).await.unwrap_err();
            assert_eq!(refused.code, Code::ResourceExhausted, "{refused:?}");
            assert!(refused.retry_after.is_none(), "{refused:?}");
            let reason = format!("{refused:?}");
            let expected = "the request has 4 items, more than 3; send smaller batches or raise \
                            `max_items_per_request`";
            assert!(reason.contains(expected), "{reason}");
        }
    }
    collector.assert_conservation().await;
}
