//! Clients.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::harness::telemetry::text;
use crate::harness::{Client, Oracle, Refused, Signal, Telemetry};

/// Interval after which a refused client retries.
const RETRY: Duration = Duration::from_millis(20);

/// Refusals that the clients got.
#[derive(Default)]
pub struct Refusals {
    pub refused: AtomicUsize,
    /// Refusals because a queue or the memory was full.
    pub full: AtomicUsize,
    /// Permanent refusals of valid requests, which are a failure.
    pub wrong: Mutex<Vec<String>>,
}

impl Refusals {
    /// Counts a refusal.
    pub fn note(&self, refused: &Refused) {
        self.refused.fetch_add(1, Relaxed);
        match refused.code {
            Code::ResourceExhausted if refused.is_retryable() => {
                self.full.fetch_add(1, Relaxed);
            }
            Code::InvalidArgument | Code::Unimplemented | Code::ResourceExhausted => {
                self.wrong.lock().unwrap().push(format!("{refused:?}"));
            }
            _ => {}
        }
    }
}

/// A client that sends continuously, to each process of the collector in turn.
pub struct Sender {
    pub name: String,
    pub is_grpc: bool,
    pub most_items: usize,
    pub padding: usize,
    pub addresses: watch::Receiver<Option<[SocketAddr; 2]>>,
    pub oracle: Oracle,
    pub refusals: Arc<Refusals>,
    pub enough: CancellationToken,
}

impl Sender {
    /// Sends until the load ends.
    pub async fn send(mut self) {
        let mut random = Rng::new();
        for life in 0.. {
            let enough = self.enough.clone();
            let up = self.addresses.wait_for(Option::is_some);
            let addresses = match enough.run_until_cancelled(up).await {
                Some(Ok(addresses)) => *addresses,
                _ => return,
            };
            let Some([grpc, http]) = addresses else {
                return;
            };
            let name = format!("{}-{life}", self.name);
            let client = match self.is_grpc {
                true => Client::lazy(&name, grpc, &self.oracle),
                false => Client::http(&name, http, &self.oracle),
            };
            while *self.addresses.borrow() == addresses {
                if enough.is_cancelled() {
                    return;
                }
                let signal = Signal::ALL[random.usize(..Signal::ALL.len())];
                let items = random.usize(1..=self.most_items);
                let request = padded(client.request(signal, items), self.padding);
                if let Err(refused) = client.send(&request).await {
                    self.refusals.note(&refused);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// The request with so many bytes more, in an attribute of its resource.
fn padded(mut request: Telemetry, bytes: usize) -> Telemetry {
    if bytes == 0 {
        return request;
    }
    let resource = Some(Resource {
        attributes: vec![text("padding", &"x".repeat(bytes))],
        ..Resource::default()
    });
    match &mut request {
        Telemetry::Traces(request) => request.resource_spans[0].resource = resource,
        Telemetry::Metrics(request) => request.resource_metrics[0].resource = resource,
        Telemetry::Logs(request) => request.resource_logs[0].resource = resource,
        Telemetry::Profiles(request) => request.resource_profiles[0].resource = resource,
    }
    request
}
