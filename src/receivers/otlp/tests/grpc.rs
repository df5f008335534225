//! OTLP over gRPC.

use super::*;

#[tokio::test]
async fn grpc_requests_in_all_encodings_arrive() {
    let fixture = Fixture::new();
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", fixture.grpc))
        .unwrap()
        .connect()
        .await
        .unwrap();
    for encoding in [
        None,
        Some(CompressionEncoding::Gzip),
        Some(CompressionEncoding::Zstd),
    ] {
        let mut client = TraceServiceClient::new(channel.clone());
        if let Some(encoding) = encoding {
            client = client.send_compressed(encoding);
        }
        for count in [1, 1000, 10_000] {
            let mut request = tonic::Request::new(spans(count));
            request
                .metadata_mut()
                .insert("tenant", "acme".parse().unwrap());
            let response = client.export(request).await.unwrap().into_inner();
            assert_eq!(response.partial_success, None);
            let batch = fixture.sink.taken.lock().unwrap().pop().unwrap();
            assert_eq!(batch.items(), count);
            assert_eq!(batch.wire().to_bytes(), encoded(count));
            assert_eq!(batch.metadata.as_ref().unwrap()["tenant"], ["acme"]);
            assert!(fixture.budget.used() >= encoded(count).len());
        }
    }
    assert_eq!(fixture.budget.used(), 0, "the batches are gone");
}

#[tokio::test]
async fn snappy_over_grpc_may_be_framed_or_a_block() {
    let fixture = Fixture::new();
    let block = snap::raw::Encoder::new().compress_vec(&encoded(7)).unwrap();
    for body in [snappy_framed(&encoded(7)), block] {
        let reply = fixture
            .call(EXPORT, &[("grpc-encoding", "snappy")], framed(1, &body))
            .await;
        assert_eq!(reply.code, Some(0), "{reply:?}");
    }
    assert_eq!(fixture.items(), [7, 7]);
}

#[tokio::test]
async fn an_empty_grpc_request_is_fine_and_no_batch() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.call(EXPORT, &[], framed(0, b"")).await.code,
        Some(0)
    );
    assert_eq!(fixture.items(), [0; 0]);
}

