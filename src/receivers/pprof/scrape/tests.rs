//! Guarantees of scraping: on paused time without an HTTP client, and over HTTP with real time.

mod config;
mod over_http;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::Uri;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use super::fetch::{Fetch, Fetched};
use super::*;
use crate::pipeline::batch::Nack;
use crate::pipeline::testing::Scripted;
use crate::receivers::scraping::client::BodyBounds;
use crate::serving::body::ReceivedBytes;
use crate::testing::context;
use tributary_memory::Budget;
use tributary_profiles::pprof::LinkLabels;

const SECOND: Duration = Duration::from_secs(1);

/// A pprof file of one sample with this value.
pub(super) fn file(value: u8) -> Vec<u8> {
    let mut file = vec![0x0a, 4, 8, 1, 16, 2];
    file.extend([0x12, 4, 8, 1, 16, value]);
    file.extend([0x22, 6, 8, 1, 0x22, 2, 8, 1]);
    file.extend([0x2a, 4, 8, 1, 16, 3]);
    for string in ["", "contentions", "count", "main"] {
        file.extend([0x32, u8::try_from(string.len()).unwrap()]);
        file.extend(string.as_bytes());
    }
    file
}

/// A server that responds after a delay, and records the times of requests.
struct Fake {
    takes: Duration,
    answer: Box<dyn Fn(usize) -> Result<Vec<u8>, Failure> + Send + Sync>,
    asked: Mutex<Vec<Instant>>,
    /// Number of scrapes in flight, and its maximum.
    running: Mutex<(usize, usize)>,
}

impl Fake {
    fn new(
        takes: Duration,
        answer: impl Fn(usize) -> Result<Vec<u8>, Failure> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Fake {
            takes,
            answer: Box::new(answer),
            asked: Mutex::default(),
            running: Mutex::default(),
        })
    }

    /// The times between one request and the next, in whole seconds.
    fn steps(&self) -> Vec<u64> {
        let asked = self.asked.lock().unwrap();
        let pairs = asked.windows(2);
        pairs.map(|pair| (pair[1] - pair[0]).as_secs()).collect()
    }

    fn most(&self) -> usize {
        self.running.lock().unwrap().1
    }
}

struct Running<'a>(&'a Fake);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().0 -= 1;
    }
}

impl Fetch for Fake {
    fn fetch<'a>(
        &'a self,
        _: &'a Uri,
        bounds: &'a BodyBounds,
    ) -> BoxFuture<'a, Result<Fetched, Failure>> {
        Box::pin(async move {
            let number = {
                let mut asked = self.asked.lock().unwrap();
                asked.push(Instant::now());
                let mut running = self.running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
                asked.len()
            };
            let _running = Running(self);
            sleep(self.takes).await;
            let bytes = (self.answer)(number)?;
            Ok(Fetched {
                held: ReceivedBytes {
                    permit: bounds.budget.acquire(bytes.len()).unwrap(),
                    bytes: bytes.into(),
                },
                content_type: String::new(),
            })
        })
    }
}

/// A pipeline that accepts all profiles except configured ones, and the recorded metrics.
struct Trial {
    consumer: Arc<Scripted>,
    budget: Arc<Budget>,
    shared: Arc<Shared>,
    page: PrometheusHandle,
    factor: watch::Sender<u32>,
    _recorder: metrics::LocalRecorderGuard<'static>,
}

fn shared(cx: &BuildContext, slots: usize, stretch: watch::Receiver<u32>) -> Arc<Shared> {
    Arc::new(Shared {
        id: cx.id.clone(),
        slots: Some(Semaphore::new(slots)),
        stretch,
        deltas: Deltas::of(&cx.id, &LinkLabels::default(), 1 << 20, &cx.budget),
        failures: SampledLog::default(),
        refusals: SampledLog::default(),
    })
}

impl Trial {
    fn new(slots: usize, answers: impl IntoIterator<Item = Result<(), Nack>>) -> Self {
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        let page = recorder.handle();
        let recorder = metrics::set_default_local_recorder(recorder);
        // Its own name: the gauges of a receiver are those of the process.
        static TRIALS: AtomicUsize = AtomicUsize::new(0);
        let cx = context(&format!("pprof/{}", TRIALS.fetch_add(1, Relaxed)));
        let (factor, stretch) = watch::channel(1);
        Trial {
            consumer: Scripted::new(answers),
            budget: cx.budget.clone(),
            shared: shared(&cx, slots, stretch),
            page,
            factor,
            _recorder: recorder,
        }
    }

    /// A job that begins at once.
    fn job(&self, url: &str, takes: Option<Duration>, fetch: Arc<Fake>) -> Job {
        let (consumer, budget) = (self.consumer.clone(), self.budget.clone());
        let intake = Intake::new(
            &self.shared.id,
            consumer,
            budget,
            "http",
            1 << 20,
            LIMIT_KEY,
        );
        Job {
            target: "host:1".into(),
            profile: "cpu".into(),
            url: url.parse().unwrap(),
            subject: Arc::default(),
            fetch,
            intake,
            takes,
            timeout: takes.unwrap_or_default() + MARGIN,
            schedule: Schedule::after(Instant::now(), Duration::ZERO, 10 * SECOND),
            delta: false,
            metrics: ScraperMetrics::new(&self.shared.id, "targets"),
        }
    }

