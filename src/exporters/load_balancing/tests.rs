//! Tests of the exporter with members on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use super::*;
use crate::pipeline::batch::Code;
use crate::queue::{Encoded, Outcome, SendError};
use crate::testing::Recorded;
use tributary_net::client::test_server::{Answer, TestServer, answer, header_map};
use tributary_otlp::Requests;

/// Behaviour of a member for a request with a number of spans; `None` closes the connection.
type Manner = fn(usize) -> Option<&'static [(&'static str, &'static str)]>;

struct Cluster {
    servers: Vec<TestServer>,
    balancer: Balancer,
    members: Arc<Members>,
}

const TAKES: Manner = |_| Some(OK);
const OK: &[(&str, &str)] = &[("grpc-status", "0")];
const UNAVAILABLE: &[(&str, &str)] = &[("grpc-status", "14")];
const INVALID: &[(&str, &str)] = &[("grpc-status", "3")];

fn said(status: &[(&'static str, &'static str)]) -> Answer {
    if status == OK {
        let headers = header_map(&[("content-type", "application/grpc")]);
        return answer(200, headers, &[0; 5], header_map(OK));
    }
    answer(200, header_map(status), b"", HeaderMap::new())
}

fn decoded(body: &[u8]) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(&body[5..]).unwrap()
}

