//! Items with the same key reach the same member, and no acknowledged data is lost with a member.

use std::collections::HashMap;
use std::path::Path;

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use rcgen::SanType;
use tokio::task::JoinSet;

use crate::harness::telemetry::text;
use crate::harness::{
    Answer, Authority, Backend, Client, Collector, Oracle, Refusal, Signal, Telemetry, grpc_to,
    within, yaml,
};

fn over(members: &[&Backend], more: &str) -> String {
    let hostnames: Vec<String> = members
        .iter()
        .map(|member| format!("'{}'", member.grpc()))
        .collect();
    let resolver = format!("static: {{hostnames: [{}]}}", hostnames.join(", "));
    resolved(&resolver, more)
}

fn resolved(resolver: &str, more: &str) -> String {
    format!(
        "{{protocol: {{otlp: {{tls: {{insecure: true}}, timeout: 2s}}}}, resolver: {{{resolver}}}, \
         member_backoff: {{initial_interval: 50ms, max_interval: 100ms}}, \
         retry_on_failure: {{initial_interval: 10ms, max_interval: 100ms}}, {more}}}"
    )
}

/// Returns a request whose spans belong to distinct traces, for a distinct service.
fn varied(client: &Client, signal: Signal, items: usize, service: usize) -> Telemetry {
    let mut request = client.request(signal, items);
    let resource = Some(Resource {
        attributes: vec![text("service.name", &format!("service-{service}"))],
        ..Resource::default()
    });
    match &mut request {
        Telemetry::Traces(request) => {
            request.resource_spans[0].resource = resource;
            for (at, span) in request.resource_spans[0].scope_spans[0]
                .spans
                .iter_mut()
                .enumerate()
            {
                span.trace_id = trace(service * 100 + at);
            }
        }
        Telemetry::Metrics(request) => request.resource_metrics[0].resource = resource,
        Telemetry::Logs(request) => request.resource_logs[0].resource = resource,
        Telemetry::Profiles(request) => request.resource_profiles[0].resource = resource,
    }
    request
}

fn trace(number: usize) -> Vec<u8> {
    [u64::MAX, number as u64 + 1].map(u64::to_be_bytes).concat()
}

/// Sends all signals until the stop signal, or this many requests.
async fn send(client: Client, requests: usize) {
    for round in 0..requests {
        let signal = Signal::ALL[round % Signal::ALL.len()];
        client
            .send_until_acknowledged(&varied(&client, signal, 10, round))
            .await;
    }
}

#[tokio::test]
async fn killed_member_loses_no_acknowledged_data() {
    for queue in [
        "sending_queue: {enabled: false}",
        "sending_queue: {queue_size: 10000}",
    ] {
        let members = [
            Backend::start().await,
            Backend::start().await,
            Backend::start().await,
        ];
        let all: Vec<&Backend> = members.iter().collect();
        let exporter = over(&all, queue);
        let collector = Collector::start(&yaml(&[], &[("load_balancing", &exporter)])).await;
        let oracle = Oracle::default();
        let mut clients = JoinSet::new();
        for number in 0..4 {
            let client = Client::grpc(&number.to_string(), collector.grpc(), &oracle).await;
            clients.spawn(send(client, 80));
        }
        let share = |record: &crate::harness::backend::Record| record.arrivals.len() > 50;
        members[1].wait_for("its share", share).await;
        members[1].stop().await;
        let before = members[2].record().arrivals.len();
        let more =
            move |record: &crate::harness::backend::Record| record.arrivals.len() > before + 200;
        members[2].wait_for("more than its share", more).await;
        members[1].restart();
        while clients.join_next().await.is_some() {}
        oracle.wait_for_delivery_among(&all).await;
        let metrics = collector.assert_conservation().await;
        assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
        let failed = [("success", "false")];
        assert!(metrics.sum("otelcol_loadbalancer_backend_outcome", &failed) > 0.0);
        assert!(metrics.sum("otelcol_loadbalancer_backend_latency_count", &[]) > 0.0);
        assert_eq!(metrics.sum("otelcol_loadbalancer_num_backends", &[]), 3.0);
    }
}