    /// Runs jobs for this time.
    async fn run(&self, jobs: Vec<Job>, time: Duration) {
        let jobs = jobs.into_iter().map(|job| job.run(self.shared.clone()));
        let all = futures_util::future::join_all(jobs);
        assert!(timeout(time, all).await.is_err(), "jobs do not end");
    }

    /// Builds the receiver again while the old one exists, and drops the old one.
    fn reload(&mut self) {
        let cx = BuildContext {
            budget: self.budget.clone(),
            ..context(&self.shared.id.to_string())
        };
        self.shared = shared(&cx, 9, self.factor.subscribe());
    }

    /// Returns the value of a metric, if the metric exists.
    fn metric(&self, name: &str) -> Option<f64> {
        let page = self.page.render();
        let line = page.lines().find(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

#[tokio::test(start_paused = true)]
async fn long_profiles_of_one_server_do_not_overlap() {
    let trial = Trial::new(99, []);
    let fake = Fake::new(8 * SECOND, |_| Ok(file(1)));
    let job = |url| trial.job(url, Some(8 * SECOND), fake.clone());
    let two = vec![
        job("http://twice.example:6060/debug/pprof/profile?seconds=8"),
        job("http://TWICE.example:6060/debug/pprof/profile?seconds=8"),
    ];
    trial.run(two, 100 * SECOND).await;
    assert_eq!(fake.most(), 1);
    // Neither job blocks the other job forever.
    assert!(trial.consumer.taken().len() >= 10);
    // A request to another server need not wait.
    let fake = Fake::new(8 * SECOND, |_| Ok(file(1)));
    let job = |url| trial.job(url, Some(8 * SECOND), fake.clone());
    let two = vec![job("http://one.example/p"), job("http://two.example/p")];
    trial.run(two, 30 * SECOND).await;
    assert_eq!(fake.most(), 2);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_stay_within_limit() {
    let trial = Trial::new(3, []);
    let fake = Fake::new(2 * SECOND, |_| Ok(file(1)));
    let job = |number| trial.job(&format!("http://host/{number}"), None, fake.clone());
    trial.run((0..10).map(job).collect(), 60 * SECOND).await;
    assert_eq!(fake.most(), 3);
    assert!(trial.consumer.taken().len() > 40);
}

#[tokio::test(start_paused = true)]
async fn failing_target_is_scraped_with_backoff() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(Duration::ZERO, |number| match number {
        2..=6 => Err(Failure::Empty),
        _ => Ok(file(1)),
    });
    let job = trial.job("http://host/heap", None, fake.clone());
    trial.run(vec![job], 405 * SECOND).await;
    let steps = fake.steps();
    // Requests 1 and 2, and 2 and 3, are a step apart; then the waits double, more or less.
    assert_eq!(steps[..2], [10, 10]);
    for (step, (least, most)) in steps[2..6]
        .iter()
        .zip([(16, 24), (32, 48), (64, 96), (96, 144)])
    {
        assert!((least..=most).contains(step), "{steps:?}");
    }
    assert!(
        steps.len() > 8 && steps[7..].iter().all(|step| *step == 10),
        "{steps:?}"
    );
    assert_eq!(
        trial.metric("otelcol_scraper_errored_profile_records"),
        Some(5.0)
    );
    let scraped = trial.metric("otelcol_scraper_scraped_profile_records");
    assert_eq!(scraped, Some((fake.steps().len() + 1 - 5) as f64));
}

#[tokio::test(start_paused = true)]
async fn refused_profile_is_dropped_and_counted() {
    let trial = Trial::new(9, [Ok(()), Err(Nack::unavailable("full"))]);
    let fake = Fake::new(Duration::ZERO, |_| Ok(file(1)));
    let job = trial.job("http://host/heap", None, fake.clone());
    trial.run(vec![job], 45 * SECOND).await;
    assert_eq!(fake.steps(), [10, 10, 10, 10]);
    assert_eq!(trial.consumer.taken().len(), 4);
    assert_eq!(
        trial.metric("tributary_scraper_dropped_profiles"),
        Some(1.0)
    );
    assert_eq!(
        trial.metric("otelcol_receiver_refused_profile_samples"),
        Some(1.0)
    );
    assert_eq!(
        trial.metric("otelcol_receiver_accepted_profile_samples"),
        Some(4.0)
    );
    drop(trial.consumer.batches());
}

#[tokio::test(start_paused = true)]
async fn hanging_scrape_ends_at_timeout() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(3600 * SECOND, |_| Ok(file(1)));
    let job = trial.job(
        "http://hangs.example/p?seconds=5",
        Some(5 * SECOND),
        fake.clone(),
    );
    trial.run(vec![job], 18 * SECOND).await;
    // Five seconds and the margin of ten.
    assert_eq!(
        trial.metric("otelcol_scraper_errored_profile_records"),
        Some(1.0)
    );
    assert_eq!(fake.asked.lock().unwrap().len(), 1);
    let again = trial.job(
        "http://hangs.example/p?seconds=5",
        Some(5 * SECOND),
        fake.clone(),
    );
    trial.run(vec![again], 25 * SECOND).await;
    assert_eq!(fake.steps().last(), Some(&20));
}

#[tokio::test(start_paused = true)]
async fn up_gauge_lives_as_long_as_target() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(SECOND, |number| match number {
        1 => Ok(file(1)),
        _ => Ok(b"<!DOCTYPE html><title>Log in</title>".to_vec()),
    });
    let job = trial.job("http://host/heap", None, fake.clone());
    let running = tokio::spawn(job.run(trial.shared.clone()));
    let up = || trial.metric("tributary_scraper_up");
    sleep(5 * SECOND).await;
    assert_eq!(up(), Some(1.0));
    assert_eq!(
        trial.metric("tributary_scraper_duration_seconds"),
        Some(1.0)
    );
    sleep(10 * SECOND).await;
    assert_eq!(up(), Some(0.0));
    running.abort();
    let _ = running.await;
    // A gauge with the value NaN is not exposed.
    assert!(up().is_some_and(f64::is_nan));
}

#[tokio::test(start_paused = true)]
async fn delta_setting_turns_counters_into_differences() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(Duration::ZERO, |number| {
        Ok(file(10 + 3 * u8::try_from(number).unwrap()))
    });
    let mut job = trial.job("http://host/mutex", None, fake.clone());
    job.delta = true;
    trial.run(vec![job], 45 * SECOND).await;
    // The first profile is only remembered.
    assert_eq!(fake.steps().len(), 4);
    assert_eq!(trial.consumer.taken(), [1, 1, 1, 1]);
    let batches = trial.consumer.batches();
    let last = batches.last().unwrap().clone();
    let tributary_otlp::Decoded::Profiles(request) = last.decoded().unwrap() else {
        panic!("not profiles");
    };
    let samples = &request.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    assert_eq!(samples[0].values, [3]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_loses_no_interval_of_a_counter() {
    let mut trial = Trial::new(9, []);
    let fake = Fake::new(Duration::ZERO, |number| {
        Ok(file(10 + 3 * u8::try_from(number).unwrap()))
    });
    for _ in 0..2 {
        let mut job = trial.job("http://reloaded.example/mutex", None, fake.clone());
        job.delta = true;
        trial.run(vec![job], 5 * SECOND).await;
        trial.reload();
    }
    assert_eq!(trial.consumer.taken(), [1]);
}

#[tokio::test(start_paused = true)]
async fn delta_profiles_do_not_overlap() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(SECOND, |_| Ok(file(1)));
    let job = || {
        let mut job = trial.job("http://subtracted.example/mutex", None, fake.clone());
        job.delta = true;
        job
    };
    trial.run(vec![job(), job()], 20 * SECOND).await;
    assert_eq!(fake.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn intervals_stretch_while_the_machine_is_busy() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(Duration::ZERO, |_| Ok(file(1)));
    let job = trial.job("http://host/heap", None, fake.clone());
    let running = tokio::spawn(job.run(trial.shared.clone()));
    sleep(25 * SECOND).await;
    trial.factor.send(4).unwrap();
    sleep(120 * SECOND).await;
    trial.factor.send(1).unwrap();
    sleep(60 * SECOND).await;
    running.abort();
    let steps = fake.steps();
    // The load is known at 30; then every fourth step. At 145 the CPU is idle again, so the scrape does not wait
    // until 160.
    assert_eq!(steps[..7], [10, 10, 10, 10, 40, 40, 30], "{steps:?}");
    assert_eq!(steps.last(), Some(&10), "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_cancels_open_scrapes_at_once() {
    let trial = Trial::new(9, []);
    let fake = Fake::new(3600 * SECOND, |_| Ok(file(1)));
    let job = trial.job(
        "http://ends.example/p?seconds=30",
        Some(30 * SECOND),
        fake.clone(),
    );
    let mut scraper: Box<dyn Component> = Box::new(Scraper {
        waiting: Some(Work {
            shared: trial.shared.clone(),
            remote: Some(Remoted {
                job,
                delay: Duration::ZERO,
                interval: 60 * SECOND,
            }),
            servers: Vec::new(),
            adaptive: None,
        }),
        running: None,
    });
    scraper.start();
    sleep(SECOND).await;
    assert_eq!(fake.running.lock().unwrap().0, 1);
    let before = Instant::now();
    let undelivered = scraper.shutdown(before + 60 * SECOND).await;
    assert_eq!(undelivered, Undelivered::default());
    assert_eq!(before.elapsed(), Duration::ZERO);
    tokio::task::yield_now().await;
    assert_eq!(fake.running.lock().unwrap().0, 0);
    assert_eq!(trial.budget.used(), 0);
}
