//! Tests of the queue's guarantees, on paused time, against a scripted next hop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::time::{Instant, sleep};

mod failures;
mod gathering;
mod stored;

use super::*;
use crate::component::{BuildContext, Terminal};
use crate::pipeline::batch::Batch;
use crate::pipeline::{Consumer, Undelivered};
use crate::testing::named_batch;
use tributary_config::Section;
use tributary_config::units::Duration as Setting;
use tributary_memory::Budget;
use tributary_profiles::testing_requests::sample_names;

const MS: fn(u64) -> Duration = Duration::from_millis;
const SECS: fn(u64) -> Duration = Duration::from_secs;

type Answer = Box<dyn FnMut(&[String]) -> Result<Outcome, SendError> + Send>;

/// A scripted next hop. It records the span names of every attempt, and of every accepted attempt.
struct Hop {
    answer: Mutex<Answer>,
    latency: Duration,
    attempts: Mutex<Vec<(Instant, Vec<String>)>>,
    accepted: Mutex<Vec<String>>,
    encoded: Mutex<usize>,
}

impl Sender for Hop {
    fn encode(
        &self,
        _: Signal,
        requests: &Requests,
        _: &crate::pipeline::output_memory::OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        *self.encoded.lock().unwrap() += 1;
        Ok(requests.parts().to_vec())
    }

    fn encodes_every_byte(&self) -> bool {
        false
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let names = match batch.signal {
                Signal::Profiles => sample_names(&batch.chunks.concat()),
                _ => names(&batch.chunks.concat()),
            };
            assert_eq!(names.len(), batch.items);
            self.attempts
                .lock()
                .unwrap()
                .push((Instant::now(), names.clone()));
            sleep(self.latency).await;
            let outcome = (self.answer.lock().unwrap())(&names)?;
            self.accepted.lock().unwrap().extend(names);
            Ok(outcome)
        })
    }
}

struct Bench {
    hop: Arc<Hop>,
    terminal: Terminal,
    recorder: PrometheusRecorder,
    metrics: PrometheusHandle,
    budget: Arc<Budget>,
    started: Instant,
}

impl Bench {
    fn new(
        settings: Settings,
        latency: Duration,
        answer: impl FnMut(&[String]) -> Result<Outcome, SendError> + Send + 'static,
    ) -> Self {
        let hop = Arc::new(Hop {
            answer: Mutex::new(Box::new(answer)),
            latency,
            attempts: Mutex::default(),
            accepted: Mutex::default(),
            encoded: Mutex::default(),
        });
        let budget = Budget::new(1 << 30);
        let cx = BuildContext {
            id: "test".parse().unwrap(),
            budget: budget.clone(),
            listeners: Default::default(),
            stored_queues: Default::default(),
            profile_stores: Default::default(),
            introspection: Default::default(),
            health: Default::default(),
            extensions: Default::default(),
            pipeline: String::new(),
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let sender: Arc<dyn Sender> = hop.clone();
        let mut terminal = ::metrics::with_local_recorder(&recorder, || {
            terminal(&cx, &[Signal::Traces, Signal::Profiles], &settings, &sender).unwrap()
        });
        terminal.component.start();
        Bench {
            hop,
            terminal,
            recorder,
            metrics,
            budget,
            started: Instant::now(),
        }
    }

    /// Builds the exporter again with another queue, without starting it.
    fn build(&self, queue: QueueConfig) {
        let cx = crate::component::Host::for_tests().context(&"test".parse().unwrap());
        let sender: Arc<dyn Sender> = self.hop.clone();
        ::metrics::with_local_recorder(&self.recorder, || {
            terminal(&cx, &[Signal::Traces], &settings(queue), &sender).unwrap()
        });
    }

    fn consumer(&self) -> Arc<dyn Consumer> {
        self.terminal.inputs.get(Signal::Traces).unwrap().clone()
    }

    async fn consume(&self, batch: Batch) -> Result<(), Nack> {
        self.consumer().consume(batch).await
    }

    fn attempts(&self) -> Vec<(Duration, usize)> {
        let attempts = self.hop.attempts.lock().unwrap();
        let attempt = |(at, names): &(Instant, Vec<String>)| (*at - self.started, names.len());
        attempts.iter().map(attempt).collect()
    }

    fn accepted(&self) -> Vec<String> {
        let mut accepted = self.hop.accepted.lock().unwrap().clone();
        accepted.sort();
        accepted
    }

    /// Returns the exporter's counters for traces, in items.
    fn account(&self) -> BTreeMap<String, u64> {
        account_in(&self.metrics)
    }

    fn gauge(&self, name: &str) -> f64 {
        let text = self.metrics.render();
        let line = text
            .lines()
            .find(|line| line.starts_with(name) && line.contains("\"traces\""));
        line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    async fn shutdown(&mut self, within: Duration) -> Undelivered {
        let nothing: Box<dyn crate::pipeline::Component> = Box::new(Nothing);
        let component = std::mem::replace(&mut self.terminal.component, nothing);
        component.shutdown(Instant::now() + within).await
    }
}

struct Nothing;

impl crate::pipeline::Component for Nothing {
    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async { Undelivered::default() })
    }
}