#[tokio::test]
async fn traces_and_services_reach_one_member_each_from_every_sender() {
    let members = [
        Backend::start().await,
        Backend::start().await,
        Backend::start().await,
    ];
    let all: Vec<&Backend> = members.iter().collect();
    let exporter = over(&all, "");
    // The order of the members in the configuration has no effect.
    let reversed: Vec<&Backend> = members.iter().rev().collect();
    let other = over(&reversed, "");
    let batch = ("batch", "{timeout: 5ms, send_batch_size: 100}");
    let senders = [
        Collector::start(&yaml(&[], &[("loadbalancing", &exporter)])).await,
        Collector::start(&yaml(&[batch], &[("load_balancing", &other)])).await,
    ];
    let oracle = Oracle::default();
    for (number, sender) in senders.iter().enumerate() {
        let client = Client::http(&number.to_string(), sender.http(), &oracle);
        for service in 0..40 {
            for signal in Signal::ALL {
                client
                    .send(&varied(&client, signal, 5, service))
                    .await
                    .unwrap();
            }
        }
    }
    oracle.wait_for_delivery_among(&all).await;
    let mut owner: HashMap<Vec<u8>, usize> = HashMap::new();
    for (number, member) in members.iter().enumerate() {
        let record = member.record();
        assert!(!record.accepted.is_empty(), "a member has nothing");
        for accepted in &record.accepted {
            for key in keys(&accepted.telemetry) {
                let before = *owner.entry(key).or_insert(number);
                assert_eq!(before, number, "a key is at two members");
            }
        }
    }
    // 40 services, each with one member for all signals but traces, and 5 traces of each.
    assert_eq!(owner.len(), 40 + 40 * 5);
}

/// The traces of spans, and the services of all else.
fn keys(telemetry: &Telemetry) -> Vec<Vec<u8>> {
    let service = |resource: &Option<Resource>| {
        let attributes = &resource.as_ref().unwrap().attributes;
        attributes[0].value.as_ref().unwrap().encode_to_vec()
    };
    match telemetry {
        Telemetry::Traces(request) => {
            let resources = request.resource_spans.iter();
            let scopes = resources.flat_map(|resource| &resource.scope_spans);
            let spans = scopes.flat_map(|scope| &scope.spans);
            spans.map(|span| span.trace_id.clone()).collect()
        }
        Telemetry::Metrics(request) => {
            let resources = request.resource_metrics.iter();
            resources.map(|entry| service(&entry.resource)).collect()
        }
        Telemetry::Logs(request) => {
            let resources = request.resource_logs.iter();
            resources.map(|entry| service(&entry.resource)).collect()
        }
        Telemetry::Profiles(request) => {
            let resources = request.resource_profiles.iter();
            resources.map(|entry| service(&entry.resource)).collect()
        }
    }
}

#[tokio::test]
async fn changes_of_the_member_file_are_applied() {
    let members = [
        Backend::start().await,
        Backend::start().await,
        Backend::start().await,
    ];
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("members.yaml");
    write(&file, &members[..2]);
    let exporter = resolved(&format!("file: {{path: '{}'}}", file.display()), "");
    let collector = Collector::start(&yaml(&[], &[("load_balancing", &exporter)])).await;
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    for service in 0..20 {
        client
            .send(&varied(&client, Signal::Logs, 2, service))
            .await
            .unwrap();
    }
    oracle.wait_for_delivery_among(&members.each_ref()).await;
    assert!(members[2].record().accepted.is_empty());

    let before = members[0].record().attempts;
    write(&file, &members[1..]);
    collector
        .wait_for_metrics("the new members", |metrics| {
            metrics.sum("otelcol_loadbalancer_num_backend_updates", &[]) == 2.0
        })
        .await;
    for service in 0..20 {
        client
            .send(&varied(&client, Signal::Profiles, 2, service))
            .await
            .unwrap();
    }
    oracle.wait_for_delivery_among(&members.each_ref()).await;
    assert_eq!(
        members[0].record().attempts,
        before,
        "a member that is gone got something"
    );
    assert!(!members[2].record().accepted.is_empty());
    collector.assert_conservation().await;
}

fn write(file: &Path, members: &[Backend]) {
    let targets: Vec<String> = members
        .iter()
        .map(|member| format!("'{}'", member.grpc()))
        .collect();
    std::fs::write(file, format!("- targets: [{}]\n", targets.join(", "))).unwrap();
}

