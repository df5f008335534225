//! Without a queue, the client receives the response of the next hop, in the terms of its own protocol.

use std::time::Duration;

use tonic::Code;

use crate::harness::{Answer, Backend, Client, Collector, Oracle, Refusal, Refused, Signal, yaml};

const DELAY: Option<Duration> = Some(Duration::from_secs(2));
const SECOND: Option<Duration> = Some(Duration::from_secs(1));

/// Response to a client over gRPC and over HTTP: code, status, and retry delay.
struct ClientOutcome {
    code: Code,
    status: u16,
    retry_after: Option<Duration>,
}

const fn outcome(code: Code, status: u16, retry_after: Option<Duration>) -> ClientOutcome {
    ClientOutcome {
        code,
        status,
        retry_after,
    }
}

struct Matrix {
    backend: Backend,
    collector: Collector,
    oracle: Oracle,
    grpc: Client,
    http: Client,
    refusals: f64,
}

impl Matrix {
    async fn new(exporter: &str, endpoint: impl Fn(&Backend) -> String) -> Self {
        let backend = Backend::start().await;
        let body = format!(
            "{{endpoint: '{}', tls: {{insecure: true}}, sending_queue: {{enabled: false}}, \
             retry_on_failure: {{enabled: false}}}}",
            endpoint(&backend)
        );
        let collector = Collector::start(&yaml(&[], &[(exporter, &body)])).await;
        let oracle = Oracle::default();
        Matrix {
            grpc: Client::grpc("grpc", collector.grpc(), &oracle).await,
            http: Client::http("http", collector.http(), &oracle),
            backend,
            collector,
            oracle,
            refusals: 0.0,
        }
    }

    /// Makes the backend refuse requests, and compares the refusals that clients of both protocols receive.
    async fn check(&mut self, refusal: Refusal, expected: ClientOutcome) {
        self.backend.always(Answer::Refuse(refusal.clone()));
        for signal in [Signal::Traces, Signal::Profiles] {
            let heard = self.grpc.send(&self.grpc.request(signal, 1)).await;
            let heard = heard.unwrap_err();
            assert!(heard.message.contains(refusal.message), "{heard:?}");
            let expected_over_grpc = Refused {
                code: expected.code,
                http: None,
                message: heard.message.clone(),
                retry_after: expected.retry_after,
            };
            assert_eq!(heard, expected_over_grpc, "{refusal:?}");

            let heard = self.http.send(&self.http.request(signal, 1)).await;
            let heard = heard.unwrap_err();
            assert!(heard.message.contains(refusal.message), "{heard:?}");
            let expected_over_http = Refused {
                code: expected.code,
                http: Some(expected.status),
                message: heard.message.clone(),
                retry_after: expected.retry_after,
            };
            assert_eq!(heard, expected_over_http, "{refusal:?}");
            self.refusals += 2.0;
        }
    }

    /// Refused items are counted as refused, and later items arrive.
    async fn finish(self) {
        self.backend.always(Answer::Accept);
        self.grpc
            .send(&self.grpc.request(Signal::Logs, 3))
            .await
            .unwrap();
        self.http
            .send(&self.http.request(Signal::Metrics, 2))
            .await
            .unwrap();
        assert_eq!(self.oracle.wait_for_delivery(&self.backend).await, 0);
        assert_eq!(self.backend.record().arrivals.len(), 5);
        let metrics = self.collector.assert_conservation().await;
        assert_eq!(
            metrics.sum("tributary_pipeline_refused_items", &[]),
            self.refusals
        );
        assert_eq!(metrics.sum("tributary_pipeline_forwarded_items", &[]), 5.0);
        assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
    }
}

#[tokio::test]
async fn grpc_statuses_reach_client_over_both_protocols() {
    let mut matrix = Matrix::new("otlp_grpc", |backend| backend.grpc().to_string()).await;
    let refusal = |grpc, retry_after| Refusal {
        grpc,
        http: 0,
        retry_after,
        message: "because of the backend",
    };
    // Retryable by the specification: passed on with the retry delay, if any.
    for code in [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DataLoss,
    ] {
        matrix
            .check(refusal(code, None), outcome(code, 503, None))
            .await;
        matrix
            .check(refusal(code, DELAY), outcome(code, 503, DELAY))
            .await;
    }
    // Retryable only with RetryInfo.
    let exhausted = Code::ResourceExhausted;
    matrix
        .check(refusal(exhausted, None), outcome(exhausted, 413, None))
        .await;
    matrix
        .check(refusal(exhausted, DELAY), outcome(exhausted, 429, DELAY))
        .await;
    // Permanent errors, regardless of RetryInfo.
    for (code, status) in [
        (Code::Unknown, 500),
        (Code::InvalidArgument, 400),
        (Code::NotFound, 500),
        (Code::AlreadyExists, 500),
        (Code::PermissionDenied, 403),
        (Code::FailedPrecondition, 500),
        (Code::Unimplemented, 404),
        (Code::Internal, 500),
        (Code::Unauthenticated, 401),
    ] {
        matrix
            .check(refusal(code, None), outcome(code, status, None))
            .await;
        matrix
            .check(refusal(code, DELAY), outcome(code, status, None))
            .await;
    }
    matrix.finish().await;
}

#[tokio::test]
async fn http_statuses_reach_client_over_both_protocols() {
    let mut matrix = Matrix::new("otlp_http", |backend| format!("http://{}", backend.http())).await;
    let refusal = |http, retry_after| Refusal {
        grpc: Code::Unknown,
        http,
        retry_after,
        message: "because of the backend",
    };
    // Without Retry-After, 429 is retried too, after a delay that the client chooses.
    matrix
        .check(
            refusal(429, None),
            outcome(Code::ResourceExhausted, 429, SECOND),
        )
        .await;
    matrix
        .check(
            refusal(429, DELAY),
            outcome(Code::ResourceExhausted, 429, DELAY),
        )
        .await;
    for status in [502, 503, 504] {
        for delay in [None, DELAY] {
            matrix
                .check(
                    refusal(status, delay),
                    outcome(Code::Unavailable, 503, delay),
                )
                .await;
        }
    }
    for (status, code, told_status) in [
        (400, Code::InvalidArgument, 400),
        (401, Code::Unauthenticated, 401),
        (403, Code::PermissionDenied, 403),
        (404, Code::Unimplemented, 404),
        (405, Code::Unimplemented, 404),
        (408, Code::Unknown, 500),
        (413, Code::ResourceExhausted, 413),
        (422, Code::InvalidArgument, 400),
        (500, Code::Internal, 500),
        (501, Code::Unimplemented, 404),
    ] {
        matrix
            .check(refusal(status, None), outcome(code, told_status, None))
            .await;
        matrix
            .check(refusal(status, DELAY), outcome(code, told_status, None))
            .await;
    }
    matrix.finish().await;
}