/// Returns the counters for traces, in items.
fn account_in(metrics: &PrometheusHandle) -> BTreeMap<String, u64> {
    let text = metrics.render();
    let lines = text
        .lines()
        .filter(|line| line.contains("data_type=\"traces\""));
    let entries = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series
            .split('{')
            .next()?
            .strip_prefix("tributary_exporter_")?
            .strip_suffix("_items")?;
        let reason = series
            .split("reason=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let name = match reason {
            Some(reason) => reason.to_owned(),
            None => name.to_owned(),
        };
        let value = value.parse::<f64>().ok()? as u64;
        (value > 0).then_some((name, value))
    });
    entries.collect()
}

fn names(request: &[u8]) -> Vec<String> {
    let request = ExportTraceServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_spans
        .into_iter()
        .flat_map(|r| r.scope_spans);
    scopes.flat_map(|s| s.spans).map(|span| span.name).collect()
}

/// Returns a request of `count` spans named `prefix-0`, `prefix-1`, ...
fn request(prefix: &str, count: usize) -> Batch {
    let span = |at| Span {
        name: format!("{prefix}-{at}"),
        ..Span::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: (0..count).map(span).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    Batch::new(Signal::Traces, count, Bytes::from(request.encode_to_vec()))
}

fn of_tenant(tenant: Option<&str>, batch: Batch) -> Batch {
    let mut batch = batch;
    let metadata = tenant.map(|tenant| ("tenant".to_owned(), vec![tenant.to_owned()]));
    batch.metadata = Some(Arc::new(metadata.into_iter().collect()));
    batch
}

fn settings(queue: QueueConfig) -> Settings {
    Settings {
        queue: Some(queue),
        retry: Some(RetryConfig {
            randomization_factor: 0.0,
            ..RetryConfig::default()
        }),
        timeout: SECS(5),
    }
}

fn batching(batch: BatchConfig) -> Settings {
    settings(QueueConfig {
        batch: Section(Some(batch)),
        ..QueueConfig::default()
    })
}

fn accept(_: &[String]) -> Result<Outcome, SendError> {
    Ok(Outcome::default())
}

fn unavailable(_: &[String]) -> Result<Outcome, SendError> {
    Err(SendError::transient(Code::Unavailable, "down"))
}

fn account(entries: &[(&str, u64)]) -> BTreeMap<String, u64> {
    entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn transient_failures_neither_lose_nor_duplicate() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut dice = fastrand::Rng::with_seed(seed + 1000);
        let mut settings = settings(QueueConfig {
            num_consumers: random.usize(1..5),
            compression: *random
                .choice([HeldCompression::None, HeldCompression::Lz4].iter())
                .unwrap(),
            batch: Section(random.bool().then(|| BatchConfig {
                min_size: random.usize(0..30),
                max_size: 0,
                ..BatchConfig::default()
            })),
            ..QueueConfig::default()
        });
        settings.retry.as_mut().unwrap().max_elapsed_time = Some(Setting::secs(0));
        let mut bench = Bench::new(settings, MS(random.u64(0..50)), move |names| {
            match dice.u8(0..3) {
                0 => accept(names),
                _ => unavailable(names),
            }
        });
        let mut expected = Vec::new();
        for number in 0..100 {
            let batch = request(&number.to_string(), random.usize(0..10));
            let mut all = names(&batch.clone().into_wire().to_bytes());
            bench.consume(batch).await.unwrap();
            expected.append(&mut all);
            sleep(MS(random.u64(0..20))).await;
        }
        while bench.gauge("otelcol_exporter_queue_size") > 0.0 {
            sleep(SECS(1)).await;
        }
        expected.sort();
        assert_eq!(bench.accepted(), expected, "seed {seed}");
        let items = expected.len() as u64;
        assert_eq!(
            bench.account(),
            account(&[("received", items), ("delivered", items)])
        );
        assert_eq!(bench.shutdown(SECS(1)).await, Undelivered::default());
    }
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_and_counts() {
    let queue = QueueConfig {
        num_consumers: 1,
        queue_size: 10,
        sizer: Some(Sizer::Items),
        ..QueueConfig::default()
    };
    let bench = Bench::new(settings(queue), SECS(1), accept);
    bench.consume(request("a", 6)).await.unwrap();
    let nack = bench.consume(request("b", 5)).await.unwrap_err();
    assert_eq!(
        (nack.retryable, &*nack.reason),
        (true, "sending queue is full")
    );
    assert!(nack.retry_after.is_some());
    bench.consume(request("c", 4)).await.unwrap();
    assert_eq!(bench.gauge("otelcol_exporter_queue_size"), 10.0);
    sleep(SECS(3)).await;
    assert_eq!(bench.gauge("otelcol_exporter_queue_size"), 0.0);
    let expected = [("received", 15), ("delivered", 10), ("refused", 5)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn request_larger_than_queue_is_refused_permanently() {
    for block_on_overflow in [false, true] {
        let queue = QueueConfig {
            queue_size: 10,
            sizer: Some(Sizer::Items),
            block_on_overflow,
            ..QueueConfig::default()
        };
        let bench = Bench::new(settings(queue), SECS(0), accept);
        let nack = bench.consume(request("a", 11)).await.unwrap_err();
        assert!(
            !nack.retryable && nack.reason.contains("queue_size: 10"),
            "{nack}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn full_queue_with_drop_acknowledges_sender() {
    let queue = QueueConfig {
        num_consumers: 1,
        queue_size: 1,
        drop_on_overflow: true,
        ..QueueConfig::default()
    };
    let bench = Bench::new(settings(queue), SECS(1), accept);
    bench.consume(request("a", 1)).await.unwrap();
    bench.consume(request("b", 2)).await.unwrap();
    sleep(SECS(2)).await;
    assert_eq!(bench.accepted(), ["a-0"]);
    let expected = [("received", 3), ("delivered", 1), ("queue_full", 2)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn blocked_sender_enters_when_room_is_free() {
    let queue = QueueConfig {
        num_consumers: 1,
        queue_size: 1,
        block_on_overflow: true,
        ..QueueConfig::default()
    };
    let bench = Bench::new(settings(queue), SECS(1), accept);
    bench.consume(request("a", 1)).await.unwrap();
    let patience = tokio::time::timeout(MS(500), bench.consume(request("b", 1)));
    assert!(patience.await.is_err());
    bench.consume(request("c", 1)).await.unwrap();
    assert_eq!(bench.started.elapsed(), SECS(1));
    sleep(SECS(2)).await;
    assert_eq!(bench.accepted(), ["a-0", "c-0"]);
    assert_eq!(bench.gauge("otelcol_exporter_queue_size"), 0.0);
    let expected = [("received", 3), ("delivered", 2), ("refused", 1)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn waiting_sender_gets_result() {
    let queue = QueueConfig {
        wait_for_result: true,
        ..QueueConfig::default()
    };
    for settings in [
        settings(queue),
        Settings {
            queue: None,
            ..settings(QueueConfig::default())
        },
    ] {
        let bench = Bench::new(settings, SECS(1), |names| match names[0].as_str() {
            "bad-0" => Err(SendError::permanent(
                Code::InvalidArgument,
                Fault::Content,
                "no",
            )),
            "late-0" => Err(SendError {
                throttle: Some(SECS(1000)),
                ..SendError::transient(Code::Unavailable, "later")
            }),
            _ => accept(names),
        });
        bench.consume(request("good", 1)).await.unwrap();
        assert_eq!(bench.started.elapsed(), SECS(1));
        let nack = bench.consume(request("bad", 1)).await.unwrap_err();
        assert_eq!(
            (nack.retryable, nack.code, &*nack.reason),
            (false, Code::InvalidArgument, "no")
        );
        let nack = bench.consume(request("late", 1)).await.unwrap_err();
        assert_eq!((nack.retryable, nack.retry_after), (true, Some(SECS(1000))));
        let expected = [("received", 3), ("delivered", 1), ("refused", 2)];
        assert_eq!(bench.account(), account(&expected));
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_unqueued_send_is_refused() {
    let settings = Settings {
        queue: None,
        ..settings(QueueConfig::default())
    };
    let bench = Bench::new(settings, SECS(1), accept);
    let patience = tokio::time::timeout(MS(500), bench.consume(request("a", 3)));
    assert!(patience.await.is_err());
    assert_eq!(bench.account(), account(&[("received", 3), ("refused", 3)]));
}

#[tokio::test(start_paused = true)]
async fn retries_follow_configured_waits_with_one_encoding() {
    let bench = Bench::new(settings(QueueConfig::default()), SECS(0), unavailable);
    bench.consume(request("a", 2)).await.unwrap();
    sleep(SECS(400)).await;
    let at: Vec<f64> = bench
        .attempts()
        .iter()
        .map(|(at, _)| at.as_secs_f64())
        .collect();
    assert_eq!(at[..5], [0.0, 5.0, 12.5, 23.75, 40.625]);
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= 30.001));
    // The next attempt would have come after five minutes.
    assert!(
        *at.last().unwrap() > 270.0 && *at.last().unwrap() <= 300.0,
        "{at:?}"
    );
    assert_eq!(*bench.hop.encoded.lock().unwrap(), 1);
    let expected = [("received", 2), ("retries_exhausted", 2)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn throttling_lengthens_wait_up_to_total_time() {
    let mut asked = VecDeque::from([60, 1, 1000]);
    let bench = Bench::new(settings(QueueConfig::default()), SECS(0), move |_| {
        Err(SendError {
            throttle: asked.pop_front().map(SECS),
            ..SendError::transient(Code::Unavailable, "busy")
        })
    });
    bench.consume(request("a", 1)).await.unwrap();
    sleep(SECS(400)).await;
    let at: Vec<f64> = bench
        .attempts()
        .iter()
        .map(|(at, _)| at.as_secs_f64())
        .collect();
    assert_eq!(at, [0.0, 60.0, 67.5]);
    assert_eq!(
        bench.account(),
        account(&[("received", 1), ("retries_exhausted", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn timed_out_attempt_is_retried() {
    let bench = Bench::new(settings(QueueConfig::default()), SECS(6), accept);
    bench.consume(request("a", 1)).await.unwrap();
    sleep(SECS(11)).await;
    assert_eq!(bench.attempts(), [(SECS(0), 1), (SECS(10), 1)]);
}

#[tokio::test(start_paused = true)]
async fn first_failure_without_retries_is_final() {
    let settings = Settings {
        retry: None,
        ..settings(QueueConfig::default())
    };
    let bench = Bench::new(settings, SECS(0), unavailable);
    bench.consume(request("a", 1)).await.unwrap();
    sleep(SECS(60)).await;
    assert_eq!(bench.attempts().len(), 1);
    assert_eq!(
        bench.account(),
        account(&[("received", 1), ("retries_exhausted", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn batch_is_sent_at_min_size_or_flush_timeout() {
    let batch = BatchConfig {
        min_size: 10,
        ..BatchConfig::default()
    };
    let bench = Bench::new(batching(batch), SECS(0), accept);
    bench.consume(request("a", 6)).await.unwrap();
    sleep(MS(150)).await;
    bench.consume(request("b", 4)).await.unwrap();
    // The batch is complete. A new batch begins, whose age counts from its own first request.
    sleep(MS(10)).await;
    bench.consume(request("c", 1)).await.unwrap();
    sleep(MS(190)).await;
    bench.consume(request("d", 1)).await.unwrap();
    sleep(MS(500)).await;
    bench.consume(request("e", 1)).await.unwrap();
    sleep(MS(500)).await;
    assert_eq!(
        bench.attempts(),
        [(MS(150), 10), (MS(360), 2), (MS(1050), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn divisible_batch_stays_within_max_size() {
    let batch = BatchConfig {
        min_size: 8,
        max_size: 10,
        ..BatchConfig::default()
    };
    let bench = Bench::new(batching(batch), SECS(0), accept);
    for (name, count) in [("a", 7), ("b", 7), ("c", 3), ("d", 9), ("e", 1)] {
        bench.consume(request(name, count)).await.unwrap();
    }
    sleep(SECS(1)).await;
    let sizes: Vec<usize> = bench.attempts().iter().map(|(_, items)| *items).collect();
    assert_eq!(sizes, [7, 10, 9, 1]);
}

#[tokio::test(start_paused = true)]
async fn requests_of_different_tenants_never_share_a_batch() {
    let batch = BatchConfig {
        partition: PartitionConfig {
            metadata_keys: vec!["Tenant".to_owned()],
        },
        ..BatchConfig::default()
    };
    let bench = Bench::new(batching(batch), SECS(0), accept);
    for tenant in [Some("a"), Some("b"), Some(""), None, Some("a")] {
        let name = format!("{tenant:?}");
        bench
            .consume(of_tenant(tenant, request(&name, 1)))
            .await
            .unwrap();
    }
    sleep(SECS(1)).await;
    let attempts = bench.hop.attempts.lock().unwrap();
    assert_eq!(attempts.len(), 4);
    for (_, names) in attempts.iter() {
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bad_request_is_dropped_alone() {
    for count in [2, 3, 100, 999, 1000] {
        let fault = [Fault::Content, Fault::Unclear][count % 2];
        let batch = BatchConfig {
            min_size: count,
            ..BatchConfig::default()
        };
        let bench = Bench::new(batching(batch), SECS(0), move |names| {
            match names.iter().any(|name| name == "1-0") {
                true => Err(SendError::permanent(Code::InvalidArgument, fault, "no")),
                false => accept(names),
            }
        });
        for number in 0..count {
            bench
                .consume(request(&number.to_string(), 1))
                .await
                .unwrap();
        }
        sleep(SECS(1)).await;
        assert_eq!(bench.accepted().len(), count - 1);
        let count = count as u64;
        let expected = [
            ("received", count),
            ("delivered", count - 1),
            ("permanent", 1),
        ];
        assert_eq!(bench.account(), account(&expected));
        let most = 2 * count.ilog2() as usize + 3;
        assert!(
            bench.attempts().len() <= most,
            "{} attempts",
            bench.attempts().len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn request_above_max_size_is_split_with_one_outcome() {
    let batch = BatchConfig {
        min_size: 8,
        max_size: 10,
        ..BatchConfig::default()
    };
    for bad in [None, Some("a-17")] {
        let mut settings = batching(batch.clone());
        settings.queue.as_mut().unwrap().wait_for_result = true;
        let bench = Bench::new(settings, SECS(0), move |names| {
            match bad.is_some_and(|bad| names.iter().any(|name| name == bad)) {
                true => Err(SendError::permanent(
                    Code::InvalidArgument,
                    Fault::Content,
                    "no",
                )),
                false => accept(names),
            }
        });
        let result = bench.consume(request("a", 33)).await;
        assert_eq!(result.is_err(), bad.is_some());
        let sizes: Vec<usize> = bench.attempts().iter().map(|(_, items)| *items).collect();
        assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 33);
        let account = bench.account();
        let outcomes = ["delivered", "refused"].map(|name| account.get(name).unwrap_or(&0));
        assert_eq!(outcomes.into_iter().sum::<u64>(), 33);
        assert_eq!(bench.gauge("otelcol_exporter_queue_size"), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn too_large_batch_is_split_until_accepted() {
    let batch = BatchConfig {
        min_size: 100,
        ..BatchConfig::default()
    };
    for sizes in [&[100][..], &[40, 60], &[1, 98, 1]] {
        let bench = Bench::new(batching(batch.clone()), SECS(0), |names| {
            match names.len() > 7 {
                true => Err(SendError::permanent(
                    Code::ResourceExhausted,
                    Fault::Size,
                    "too large",
                )),
                false => accept(names),
            }
        });
        for (number, size) in sizes.iter().enumerate() {
            bench
                .consume(request(&number.to_string(), *size))
                .await
                .unwrap();
        }
        sleep(SECS(1)).await;
        assert_eq!(
            bench.account(),
            account(&[("received", 100), ("delivered", 100)])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn refusing_server_gets_few_parts() {
    let count = 2000;
    for (fault, attempts) in [(Fault::Content, 257), (Fault::Unclear, 17)] {
        let batch = BatchConfig {
            min_size: count,
            ..BatchConfig::default()
        };
        let mut settings = batching(batch);
        settings.queue.as_mut().unwrap().queue_size = count;
        let bench = Bench::new(settings, SECS(0), move |_| {
            Err(SendError::permanent(Code::InvalidArgument, fault, "no"))
        });
        for number in 0..count {
            bench
                .consume(request(&number.to_string(), 1))
                .await
                .unwrap();
        }
        sleep(SECS(1)).await;
        assert_eq!(bench.attempts().len(), attempts);
        let expected = [("received", count as u64), ("permanent", count as u64)];
        assert_eq!(bench.account(), account(&expected));
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_unrelated_to_data_is_not_split() {
    let batch = BatchConfig {
        min_size: 2,
        ..BatchConfig::default()
    };
    let bench = Bench::new(batching(batch), SECS(0), |_| {
        Err(SendError::permanent(
            Code::Unimplemented,
            Fault::Elsewhere,
            "no",
        ))
    });
    bench.consume(request("a", 1)).await.unwrap();
    bench.consume(request("b", 1)).await.unwrap();
    sleep(SECS(1)).await;
    assert_eq!(bench.attempts().len(), 1);
    assert_eq!(
        bench.account(),
        account(&[("received", 2), ("permanent", 2)])
    );
}

#[tokio::test(start_paused = true)]
async fn partial_success_is_counted_and_not_retried() {
    let mut rejected = [3, 1000].into_iter();
    let bench = Bench::new(settings(QueueConfig::default()), SECS(0), move |_| {
        Ok(Outcome {
            rejected_items: rejected.next().unwrap(),
            message: "some were bad".to_owned(),
        })
    });
    bench.consume(request("a", 5)).await.unwrap();
    bench.consume(request("b", 4)).await.unwrap();
    sleep(SECS(60)).await;
    assert_eq!(bench.attempts().len(), 2);
    let expected = [("received", 9), ("delivered", 2), ("partial_success", 7)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn shutdown_flushes_batches_and_ends_waits() {
    let batch = BatchConfig {
        flush_timeout: Setting::secs(60),
        ..BatchConfig::default()
    };
    let mut failures = 1;
    let mut settings = batching(batch);
    settings
        .queue
        .as_mut()
        .unwrap()
        .batch
        .0
        .as_mut()
        .unwrap()
        .min_size = 2;
    let mut bench = Bench::new(settings, SECS(0), move |names| match failures {
        0 => accept(names),
        _ => {
            failures -= 1;
            unavailable(names)
        }
    });
    bench.consume(request("sleeps", 2)).await.unwrap();
    sleep(SECS(1)).await;
    bench.consume(request("held", 1)).await.unwrap();
    assert_eq!(bench.shutdown(SECS(30)).await, Undelivered::default());
    assert_eq!(bench.started.elapsed(), SECS(1));
    assert_eq!(bench.accepted(), ["held-0", "sleeps-0", "sleeps-1"]);
    assert!(
        bench
            .consume(request("late", 1))
            .await
            .unwrap_err()
            .retryable
    );
    let expected = [("received", 4), ("delivered", 3), ("refused", 1)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn shutdown_retries_until_deadline_and_reports_rest() {
    let queue = QueueConfig {
        num_consumers: 1,
        ..QueueConfig::default()
    };
    let mut bench = Bench::new(settings(queue), SECS(0), unavailable);
    for name in ["a", "b", "c"] {
        bench.consume(request(name, 2)).await.unwrap();
    }
    sleep(SECS(1)).await;
    let undelivered = bench.shutdown(SECS(30)).await;
    assert_eq!(undelivered, Undelivered { items: 6 });
    assert_eq!(bench.started.elapsed(), SECS(31));
    assert!(bench.attempts().len() > 50);
    assert_eq!(
        bench.account(),
        account(&[("received", 6), ("shutdown", 6)])
    );
}

#[tokio::test(start_paused = true)]
async fn next_hop_back_before_deadline_gets_everything() {
    let started = Instant::now();
    let mut bench = Bench::new(
        settings(QueueConfig::default()),
        SECS(0),
        move |names| match started.elapsed() < SECS(20) {
            true => unavailable(names),
            false => accept(names),
        },
    );
    for name in ["a", "b", "c"] {
        bench.consume(request(name, 2)).await.unwrap();
    }
    assert_eq!(bench.shutdown(SECS(25)).await, Undelivered::default());
    assert!(bench.started.elapsed() < SECS(21));
    assert_eq!(
        bench.account(),
        account(&[("received", 6), ("delivered", 6)])
    );
}

#[tokio::test(start_paused = true)]
async fn unstarted_exporter_keeps_gauges_of_running_exporter() {
    let bench = Bench::new(settings(QueueConfig::default()), SECS(0), accept);
    bench.build(QueueConfig {
        queue_size: 7,
        ..QueueConfig::default()
    });
    assert_eq!(bench.gauge("otelcol_exporter_queue_capacity"), 1000.0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_items_in_flight_at_deadline() {
    let queue = QueueConfig {
        num_consumers: 1,
        ..QueueConfig::default()
    };
    let mut bench = Bench::new(settings(queue), SECS(4), accept);
    for name in ["a", "b", "c"] {
        bench.consume(request(name, 2)).await.unwrap();
    }
    let undelivered = bench.shutdown(SECS(6)).await;
    assert_eq!(bench.started.elapsed(), SECS(6));
    assert_eq!(undelivered, Undelivered { items: 4 });
    let expected = [("received", 6), ("delivered", 2), ("shutdown", 4)];
    assert_eq!(bench.account(), account(&expected));
    assert_eq!(bench.gauge("otelcol_exporter_queue_size"), 0.0);
    assert_eq!(bench.gauge("otelcol_exporter_in_flight_requests"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_refuses_waiting_senders_without_loss() {
    let queue = QueueConfig {
        wait_for_result: true,
        ..QueueConfig::default()
    };
    let mut bench = Bench::new(settings(queue), SECS(60), accept);
    let consumer = bench.consumer();
    let waiting = tokio::spawn(async move { consumer.consume(request("a", 2)).await });
    sleep(SECS(1)).await;
    assert_eq!(bench.shutdown(SECS(1)).await, Undelivered::default());
    assert!(waiting.await.unwrap().unwrap_err().retryable);
    assert_eq!(bench.account(), account(&[("received", 2), ("refused", 2)]));
}

#[tokio::test(start_paused = true)]
async fn queued_requests_are_compressed_and_counted_so() {
    let queue = QueueConfig {
        num_consumers: 1,
        queue_size: 4000,
        sizer: Some(Sizer::Bytes),
        compression: HeldCompression::Lz4,
        ..QueueConfig::default()
    };
    let bench = Bench::new(settings(queue), SECS(1), accept);
    let bytes = request("compressible-name-of-a-span", 50).bytes();
    assert!(bytes > 1500 && bytes < 2000, "{bytes}");
    let mut taken = 0;
    while let Ok(()) = bench
        .consume(request("compressible-name-of-a-span", 50))
        .await
    {
        taken += 1;
        // The first request finds a free consumer and is not compressed.
        tokio::task::yield_now().await;
    }
    assert!(taken > 5, "{taken}");
    assert!(bench.gauge("otelcol_exporter_queue_size") <= 4000.0);
    assert!(bench.budget.used() < 4000);
    sleep(SECS(60)).await;
    assert_eq!(bench.accepted().len(), taken * 50);
    assert_eq!(bench.budget.used(), 0);
}

async fn consume_profiles(bench: &Bench, batches: impl IntoIterator<Item = Batch>) {
    let consumer = bench.terminal.inputs.get(Signal::Profiles).unwrap();
    for batch in batches {
        consumer.consume(batch).await.unwrap();
    }
    sleep(MS(201)).await;
}

#[tokio::test(start_paused = true)]
async fn profiles_of_many_requests_are_merged_with_all_samples() {
    let bench = Bench::new(batching(BatchConfig::default()), SECS(0), accept);
    let names = ["a", "b", "c"];
    consume_profiles(&bench, names.map(|name| named_batch("s", [name, "both"]))).await;
    assert_eq!(bench.attempts(), [(MS(200), 6)]);
    assert_eq!(bench.accepted(), ["a", "b", "both", "both", "both", "c"]);
}

#[tokio::test(start_paused = true)]
async fn profiles_above_max_size_are_split_between_samples() {
    let config = BatchConfig {
        min_size: 2,
        max_size: 2,
        ..BatchConfig::default()
    };
    let bench = Bench::new(batching(config), SECS(0), accept);
    consume_profiles(&bench, [named_batch("s", ["a", "b", "c", "d", "e"])]).await;
    let mut sizes: Vec<usize> = bench.attempts().iter().map(|(_, items)| *items).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2, 2]);
    assert_eq!(bench.accepted(), ["a", "b", "c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_profiles_are_sent_separately() {
    let bench = Bench::new(batching(BatchConfig::default()), SECS(0), accept);
    let later = {
        let mut request = named_batch("s", ["later"]).into_wire().to_bytes().to_vec();
        request.extend([15 << 3 | 2, 1, b'x']);
        Batch::new(Signal::Profiles, 1, Bytes::from(request))
    };
    let batches = [named_batch("s", ["a"]), later, named_batch("s", ["b"])];
    consume_profiles(&bench, batches).await;
    let mut sizes: Vec<usize> = bench.attempts().iter().map(|(_, items)| *items).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2]);
    assert_eq!(bench.accepted(), ["a", "b", "later"]);
}

#[tokio::test(start_paused = true)]
async fn bad_profiles_request_is_dropped_alone() {
    let answer = |names: &[String]| match names.iter().any(|name| name == "bad") {
        true => Err(SendError::permanent(
            Code::InvalidArgument,
            Fault::Content,
            "bad",
        )),
        false => Ok(Outcome::default()),
    };
    let bench = Bench::new(batching(BatchConfig::default()), SECS(0), answer);
    let names = ["a", "b", "bad", "c", "d"];
    consume_profiles(&bench, names.map(|name| named_batch("s", [name]))).await;
    assert_eq!(bench.accepted(), ["a", "b", "c", "d"]);
}
