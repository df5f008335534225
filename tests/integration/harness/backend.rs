//! The next hop: an OTLP server over gRPC (tonic) and HTTP (hyper) with scripted failures. It records the received
//! items.

mod door;
mod serve;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::watch;
use tonic::Code;

use super::{Signal, Telemetry, within};
use door::ReopenableListener;

/// A next hop. The drop closes all its connections.
pub struct Backend {
    shared: Arc<Shared>,
    grpc: ReopenableListener,
    http: ReopenableListener,
}

/// Requests and items that a backend has received.
#[derive(Default)]
pub struct Record {
    /// The requests that were accepted, in order.
    pub accepted: Vec<Accepted>,
    /// Number of times that each item was accepted, by id.
    pub arrivals: HashMap<String, usize>,
    /// Requests that were read, accepted or not.
    pub attempts: usize,
    /// Requests that wait for [`release`](Backend::release).
    pub held: usize,
}

impl Record {
    /// The accepted requests of a signal.
    pub fn telemetry(&self, signal: Signal) -> impl Iterator<Item = &Telemetry> {
        let all = self.accepted.iter().map(|accepted| &accepted.telemetry);
        all.filter(move |telemetry| telemetry.signal() == signal)
    }
}

/// A request that was accepted.
#[derive(Clone)]
pub struct Accepted {
    pub headers: HeaderMap,
    pub telemetry: Telemetry,
}

/// Response to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    Accept,
    /// Accept all items except the first `rejected` ones, as a partial success.
    Partial {
        rejected: usize,
        message: &'static str,
    },
    Refuse(Refusal),
    /// Close the connection without a response.
    Disconnect,
    /// The same, having taken the data.
    AcceptAndDisconnect,
}

/// A refusal, over either protocol.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub grpc: Code,
    pub http: u16,
    /// RetryInfo and `Retry-After`.
    pub retry_after: Option<Duration>,
    pub message: &'static str,
}

impl Refusal {
    /// "Not now."
    pub const UNAVAILABLE: Refusal = Refusal {
        grpc: Code::Unavailable,
        http: 503,
        retry_after: None,
        message: "the backend is busy",
    };

    /// "Never."
    pub const INVALID: Refusal = Refusal {
        grpc: Code::InvalidArgument,
        http: 400,
        retry_after: None,
        message: "the backend does not like it",
    };
}

type Script = Box<dyn FnMut(&Telemetry) -> Answer + Send>;

struct Shared {
    script: Mutex<Script>,
    open: watch::Sender<bool>,
    record: watch::Sender<Record>,
}

impl Backend {
    /// A backend that accepts everything.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(|_| Answer::Accept)),
            open: watch::Sender::new(true),
            record: watch::Sender::new(Record::default()),
        });
        Backend {
            grpc: ReopenableListener::open(serve::grpc(shared.clone())).await,
            http: ReopenableListener::open(serve::http(shared.clone())).await,
            shared,
        }
    }

    /// Address of the gRPC server; unchanged after a restart.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc.address
    }

    /// Address of the HTTP server; unchanged after a restart.
    pub fn http(&self) -> SocketAddr {
        self.http.address
    }

    /// Decides the responses from now on.
    pub fn script(&self, script: impl FnMut(&Telemetry) -> Answer + Send + 'static) {
        *self.shared.script.lock().unwrap() = Box::new(script);
    }

    /// Gives the same response to every request.
    pub fn always(&self, answer: Answer) {
        self.script(move |_| answer.clone());
    }

    /// Delays every response until [`release`](Self::release).
    pub fn hold(&self) {
        self.shared.open.send_replace(false);
    }

    /// Sends the delayed responses.
    pub fn release(&self) {
        self.shared.open.send_replace(true);
    }

    /// Stops listening and closes every connection. Connecting is refused from now on.
    pub async fn stop(&self) {
        self.grpc.close().await;
        self.http.close().await;
    }

    /// Listens again, at the same addresses.
    pub fn restart(&self) {
        self.grpc.listen();
        self.http.listen();
    }

    /// Returns the record. Do not hold it across an await.
    pub fn record(&self) -> watch::Ref<'_, Record> {
        self.shared.record.borrow()
    }

    /// Waits without a time limit until the record satisfies the condition.
    pub async fn until(&self, seen: impl FnMut(&Record) -> bool) {
        let mut record = self.shared.record.subscribe();
        record.wait_for(seen).await.unwrap();
    }

    /// Waits until the record satisfies the condition.
    pub async fn wait_for(&self, what: &str, seen: impl FnMut(&Record) -> bool) {
        within(&format!("the backend to see {what}"), self.until(seen)).await;
    }
}

impl Shared {
    /// Decides about a request and records it.
    async fn decide(&self, headers: HeaderMap, telemetry: Telemetry) -> Answer {
        self.record.send_modify(|record| record.attempts += 1);
        {
            let _held = Held::new(self);
            let mut open = self.open.subscribe();
            open.wait_for(|open| *open).await.unwrap();
        }
        let answer = (self.script.lock().unwrap())(&telemetry);
        let rejected = match answer {
            Answer::Accept | Answer::AcceptAndDisconnect => 0,
            Answer::Partial { rejected, .. } => rejected,
            Answer::Refuse(_) | Answer::Disconnect => return answer,
        };
        self.record.send_modify(|record| {
            for id in telemetry.ids().into_iter().skip(rejected) {
                *record.arrivals.entry(id).or_default() += 1;
            }
            record.accepted.push(Accepted { headers, telemetry });
        });
        answer
    }
}

/// A request whose response is delayed. The drop (for example after a lost connection) ends the delay.
struct Held<'a>(&'a Shared);

impl<'a> Held<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.record.send_modify(|record| record.held += 1);
        Held(shared)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.record.send_modify(|record| record.held -= 1);
    }
}