#[tokio::test]
async fn client_is_refused_without_members() {
    let members = [Backend::start().await, Backend::start().await];
    let exporter = over(
        &members.each_ref(),
        "sending_queue: {enabled: false}, retry_on_failure: {enabled: false}",
    )
    .replace(
        "retry_on_failure: {initial_interval: 10ms, max_interval: 100ms}, ",
        "",
    );
    let collector = Collector::start(&yaml(&[], &[("load_balancing", &exporter)])).await;
    members[0].stop().await;
    members[1].always(Answer::Refuse(Refusal::UNAVAILABLE));
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    let request = varied(&client, Signal::Traces, 20, 1);
    let refused = client.send(&request).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused:?}");
    members[1].always(Answer::Accept);
    within(
        "a member that is back",
        client.send_until_acknowledged(&request),
    )
    .await;
    oracle.wait_for_delivery_among(&members.each_ref()).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn backlog_on_disk_goes_to_current_members() {
    let members = [Backend::start().await, Backend::start().await];
    members[0].stop().await;
    members[1].stop().await;
    let directory = tempfile::TempDir::new().unwrap();
    let storage = format!(
        "extensions:\n  file_storage: {{directory: '{}'}}\n",
        directory.path().display()
    );
    let queue = "sending_queue: {storage: file_storage, sizer: bytes, queue_size: 50000000}";
    let config = |members: &[&Backend]| {
        let pipelines = yaml(&[], &[("load_balancing", &over(members, queue))]);
        storage.clone()
            + &pipelines.replace("service:\n", "service:\n  extensions: [file_storage]\n")
    };
    let oracle = Oracle::default();
    let collector = Collector::start(&config(&[&members[0]])).await;
    let client = Client::http("client", collector.http(), &oracle);
    for service in 0..10 {
        for signal in Signal::ALL {
            client
                .send(&varied(&client, signal, 5, service))
                .await
                .unwrap();
        }
    }
    collector.signal("KILL");
    drop(collector);
    members[1].restart();
    let collector = Collector::start(&config(&members.each_ref())).await;
    oracle.wait_for_delivery(&members[1]).await;
    let metrics = collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
}

#[tokio::test]
async fn resolved_members_need_a_certificate_for_their_name() {
    let (authority, backend) = (Authority::new(), Backend::start().await);
    let leaf = authority.leaf_of(|params| {
        // The certificate is for the name, not for the address.
        params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
    });
    let (certificate, key) = (authority.file("member.pem"), authority.file("member.key"));
    leaf.write(&certificate, &key);
    let server = format!(
        "endpoint: '127.0.0.1:0', tls: {{cert_file: '{}', key_file: '{}', client_ca_file: '{}'}}",
        certificate.display(),
        key.display(),
        authority.file("ca.pem").display()
    );
    let to_backend = grpc_to(&backend, "");
    let member =
        yaml(&[], &[("otlp_grpc", &to_backend)]).replace("endpoint: '127.0.0.1:0'", &server);
    let member = Collector::start(&member).await;
    let sender = |resolver: &str| {
        let tls = format!(
            "{{ca_file: '{}', {}}}",
            authority.file("ca.pem").display(),
            authority.certificate("sender")
        );
        let exporter = format!(
            "{{protocol: {{otlp: {{tls: {tls}}}}}, resolver: {{{resolver}}}, sending_queue: {{enabled: false}}, \
             retry_on_failure: {{enabled: false}}}}"
        );
        yaml(&[], &[("load_balancing", &exporter)])
    };
    let by_name = format!(
        "dns: {{hostname: localhost, port: {}}}",
        member.grpc().port()
    );
    let by_name = Collector::start(&sender(&by_name)).await;
    let oracle = Oracle::default();
    let client = Client::http("by name", by_name.http(), &oracle);
    for signal in Signal::ALL {
        client.send(&client.request(signal, 3)).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    let by_address = format!("static: {{hostnames: ['{}']}}", member.grpc());
    let by_address = Collector::start(&sender(&by_address)).await;
    let client = Client::http("by address", by_address.http(), &oracle);
    let refused = client
        .send(&client.request(Signal::Logs, 3))
        .await
        .unwrap_err();
    assert!(
        refused.is_retryable() && refused.message.contains("certificate"),
        "{refused:?}"
    );
}
