//! The failure of one rack does not affect the sender: the other rack gets all items, and the first rack gets them
//! again after its recovery.

use crate::harness::{Answer, Backend, Client, Collector, Oracle, Refusal, Signal};

fn config(first: &Backend, second: &Backend, queue: &str) -> String {
    let exporter = |name: &str, backend: &Backend| {
        format!(
            "  otlp_grpc/{name}: {{endpoint: '{}', tls: {{insecure: true}}, timeout: 2s, \
             sending_queue: {{enabled: false}}, retry_on_failure: {{enabled: false}}}}\n",
            backend.grpc()
        )
    };
    let level = |name: &str| {
        let ids = Signal::ALL.map(|signal| format!("{signal}/{name}"));
        format!("[{}]", ids.join(", "))
    };
    let mut pipelines = String::new();
    for signal in Signal::ALL {
        pipelines += &format!("    {signal}: {{receivers: [otlp], exporters: [failover]}}\n");
        for name in ["first", "second"] {
            let body = format!("{{receivers: [failover], exporters: [otlp_grpc/{name}]}}");
            pipelines += &format!("    {signal}/{name}: {body}\n");
        }
    }
    format!(
        "receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '127.0.0.1:0'}}
      http: {{endpoint: '127.0.0.1:0'}}
connectors:
  failover: {{priority_levels: [{}, {}], retry_interval: 50ms{queue}}}
exporters:
{}{}service:
  pipelines:
{pipelines}",
        level("first"),
        level("second"),
        exporter("first", first),
        exporter("second", second),
    )
}

#[tokio::test]
async fn second_rack_serves_while_the_first_is_down() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let collector = Collector::start(&config(&first, &second, "")).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for signal in Signal::ALL {
        client.send(&client.request(signal, 3)).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&first).await, 0);
    assert!(second.record().accepted.is_empty());

    first.stop().await;
    for _ in 0..20 {
        for signal in Signal::ALL {
            client.send(&client.request(signal, 3)).await.unwrap();
        }
    }
    assert_eq!(second.record().arrivals.len(), 20 * 4 * 3);
    let metrics = collector.metrics().await;
    for signal in Signal::ALL {
        let labels = [("connector", "failover"), ("otel_signal", signal.name())];
        assert_eq!(
            metrics.sum("tributary_connector_failover_level", &labels),
            2.0
        );
        assert_eq!(
            metrics.sum("otelcol_connector_failover_count", &labels),
            1.0
        );
    }

    first.restart();
    let before = first.record().arrivals.len();
    while first.record().arrivals.len() < before + 60 {
        for signal in Signal::ALL {
            client.send(&client.request(signal, 3)).await.unwrap();
        }
    }
    collector
        .wait_for("A higher level accepts data again; returning to it.")
        .await;
    oracle.wait_for_delivery_among(&[&first, &second]).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn client_is_refused_while_both_racks_are_down() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    first.always(Answer::Refuse(Refusal::UNAVAILABLE));
    second.stop().await;
    let collector = Collector::start(&config(&first, &second, "")).await;
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    let requests = Signal::ALL.map(|signal| client.request(signal, 3));
    for request in &requests {
        let refused = client.send(request).await.unwrap_err();
        assert!(refused.is_retryable(), "{refused:?}");
    }
    second.restart();
    for request in &requests {
        client.send_until_acknowledged(request).await;
    }
    assert_eq!(oracle.wait_for_delivery(&second).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn failover_queue_keeps_data_while_both_racks_refuse() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    first.stop().await;
    second.stop().await;
    let queue = ", sending_queue: {queue_size: 1000}";
    let collector = Collector::start(&config(&first, &second, queue)).await;
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    for signal in Signal::ALL {
        client.send(&client.request(signal, 3)).await.unwrap();
    }
    collector.assert_conservation_in_flight().await;
    second.restart();
    // The queue retries every few seconds.
    oracle.wait_for_delivery_among(&[&first, &second]).await;
    let metrics = collector.assert_conservation().await;
    let queue = [("exporter", "failover")];
    assert_eq!(
        metrics.sum("tributary_exporter_delivered_items", &queue),
        12.0
    );
}
