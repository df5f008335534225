//! The sender behind the queue: from requests to records, and from records to the brokers.

use std::sync::Arc;
use std::time::Duration as Time;

use bytes::Bytes;
use rdkafka::message::{Header, OwnedHeaders};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::brokers::Brokers;
use super::config::Config;
use super::delivery::{Attempt, Unfinished};
use super::group::Grouping;
use super::record::{FRAMING, Record, values};
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, SendOutcome};
use futures_util::future::BoxFuture;
use tributary_config::ComponentId;
use tributary_net::kafka::RecordEncoding;
use tributary_otlp::{Requests, Signal};

pub(super) struct Exporter {
    pub(super) brokers: Arc<Brokers>,
    routes: [Route; 4],
    headers: Option<OwnedHeaders>,
    /// Maximum size of key and value of a record, in bytes.
    most: usize,
    /// Time that one attempt may wait for the brokers.
    attempt_timeout: Option<Time>,
    pub(super) unfinished: Arc<Unfinished>,
}

/// Topic, encoding and grouping of a signal.
struct Route {
    topic: Bytes,
    encoding: RecordEncoding,
    grouping: Grouping,
}

impl Exporter {
    /// Creates a client, which begins to connect.
    pub(super) fn new(config: &Config, id: &ComponentId) -> Result<Self, String> {
        let headers = config.record_headers.iter();
        let header_bytes: usize = headers
            .map(|(name, value)| name.len() + value.len() + 10)
            .sum();
        let most = config.producer.max_message_bytes;
        Ok(Exporter {
            brokers: Arc::new(Brokers::new(config, id)?),
            routes: Signal::ALL.map(|signal| Route {
                topic: Bytes::copy_from_slice(config.topic(signal).as_bytes()),
                encoding: config.signal(signal).encoding,
                grouping: Grouping {
                    topic_attribute: config.topic_from_attribute.clone(),
                    has_keys: config.has_keys(signal),
                },
            }),
            headers: headers_of(config),
            most: most.saturating_sub(FRAMING + header_bytes),
            attempt_timeout: config.timeout.unless_zero(),
            unfinished: Arc::default(),
        })
    }

    /// Passes the missing records of a batch to librdkafka.
    async fn begin(&self, batch: &Encoded) -> Attempt {
        self.brokers.renew_when_due();
        let mut attempt = self.unfinished.resume(&batch.identity, &batch.chunks);
        let (headers, most) = (self.headers.as_ref(), self.most);
        let delivery = &mut attempt.delivery;
        delivery
            .hand_over(&batch.chunks, &self.brokers, headers, most)
            .await;
        attempt
    }

    fn records(&self, signal: Signal, request: &Bytes) -> Result<Vec<Bytes>, String> {
        let Route {
            topic,
            encoding,
            grouping,
        } = &self.routes[signal.index()];
        let mut chunks = Vec::new();
        for group in grouping.groups(signal, request) {
            let topic = group.topic.map_or_else(|| topic.clone(), Bytes::from);
            let most = self.most.saturating_sub(group.key.len());
            for (items, payload) in values(signal, group.request, *encoding, most)? {
                let record = Record {
                    items,
                    topic: topic.clone(),
                    key: group.key.clone(),
                    payload,
                };
                chunks.extend(record.into_chunks());
            }
        }
        Ok(chunks)
    }
}

impl queue::Sender for Exporter {
    fn encode(
        &self,
        signal: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        // Memory for the merged request, its parts, and the records.
        let again =
            usize::from(requests.parts().len() > 1) + usize::from(self.encodes_every_byte());
        let bytes = requests.len().saturating_mul(2 * again);
        memory
            .take(bytes)
            .map_err(|_| SendError::no_memory(memory))?;
        self.records(signal, &requests.to_bytes())
            .map_err(|reason| {
                let reason = format!("cannot encode the batch: {reason}");
                SendError::permanent(Code::Internal, Fault::Content, reason)
            })
    }

    fn encodes_every_byte(&self) -> bool {
        let works = |route: &Route| {
            route.encoding == RecordEncoding::OtlpJson || !route.grouping.is_whole()
        };
        self.routes.iter().any(works)
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let mut attempt = self.begin(batch).await;
            let outcome = attempt.delivery.until_settled().await;
            self.brokers.finish(attempt, &outcome);
            outcome
        })
    }

    /// The next batch may follow as soon as librdkafka has this batch, so records stay in order and share produce
    /// requests.
    fn buffers(&self) -> bool {
        true
    }

    fn send_or_buffer<'a>(
        &'a self,
        batch: &'a Encoded,
    ) -> BoxFuture<'a, Result<SendOutcome, SendError>> {
        Box::pin(async move {
            let mut attempt = self.begin(batch).await;
            let (mut tell, settled) = oneshot::channel();
            let (brokers, attempt_timeout) = (self.brokers.clone(), self.attempt_timeout);
            tokio::spawn(async move {
                let outcome = tokio::select! {
                    outcome = attempt.delivery.until_settled() => outcome,
                    error = timed_out(attempt_timeout) => Err(error),
                    // The queue has dropped the batch.
                    () = tell.closed() => return,
                };
                // Finish before the outcome is reported, because a new attempt may begin after the report.
                brokers.finish(attempt, &outcome);
                let _ = tell.send(outcome);
            });
            Ok(SendOutcome::Buffered(settled))
        })
    }
}

/// Returns the error of an attempt after its timeout. The records stay with librdkafka.
async fn timed_out(attempt_timeout: Option<Time>) -> SendError {
    match attempt_timeout {
        Some(attempt_timeout) => sleep(attempt_timeout).await,
        None => std::future::pending().await,
    }
    let reason = "the brokers have not acknowledged every record within the timeout";
    SendError::transient(Code::DeadlineExceeded, reason)
}

fn headers_of(config: &Config) -> Option<OwnedHeaders> {
    let headers = &config.record_headers;
    if headers.is_empty() {
        return None;
    }
    let all = OwnedHeaders::new_with_capacity(headers.len());
    Some(headers.iter().fold(all, |all, (key, value)| {
        all.insert(Header {
            key,
            value: Some(value),
        })
    }))
}