fn spans(request: &ExportTraceServiceRequest) -> Vec<Span> {
    let resources = request.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

impl Cluster {
    async fn start(yaml: &str, manners: &[Manner]) -> Self {
        let mut servers = Vec::new();
        for manner in manners.iter().copied() {
            let server = TestServer::start(None, move |request| {
                manner(spans(&decoded(request.body())).len()).map(said)
            });
            servers.push(server.await);
        }
        Cluster::over(servers, yaml)
    }

    fn over(servers: Vec<TestServer>, yaml: &str) -> Self {
        let mut config: Config = serde_yaml::from_str(yaml).unwrap();
        config.protocol.otlp.tls.insecure = true;
        config.protocol.otlp.compression = crate::exporters::otlp_grpc::GrpcCompression::None;
        let id: tributary_config::ComponentId = "load_balancing".parse().unwrap();
        let maker = MemberSettings {
            id: id.clone(),
            otlp: config.protocol.otlp.clone(),
            tls: None,
            auth: None,
            backoff: config.member_backoff.clone(),
            budget: tributary_memory::Budget::new(1 << 30),
        };
        let members = Arc::new(Members::new(maker, ResolverMetrics::new(&id, "static")));
        let balancer = Balancer::new(
            members.clone(),
            Keys::new(&config),
            config.hash_balance_factor,
            tributary_memory::Budget::new(1 << 30),
        );
        let cluster = Cluster {
            servers,
            balancer,
            members,
        };
        cluster.resolve(0..cluster.servers.len());
        cluster
    }

    /// Keeps the servers and forgets all state about them.
    fn anew(self) -> Self {
        Cluster::over(self.servers, "{}")
    }

    /// Replaces the members.
    fn resolve(&self, servers: impl IntoIterator<Item = usize>) {
        let addresses = servers
            .into_iter()
            .map(|at| self.servers[at].address.to_string());
        self.members.resolved(&addresses.collect());
    }

    async fn send(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        self.balancer.send(batch).await
    }

    /// Returns the names of spans sent to each member, whether accepted or not.
    fn sent(&self) -> Vec<Vec<String>> {
        let names = |server: &TestServer| {
            let requests = server.requests.lock().unwrap();
            let spans = requests
                .iter()
                .flat_map(|request| spans(&decoded(request.body())));
            spans.map(|span| span.name).collect()
        };
        self.servers.iter().map(names).collect()
    }

    fn forget(&self) {
        for server in &self.servers {
            server.requests.lock().unwrap().clear();
        }
    }
}

/// Returns a batch with two spans of each trace in the range.
fn traces(range: std::ops::Range<u64>) -> Encoded {
    let span = |number: u64| Span {
        trace_id: [number + 1, 0].map(u64::to_be_bytes).concat(),
        name: number.to_string(),
        ..Span::default()
    };
    let spans: Vec<Span> = range.clone().chain(range).map(span).collect();
    let items = spans.len();
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    encoded(items, Bytes::from(request.encode_to_vec()).into())
}

fn encoded(items: usize, requests: Requests) -> Encoded {
    Encoded {
        signal: Signal::Traces,
        items,
        chunks: requests.parts().to_vec().into(),
        retained_bytes: 0,
        identity: Arc::default(),
    }
}

/// Returns the member of each span; every span must be at exactly one member.
fn owners(sent: &[Vec<String>]) -> BTreeMap<String, usize> {
    let mut owners = BTreeMap::new();
    for (member, names) in sent.iter().enumerate() {
        for name in names {
            let before = owners.insert(name.clone(), member);
            assert!(
                before.is_none_or(|before| before == member),
                "{name} is at two members"
            );
        }
    }
    owners
}

#[tokio::test]
async fn spans_of_trace_reach_one_member() {
    let cluster = Cluster::start("{}", &[TAKES; 3]).await;
    for first in 0..20 {
        let outcome = cluster.send(&traces(first..first + 30)).await;
        assert_eq!(outcome, Ok(Outcome::default()));
    }
    let sent = cluster.sent();
    assert_eq!(sent.iter().map(Vec::len).sum::<usize>(), 20 * 60);
    let owners = owners(&sent);
    assert_eq!(owners.len(), 49);
    assert!(sent.iter().all(|names| !names.is_empty()));
}

#[tokio::test]
async fn removed_member_moves_only_its_traces() {
    let cluster = Cluster::start("{}", &[TAKES; 3]).await;
    cluster.send(&traces(0..60)).await.unwrap();
    let before = owners(&cluster.sent());
    cluster.forget();
    cluster.resolve([0, 2]);
    cluster.send(&traces(0..60)).await.unwrap();
    let after = owners(&cluster.sent());
    for (trace, was) in &before {
        assert!(*was == 1 || after[trace] == *was, "{trace} moved");
        assert_ne!(after[trace], 1);
    }
    cluster.forget();
    cluster.resolve(0..3);
    cluster.send(&traces(0..60)).await.unwrap();
    assert_eq!(owners(&cluster.sent()), before);
}

#[tokio::test]
async fn refused_share_goes_to_the_next_member_only() {
    let refusing: [Manner; 2] = [|_| Some(UNAVAILABLE), |_| None];
    for failing in refusing {
        let cluster = Cluster::start("{}", &[|_| Some(OK), failing, |_| Some(OK)]).await;
        cluster.resolve([0, 2]);
        cluster.send(&traces(0..60)).await.unwrap();
        let without = owners(&cluster.sent());
        cluster.forget();
        cluster.resolve(0..3);
        assert_eq!(cluster.send(&traces(0..60)).await, Ok(Outcome::default()));
        let sent = cluster.sent();
        assert!(!sent[1].is_empty(), "the failing member has no traces");
        // Each span arrives once, at the member that owns it without the failing member.
        let standing = [sent[0].clone(), Vec::new(), sent[2].clone()];
        assert_eq!(standing.iter().map(Vec::len).sum::<usize>(), 120);
        assert_eq!(owners(&standing), without);
        // The failed member gets no requests.
        cluster.forget();
        cluster.send(&traces(0..60)).await.unwrap();
        assert!(cluster.sent()[1].is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn silent_member_times_out_once_and_is_probed_once() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::start("{protocol: {otlp: {timeout: 2s}}}", &[|_| Some(OK)]).await;
    let both = [cluster.servers[0].address, silent.local_addr().unwrap()];
    let addresses: BTreeSet<String> = both.iter().map(ToString::to_string).collect();
    cluster.members.resolved(&addresses);
    let began = Instant::now();
    cluster.send(&traces(0..50)).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2));
    let again = Instant::now();
    cluster.send(&traces(0..50)).await.unwrap();
    assert!(
        again.elapsed() < Duration::from_secs(1),
        "{:?}",
        again.elapsed()
    );
    assert_eq!(cluster.sent()[0].len(), 200);
    tokio::time::advance(Duration::from_secs(10)).await;
    let (first, second) = (traces(0..50), traces(0..50));
    let slow = AtomicUsize::new(0);
    let timed = async |batch: &Encoded| {
        let began = Instant::now();
        cluster.send(batch).await.unwrap();
        if began.elapsed() >= Duration::from_secs(2) {
            slow.fetch_add(1, SeqCst);
        }
    };
    tokio::join!(timed(&first), timed(&second));
    assert_eq!(
        slow.load(SeqCst),
        1,
        "more than one request asks whether it is back"
    );
}

#[tokio::test]
async fn failed_members_refuse_with_retry_delay() {
    let cluster = Cluster::start("{}", &[|_| Some(UNAVAILABLE), |_| Some(UNAVAILABLE)]).await;
    let error = cluster.send(&traces(0..20)).await.unwrap_err();
    assert!(error.retryable && error.throttle.is_some(), "{error:?}");
    assert!(
        error.reason.contains("no member accepted the request"),
        "{error}"
    );
    cluster.forget();
    let error = cluster.send(&traces(0..20)).await.unwrap_err();
    assert!(error.reason.contains("members failed recently"), "{error}");
    assert!(cluster.sent().iter().all(Vec::is_empty));
    cluster.resolve([]);
    let error = cluster.send(&traces(0..20)).await.unwrap_err();
    assert!(
        error.retryable && error.reason.contains("there are no members"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn accepted_share_is_not_retried() {
    static UP: AtomicUsize = AtomicUsize::new(0);
    let recovering: Manner = |_| match UP.load(SeqCst) {
        0 => Some(UNAVAILABLE),
        _ => Some(OK),
    };
    let full: Manner = |spans| match (UP.load(SeqCst), spans) {
        // Accepts its own spans and refuses those of the other member.
        (0, ..40) => Some(UNAVAILABLE),
        _ => Some(OK),
    };
    let cluster = Cluster::start("{}", &[recovering, full]).await;
    // Enough spans that the second member owns forty and the first member fewer.
    let owners_of = {
        let candidates = cluster.servers.iter().map(|server| {
            let seed = rendezvous::seed(&server.address.to_string());
            (seed, 0)
        });
        let mut candidates = rendezvous::Candidates::new(candidates.collect(), 0);
        move |number: u64| {
            let id = [number + 1, 0].map(u64::to_be_bytes).concat();
            candidates
                .choose(xxhash_rust::xxh3::xxh3_64(&id), 1)
                .unwrap()
        }
    };
    let mut owners_of = owners_of;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for number in 0..1000 {
        match owners_of(number) {
            0 if first.len() < 5 => first.push(number),
            1 if second.len() < 30 => second.push(number),
            _ => {}
        }
    }
    let chunks: Requests = first
        .iter()
        .chain(&second)
        .flat_map(|number| traces(*number..number + 1).chunks.to_vec())
        .collect();
    let batch = encoded(70, chunks);
    let error = cluster.send(&batch).await.unwrap_err();
    assert!(error.retryable, "{error}");
    cluster.forget();
    UP.store(1, SeqCst);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(cluster.send(&batch).await, Ok(Outcome::default()));
    let again: BTreeSet<String> = cluster.sent().concat().into_iter().collect();
    let left: BTreeSet<String> = first.iter().map(ToString::to_string).collect();
    assert_eq!(again, left);
}

#[tokio::test(start_paused = true)]
async fn timed_out_attempt_resends_unaccepted_shares_only() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::start("{protocol: {otlp: {timeout: 1h}}}", &[TAKES]).await;
    let both = [cluster.servers[0].address, silent.local_addr().unwrap()];
    cluster
        .members
        .resolved(&both.iter().map(ToString::to_string).collect());
    let batch = traces(0..50);
    let over = tokio::time::timeout(Duration::from_secs(5), cluster.send(&batch));
    assert!(over.await.is_err());
    let accepted: BTreeSet<String> = cluster.sent().concat().into_iter().collect();
    assert!((1..50).contains(&accepted.len()), "{accepted:?}");
    cluster.forget();
    cluster.resolve([0]);
    assert_eq!(cluster.send(&batch).await, Ok(Outcome::default()));
    let again: BTreeSet<String> = cluster.sent().concat().into_iter().collect();
    assert!(again.is_disjoint(&accepted));
    assert_eq!(again.len() + accepted.len(), 50);
}

#[tokio::test]
async fn share_refused_permanently_is_rejected_alone() {
    // A batch merges requests of many clients; the request with three spans is invalid.
    let picky: Manner = |_| Some(OK);
    let cluster = Cluster::start("{routing_key: service}", &[picky]).await;
    let strict = TestServer::start(None, |request| {
        let bad = spans(&decoded(request.body()))
            .iter()
            .any(|span| span.name == "7");
        Some(said(if bad { INVALID } else { OK }))
    })
    .await;
    cluster
        .members
        .resolved(&BTreeSet::from([strict.address.to_string()]));
    let chunks: Requests = (0..16)
        .flat_map(|number| traces(number..number + 1).chunks.to_vec())
        .collect();
    let outcome = cluster.send(&encoded(32, chunks)).await.unwrap();
    assert_eq!(outcome.rejected_items, 2, "{outcome:?}");
    assert!(outcome.message.contains("InvalidArgument"), "{outcome:?}");
    // Alone, the request is refused as by any exporter.
    let error = cluster.send(&traces(7..8)).await.unwrap_err();
    assert_eq!(
        (error.retryable, error.code),
        (false, Code::InvalidArgument)
    );
    // The refusal does not affect the member's health.
    assert_eq!(cluster.send(&traces(1..2)).await, Ok(Outcome::default()));
}

#[tokio::test]
async fn bad_requests_at_many_members_are_dropped_alone() {
    let mut servers = Vec::new();
    for _ in 0..6 {
        let server = TestServer::start(None, |request| {
            let bad = |span: &Span| span.name.ends_with("25");
            let bad = spans(&decoded(request.body())).iter().any(bad);
            Some(said(if bad { INVALID } else { OK }))
        });
        servers.push(server.await);
    }
    let cluster = Cluster::over(servers, "{}");
    let chunks: Requests = (0..800)
        .flat_map(|number| traces(number..number + 1).chunks.to_vec())
        .collect();
    let outcome = cluster.send(&encoded(1600, chunks)).await.unwrap();
    // 25, 125, ... 725, each with two spans.
    assert_eq!(outcome.rejected_items, 16, "{outcome:?}");
}

#[tokio::test]
async fn member_with_own_trouble_loses_no_data() {
    const STRANGER: &[(&str, &str)] = &[("grpc-status", "16")];
    let cluster = Cluster::start("{}", &[|_| Some(STRANGER), TAKES]).await;
    let outcome = cluster.send(&traces(0..50)).await;
    assert_eq!(outcome, Ok(Outcome::default()));
    assert_eq!(cluster.sent()[1].len(), 100);
    // If all members refuse for the same reason, the refusal is permanent.
    let alone = Cluster::start("{}", &[|_| Some(STRANGER)]).await;
    let error = alone.send(&traces(0..1)).await.unwrap_err();
    assert_eq!(
        (error.retryable, error.code),
        (false, Code::Unauthenticated)
    );
}

#[tokio::test]
async fn failure_of_one_signal_does_not_affect_other_signals() {
    let cluster = Cluster::start("{}", &[|_| Some(UNAVAILABLE)]).await;
    cluster.send(&traces(0..1)).await.unwrap_err();
    let admitted = |signal| cluster.members.admit(signal, &[]).len();
    assert_eq!((admitted(Signal::Traces), admitted(Signal::Logs)), (0, 1));
}

#[tokio::test]
async fn trace_above_bound_goes_to_next_member() {
    let cluster = Cluster::start("{hash_balance_factor: 110}", &[TAKES; 4]).await;
    cluster.send(&traces(0..400)).await.unwrap();
    let sent = cluster.sent();
    let _ = owners(&sent);
    for names in &sent {
        // 200 on average, plus the granularity of two spans.
        assert!(names.len() <= 222, "{}", names.len());
    }
}

#[tokio::test]
async fn metrics_have_names_of_the_collector() {
    let recorded = Recorded::new();
    let cluster = Cluster::start("{}", &[|_| Some(OK), |_| Some(UNAVAILABLE)]).await;
    let cluster = recorded.within(|| cluster.anew());
    cluster.send(&traces(0..40)).await.unwrap();
    assert_eq!(recorded.sum("otelcol_loadbalancer_num_backends"), 2.0);
    assert_eq!(
        recorded.sum("otelcol_loadbalancer_num_backend_updates"),
        1.0
    );
    assert_eq!(recorded.sum("otelcol_loadbalancer_num_resolutions"), 1.0);
    // Each member got its share; the second member's share went to the first.
    assert_eq!(recorded.sum("otelcol_loadbalancer_backend_outcome"), 3.0);
}

/// Keys of all signals, by their parts.
mod of_keys {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use opentelemetry_proto::tonic::resource::v1::Resource;

    use super::*;
    use tributary_otlp::partition::partition;
    use tributary_profiles::testing_requests::named;

    fn keys(yaml: &str) -> Keys {
        Keys::new(&serde_yaml::from_str(yaml).unwrap())
    }

    fn pair(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(value.to_owned())),
            }),
            ..KeyValue::default()
        }
    }

    fn log(resource: &[(&str, &str)], own: &[(&str, &str)], trace: u8) -> Bytes {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| pair(k, v)).collect();
        let request = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(Resource {
                    attributes: pairs(resource),
                    ..Resource::default()
                }),
                scope_logs: vec![ScopeLogs {
                    log_records: vec![LogRecord {
                        attributes: pairs(own),
                        trace_id: vec![trace; 16],
                        ..LogRecord::default()
                    }],
                    ..ScopeLogs::default()
                }],
                ..ResourceLogs::default()
            }],
        };
        request.encode_to_vec().into()
    }

    fn key_of(keys: &Keys, request: &Bytes) -> u64 {
        let found = Mutex::new(0);
        let mut hasher = keys.hasher(Signal::Logs);
        partition(Signal::Logs, request, keys.grain(Signal::Logs), |place| {
            *found.lock().unwrap() = hasher.key(place);
            0
        });
        found.into_inner().unwrap()
    }

    #[test]
    fn all_signals_of_a_service_have_one_key() {
        let keys = keys("{routing_key: service}");
        let of_logs = key_of(&keys, &log(&[("a", "b"), ("service.name", "shop")], &[], 1));
        let profiles = Bytes::from(named("shop", 1, ["x"]).encode_to_vec());
        let mut of_profiles = 0;
        tributary_profiles::partition::partition(&profiles, |place| {
            of_profiles = keys.hasher(Signal::Profiles).profile_key(place);
            0
        });
        assert_eq!(of_logs, of_profiles);
        assert_ne!(
            of_logs,
            key_of(&keys, &log(&[("service.name", "other")], &[], 1))
        );
    }

    #[test]
    fn attribute_order_does_not_change_routing_key() {
        let keys = keys("{routing_key: resource}");
        let key = key_of(&keys, &log(&[("a", "1"), ("b", "2")], &[], 1));
        assert_eq!(
            key,
            key_of(&keys, &log(&[("b", "2"), ("a", "1")], &[("c", "3")], 2))
        );
        for other in [
            &[("a", "1"), ("b", "3")][..],
            &[("a", "1b"), ("", "2")],
            &[("a", "1")],
        ] {
            assert_ne!(key, key_of(&keys, &log(other, &[], 1)), "{other:?}");
        }
    }

    #[test]
    fn attributes_are_searched_from_resource_to_item() {
        let keys = keys("{routing_key: attributes, routing_attributes: [x, y]}");
        let key = key_of(&keys, &log(&[("x", "1")], &[("y", "2")], 1));
        assert_eq!(
            key,
            key_of(&keys, &log(&[("x", "1"), ("y", "2")], &[("y", "3")], 2))
        );
        assert_ne!(key, key_of(&keys, &log(&[("x", "1")], &[("y", "3")], 1)));
    }

    #[test]
    fn record_without_trace_is_routed_by_service() {
        let keys = keys("{routing_key: traceID}");
        let without = |service| key_of(&keys, &log(&[("service.name", service)], &[], 0));
        assert_ne!(without("a"), without("b"));
        let with = |service| key_of(&keys, &log(&[("service.name", service)], &[], 5));
        assert_eq!(with("a"), with("b"));
    }

    #[test]
    fn sample_types_of_one_resource_are_two_series() {
        let keys = keys("{routing_key: profile_series}");
        let key = |unit: &str| {
            let mut request = named("shop", 1, ["x"]);
            let tables = request.dictionary.as_mut().unwrap();
            tables.string_table[2] = unit.to_owned();
            let mut key = 0;
            let request = Bytes::from(request.encode_to_vec());
            tributary_profiles::partition::partition(&request, |place| {
                key = keys.hasher(Signal::Profiles).profile_key(place);
                0
            });
            key
        };
        assert_eq!(key("nanoseconds"), key("nanoseconds"));
        assert_ne!(key("nanoseconds"), key("count"));
    }
}
