//! A service with a pprof endpoint. Each profile has one sample with a unique number, in a label
//! and as its value.
//!
//! The service does not learn whether a profile was stored. A profile scraped during a fault may be
//! lost, but must be unchanged and unique. A profile scraped without a fault must arrive.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tributary_otlp::Signal;

use super::load::Ledger;
use super::locked;
use super::telemetry::ID;

/// The service, as long as the process lives.
pub struct Service {
    pub address: SocketAddr,
    ledger: Arc<Ledger>,
    mood: Mutex<Mood>,
}

/// Expectation for a scraped profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// The profile may arrive.
    Gives,
    /// The profile must arrive.
    Counts,
    /// The service is idle: its profiles have no samples.
    Idle,
}

impl Service {
    pub async fn start(ledger: &Arc<Ledger>) -> std::io::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let service = Arc::new(Service {
            address: listener.local_addr()?,
            ledger: ledger.clone(),
            mood: Mutex::new(Mood::Gives),
        });
        let served = service.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(served.clone(), stream));
            }
        });
        Ok(service)
    }

    pub fn set(&self, mood: Mood) {
        *locked(&self.mood) = mood;
    }

    fn answer(&self) -> Response<Full<Bytes>> {
        let mood = *locked(&self.mood);
        let numbers = match mood {
            Mood::Idle => Vec::new(),
            Mood::Gives | Mood::Counts => self.ledger.numbers(1, Signal::Profiles),
        };
        let body = profile(&numbers).encode_to_vec();
        if mood == Mood::Counts {
            self.ledger.owe(numbers);
        }
        Response::new(Full::from(body))
    }
}

async fn serve(service: Arc<Service>, stream: TcpStream) {
    let answer = service_fn(move |_| {
        let answer = service.answer();
        async move { Ok::<_, Infallible>(answer) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // The scraping process may be killed at any time.
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}

/// Returns a profile with a sample for each number.
fn profile(numbers: &[u64]) -> Profile {
    const STRINGS: [&str; 6] = ["", "work", "count", "function", "main.go", ID];
    let strings = STRINGS.map(str::to_owned).into_iter();
    let sample = |(text, number): (i64, &u64)| Sample {
        location_id: vec![1],
        value: vec![number.cast_signed()],
        label: vec![Label { key: 5, text }],
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    Profile {
        sample_type: vec![ValueType { kind: 1, unit: 2 }],
        sample: (6..).zip(numbers).map(sample).collect(),
        location: vec![Location {
            id: 1,
            line: vec![Line { function: 1 }],
        }],
        function: vec![Function {
            id: 1,
            name: 3,
            filename: 4,
        }],
        string_table: strings.chain(numbers.iter().map(u64::to_string)).collect(),
        time_nanos: i64::try_from(now).unwrap_or_default(),
    }
}

/// The necessary parts of `proto/profile.proto` of github.com/google/pprof.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}
