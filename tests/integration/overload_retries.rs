//! Clients that retry at once in an overload are only refused: they are neither disconnected nor logged as attackers.

use crate::harness::http2::{
    Attacker, DATA, END_HEADERS, END_STREAM, HEADERS, REFUSED_STREAM, ReceivedFrames, call, frame,
};
use crate::harness::{Backend, Client, Collector, Oracle, Signal, grpc_to, raw, yaml};

/// The `number`th stream of a client.
fn stream(number: u32) -> u32 {
    2 * number + 1
}

/// Fails if the connection was closed, or if metrics or logs suggest an attack.
async fn assert_not_treated_as_attacker(client: &mut Attacker, collector: &Collector) {
    assert!(client.is_alive().await, "the client was disconnected");
    let metrics = collector.metrics().await;
    let floods = [("limit", "max_control_frames")];
    assert_eq!(metrics.sum("tributary_server_limited", &floods), 0.0);
    let lines = collector.lines();
    let mut suspicions = lines.iter().filter(|line| line.text.contains("attack"));
    assert!(suspicions.next().is_none(), "{lines:#?}");
}

/// A request is refused because the memory is full, before its body has arrived. More of the body arrives after the
/// server has forgotten the request.
#[tokio::test]
async fn client_refused_for_memory_may_retry_at_once() {
    const ROUNDS: u32 = 25;
    const AT_ONCE: u32 = 100;
    let backend = Backend::start().await;
    backend.hold();
    let limiter = "{limit_mib: 24, spike_limit_mib: 8}";
    let exporter = grpc_to(&backend, "sending_queue: {queue_size: 100000}");
    let yaml = yaml(&[("memory_limiter", limiter)], &[("otlp_grpc", &exporter)]);
    let collector = Collector::start(&yaml).await;
    let oracle = Oracle::default();
    let filler = Client::grpc("filler", collector.grpc(), &oracle).await;
    while filler
        .send(&filler.request(Signal::Traces, 4000))
        .await
        .is_ok()
    {}

    let mut client = Attacker::greet(collector.grpc()).await;
    for round in 0..ROUNDS {
        let streams = || (round * AT_ONCE..(round + 1) * AT_ONCE).map(stream);
        let begin = |stream| {
            let path = raw::method(Signal::Traces);
            // A message of 4 MiB, of which 100 bytes are sent.
            let message = [&[0, 0, 0x40, 0, 0][..], &[0; 100]].concat();
            let head = frame(HEADERS, END_HEADERS, stream, &call(path));
            [head, frame(DATA, 0, stream, &message)].concat()
        };
        let begun: Vec<u8> = streams().flat_map(begin).collect();
        client.send_bytes(&begun).await.unwrap();
        let refused = ((round + 1) * AT_ONCE) as usize;
        let all_ended = |heard: &ReceivedFrames| (heard.ended_streams() >= refused).then_some(());
        client.wait_for("refusals", all_ended).await;
        let rest = |stream| frame(DATA, END_STREAM, stream, &[0; 100]);
        let late: Vec<u8> = streams().flat_map(rest).collect();
        client.send_bytes(&late).await.unwrap();
        assert!(client.is_alive().await, "round {round}");
    }
    assert_not_treated_as_attacker(&mut client, &collector).await;
    backend.release();
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
}

/// More requests at once than the server allows on a connection.
#[tokio::test]
async fn client_with_refused_streams_may_retry_at_once() {
    const TIMES: u32 = 15_000;
    let backend = Backend::start().await;
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])
        .replace("max_recv_msg_size_mib: 8", "max_concurrent_streams: 2");
    let collector = Collector::start(&yaml).await;
    let mut client = Attacker::greet(collector.grpc()).await;
    let request = |number| {
        let path = raw::method(Signal::Traces);
        frame(HEADERS, END_HEADERS, stream(number), &call(path))
    };
    assert_eq!(client.flood(TIMES, request).await, TIMES);
    let refused = TIMES as usize - 2;
    let all_refused =
        |heard: &ReceivedFrames| (heard.resets(REFUSED_STREAM) == refused).then_some(());
    client.wait_for("refusals", all_refused).await;
    assert_not_treated_as_attacker(&mut client, &collector).await;
}
