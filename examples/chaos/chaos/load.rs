//! Load: clients that send as SDKs do, and record exactly which items were acknowledged.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tributary_otlp::Signal;

use super::link::Link;
use super::locked;
use super::status::Status;
use super::telemetry::Telemetry;

/// Sent and acknowledged items.
pub struct Ledger {
    pub began: std::time::Instant,
    /// All requests that were made.
    made: Mutex<Vec<Made>>,
    last: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
    pub requests: AtomicUsize,
    pub refusals: AtomicUsize,
    /// Permanent refusals. There is no reason for any.
    pub permanent: Mutex<Vec<String>>,
}

/// A request that was made.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    first: u64,
    /// Time at which its numbers were assigned, since the beginning of the run.
    pub at: Duration,
    pub signal: Signal,
}

impl Ledger {
    pub fn new(began: std::time::Instant) -> Self {
        Ledger {
            began,
            made: Mutex::default(),
            last: AtomicU64::new(0),
            acknowledged: Mutex::default(),
            requests: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            permanent: Mutex::default(),
        }
    }

    /// Returns unused item numbers. The first number is 1.
    pub fn numbers(&self, items: u64, signal: Signal) -> Vec<u64> {
        let mut made = locked(&self.made);
        let first = self.last.fetch_add(items, Relaxed) + 1;
        let at = self.began.elapsed();
        made.push(Made { first, at, signal });
        (first..first + items).collect()
    }

    /// Records acknowledged items, which must arrive.
    pub fn owe(&self, numbers: Vec<u64>) {
        locked(&self.acknowledged).extend(numbers);
    }

    /// Returns the request that contains a number.
    pub fn made(&self, number: u64) -> Made {
        let made = locked(&self.made);
        let behind = made.partition_point(|made| made.first <= number);
        let request = made.get(behind.saturating_sub(1)).copied();
        request.unwrap_or(Made {
            first: 0,
            at: Duration::ZERO,
            signal: Signal::Traces,
        })
    }

    /// Returns the last assigned number.
    pub fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Returns the numbers of all acknowledged items.
    pub fn acknowledged(&self) -> Vec<u64> {
        locked(&self.acknowledged).clone()
    }

    pub fn owed(&self) -> usize {
        locked(&self.acknowledged).len()
    }
}

/// Time limit of a response, as in SDKs.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a client retries a refused request before it gives up. The items are then not
/// expected to arrive.
const GIVES_UP: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(200);
/// Approximate maximum bytes per item, far below the limits of receivers.
const BALLAST: usize = 400;

/// A client of one signal and protocol.
pub struct Client {
    pub signal: Signal,
    pub service: String,
    pub transport: Transport,
    pub ledger: Arc<Ledger>,
    /// Items per second.
    pub rate: f64,
}

pub enum Transport {
    Grpc(Channel),
    Http(String, Box<legacy::Client<HttpConnector, Full<Bytes>>>),
}

enum Refused {
    Retryable,
    Permanent(String),
}

impl Transport {
    pub fn grpc(link: &Link) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("http://{}", link.address));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        // A dead connection without an error is given up.
        let endpoint = endpoint
            .timeout(TIMEOUT)
            .connect_timeout(TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(2))
            .keep_alive_timeout(Duration::from_secs(5));
        Ok(Transport::Grpc(endpoint.connect_lazy()))
    }

    pub fn http(link: &Link) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http();
        Transport::Http(format!("http://{}", link.address), Box::new(client))
    }
}

impl Client {
    /// Sends at its rate until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut next = Instant::now();
        while !stop.is_cancelled() {
            let items = fastrand::u64(1..=40);
            next += Duration::from_secs_f64(items as f64 / self.rate);
            // A client that was delayed for long does not catch up completely.
            next = next.max(Instant::now() - Duration::from_secs(1));
            let pause = tokio::time::sleep_until(next);
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
            self.insist(&stop, items).await;
        }
    }

    /// Sends one request until it is acknowledged, or the client gives up.
    async fn insist(&self, stop: &CancellationToken, items: u64) {
        let numbers = self.ledger.numbers(items, self.signal);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or_default();
        let ballast = fastrand::usize(0..BALLAST);
        let request = Telemetry::of(self.signal, &self.service, &numbers, now, ballast);
        let began = Instant::now();
        while began.elapsed() < GIVES_UP {
            self.ledger.requests.fetch_add(1, Relaxed);
            let sending = tokio::time::timeout(TIMEOUT, self.send(&request));
            match sending.await.unwrap_or(Err(Refused::Retryable)) {
                Ok(()) => return self.ledger.owe(numbers),
                Err(Refused::Permanent(why)) => return locked(&self.ledger.permanent).push(why),
                Err(Refused::Retryable) => {}
            }
            self.ledger.refusals.fetch_add(1, Relaxed);
            if stop
                .run_until_cancelled(tokio::time::sleep(RETRY))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    async fn send(&self, request: &Telemetry) -> Result<(), Refused> {
        match &self.transport {
            Transport::Grpc(channel) => export(channel.clone(), request.clone()).await,
            Transport::Http(base, client) => post(base, client, self.signal, request).await,
        }
    }
}

async fn export(channel: Channel, request: Telemetry) -> Result<(), Refused> {
    macro_rules! call {
        ($client:ident, $request:expr) => {
            $client::new(channel).export($request).await.map(|_| ())
        };
    }
    let outcome = match request {
        Telemetry::Traces(request) => call!(TraceServiceClient, request),
        Telemetry::Metrics(request) => call!(MetricsServiceClient, request),
        Telemetry::Logs(request) => call!(LogsServiceClient, request),
        Telemetry::Profiles(request) => call!(ProfilesServiceClient, request),
    };
    outcome.map_err(|status| {
        use tonic::Code;
        let retryable = match status.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => true,
            Code::ResourceExhausted => Status::decode(status.details())
                .is_ok_and(|details| details.retry_after().is_some()),
            // Status codes of tonic itself: the connection broke.
            Code::Unknown | Code::Internal => std::error::Error::source(&status).is_some(),
            _ => false,
        };
        match retryable {
            true => Refused::Retryable,
            false => Refused::Permanent(status.to_string()),
        }
    })
}

async fn post(
    base: &str,
    client: &legacy::Client<HttpConnector, Full<Bytes>>,
    signal: Signal,
    request: &Telemetry,
) -> Result<(), Refused> {
    let post = http::Request::post(format!("{base}{}", super::path(signal)))
        .header("content-type", "application/x-protobuf")
        .body(Full::from(request.encode()));
    let post = post.map_err(|error| Refused::Permanent(error.to_string()))?;
    // Without a response, the outcome is unknown.
    let answer = client.request(post).await.map_err(|_| Refused::Retryable)?;
    match answer.status().as_u16() {
        200 => Ok(()),
        429 | 502 | 503 | 504 => Err(Refused::Retryable),
        other => Err(Refused::Permanent(format!("HTTP status {other}"))),
    }
}