#[tokio::test]
async fn grpc_client_errors_have_specified_statuses() {
    let fixture = Fixture::new();
    let good = framed(0, &encoded(1));
    let two = [good.clone(), good.clone()].concat();
    let cut = good[..good.len() - 1].to_vec();
    let grpc = "application/grpc";
    // Path, headers, body; status, part of the message.
    type Case = (
        &'static str,
        Vec<(&'static str, &'static str)>,
        Vec<u8>,
        Code,
        &'static str,
    );
    let cases: Vec<Case> = vec![
        (
            EXPORT,
            vec![],
            framed(0, b"\xff\xff"),
            Code::InvalidArgument,
            "malformed traces request",
        ),
        (EXPORT, vec![], two, Code::Internal, "more than one message"),
        (
            EXPORT,
            vec![],
            cut,
            Code::Internal,
            "ends within the message",
        ),
        (EXPORT, vec![], vec![], Code::Internal, "no message"),
        (
            EXPORT,
            vec![],
            vec![0, 0],
            Code::Internal,
            "ends within the message prefix",
        ),
        (
            EXPORT,
            vec![],
            framed(2, b""),
            Code::Internal,
            "compressed flag",
        ),
        (
            EXPORT,
            vec![],
            framed(1, b"x"),
            Code::Internal,
            "grpc-encoding is missing",
        ),
        (
            EXPORT,
            vec![("grpc-encoding", "gzip")],
            framed(1, b"x"),
            Code::InvalidArgument,
            "is truncated",
        ),
        (
            EXPORT,
            vec![("grpc-encoding", "br")],
            good.clone(),
            Code::Unimplemented,
            "`br` is not supported",
        ),
        (
            EXPORT,
            vec![("grpc-timeout", "soon")],
            good.clone(),
            Code::Internal,
            "grpc-timeout",
        ),
        (
            EXPORT,
            vec![],
            framed(0, &vec![0; 4 * MIB + 1]),
            Code::ResourceExhausted,
            "max_recv_msg_size_mib",
        ),
        (
            EXPORT,
            vec![("grpc-encoding", "gzip")],
            framed(1, &gzip(&vec![0; 30 * MIB])),
            Code::ResourceExhausted,
            "max_recv_msg_size_mib",
        ),
        (
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            vec![],
            good.clone(),
            Code::Unimplemented,
            "no metrics pipeline",
        ),
        (
            "/opentelemetry.proto.collector.trace.v1.TraceService/Import",
            vec![],
            good.clone(),
            Code::Unimplemented,
            "unknown method",
        ),
        (
            "/",
            vec![("content-type", grpc)],
            good.clone(),
            Code::Unimplemented,
            "unknown method",
        ),
    ];
    for (path, headers, body, code, message) in cases {
        let reply = fixture.call(path, &headers, body).await;
        assert_eq!(reply.http, StatusCode::OK);
        assert_eq!(reply.code, Some(code as i32), "{message} {reply:?}");
        assert!(reply.message.contains(message), "{message} {reply:?}");
        assert_eq!(reply.retry_delay(), None, "it is final: {message}");
    }
    let reply = fixture
        .call(EXPORT, &[("grpc-encoding", "br")], good.clone())
        .await;
    assert_eq!(
        reply.headers["grpc-accept-encoding"],
        "identity,gzip,zstd,snappy"
    );
    let reply = fixture
        .call(
            EXPORT,
            &[("content-type", "application/grpc-web")],
            good.clone(),
        )
        .await;
    assert_eq!(reply.http, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let reply = fixture
        .call(EXPORT, &[("content-type", "application/grpc+proto")], good)
        .await;
    assert_eq!(reply.code, Some(0));
    assert_eq!(fixture.sink.taken.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn budget_counts_request_overhead() {
    let fixture = Fixture::new();
    let long = "v".repeat(4000);
    for _ in 0..10 {
        let reply = fixture
            .call(EXPORT, &[("tenant", &long)], framed(0, &encoded(1)))
            .await;
        assert_eq!(reply.code, Some(0));
    }
    let batch = std::mem::size_of::<crate::pipeline::batch::Batch>();
    assert!(
        fixture.budget.used() >= 10 * (long.len() + encoded(1).len() + batch),
        "{}",
        fixture.budget.used()
    );
    fixture.sink.taken.lock().unwrap().clear();
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test]
async fn grpc_refusal_has_a_retry_delay() {
    let second = Duration::from_secs(1);
    for (nack, code, delay) in [
        (Nack::unavailable("queue full"), Code::Unavailable, None),
        (
            Nack::exhausted("queue full", 3 * second),
            Code::ResourceExhausted,
            Some(3 * second),
        ),
        (Nack::invalid("no"), Code::InvalidArgument, None),
    ] {
        let fixture = Fixture::answering(nack.clone());
        let reply = fixture.call(EXPORT, &[], framed(0, &encoded(1))).await;
        assert_eq!(
            (reply.code, reply.retry_delay()),
            (Some(code as i32), delay)
        );
        assert_eq!(reply.message, nack.reason);
        assert_eq!(fixture.budget.used(), 0);
    }
}

#[tokio::test]
async fn exhausted_budget_refuses_before_the_body_is_read() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let fixture = metrics::with_local_recorder(&recorder, Fixture::new);
    let limit = fixture.budget.limit();
    let others = fixture.budget.acquire(limit - 100).unwrap();
    let reply = fixture.call(EXPORT, &[], framed(0, &encoded(100))).await;
    assert_eq!(reply.code, Some(Code::ResourceExhausted as i32));
    assert_eq!(reply.retry_delay(), Some(Duration::from_secs(1)));
    let (status, headers, body) = fixture.post("/v1/traces", &[], encoded(100)).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(retry_delay(&body), Some(Duration::from_secs(1)));
    // The small compressed body arrives, and the decompressed body is refused.
    drop(others);
    let small = gzip(&encoded(1000));
    let others = fixture.budget.acquire(limit - small.len() - 1000).unwrap();
    let reply = fixture
        .call(EXPORT, &[("grpc-encoding", "gzip")], framed(1, &small))
        .await;
    assert_eq!(
        reply.code,
        Some(Code::ResourceExhausted as i32),
        "{reply:?}"
    );
    drop(others);
    assert_eq!(fixture.budget.used(), 0);
    let rendered = recorder.handle().render();
    let refused = |transport| {
        let labels = format!("{{receiver=\"otlp\",transport=\"{transport}\"}}");
        let series = format!("otelcol_receiver_refused_spans{labels} ");
        let line = rendered.lines().find_map(|line| line.strip_prefix(&series));
        line.map(str::to_owned)
    };
    assert_eq!(refused("grpc").as_deref(), Some("2"), "{rendered}");
    assert_eq!(refused("http").as_deref(), Some("1"));
}

#[tokio::test]
async fn request_above_budget_is_refused_permanently() {
    let fixture = Fixture::new();
    fixture.budget.reset_limit(100);
    let reply = fixture.call(EXPORT, &[], framed(0, &encoded(100))).await;
    assert_eq!(reply.code, Some(Code::ResourceExhausted as i32));
    assert_eq!(reply.retry_delay(), None, "a client must not try for ever");
    let (status, ..) = fixture.post("/v1/traces", &[], encoded(100)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn the_clients_deadline_ends_the_call_and_the_data_is_not_taken() {
    let fixture = Fixture::with("", Ok(()), true);
    let reply = fixture
        .call(EXPORT, &[("grpc-timeout", "100m")], framed(0, &encoded(1)))
        .await;
    assert_eq!(reply.code, Some(Code::DeadlineExceeded as i32));
    assert_eq!(
        fixture.budget.used(),
        0,
        "the pipeline's future was dropped"
    );
}

#[tokio::test]
async fn request_above_limit_gets_retry_delay() {
    let limits = "limits: {max_requests: 1}";
    let fixture = Fixture::configured(limits, limits, Ok(()), true);
    let body = framed(0, &encoded(1));
    let (held, ()) = tokio::join!(fixture.call(EXPORT, &[], body.clone()), async {
        fixture.sink.entered.acquire().await.unwrap().forget();
        let reply = fixture.call(EXPORT, &[], body).await;
        assert_eq!(
            reply.code,
            Some(Code::ResourceExhausted as i32),
            "{reply:?}"
        );
        assert_eq!(reply.retry_delay(), Some(Duration::from_secs(1)));
        fixture.sink.gate.as_ref().unwrap().add_permits(1);
    });
    assert_eq!(held.code, Some(0));

    // The listener of the other protocol has its own limit. Its client gets the response although it is still
    // sending.
    let (held, ()) = tokio::join!(fixture.post("/v1/traces", &[], encoded(1)), async {
        fixture.sink.entered.acquire().await.unwrap().forget();
        let (status, headers, answer) = fixture.post("/v1/traces", &[], vec![0; 200_000]).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(headers["retry-after"], "1");
        assert_eq!(retry_delay(&answer), Some(Duration::from_secs(1)));
        fixture.sink.gate.as_ref().unwrap().add_permits(1);
    });
    assert_eq!(held.0, StatusCode::OK);
    assert_eq!(fixture.items(), [1, 1]);
}
