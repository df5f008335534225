//! Delivery of records to the brokers, across all attempts to send their batch.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureRecord, Producer as _};
use tokio::time::sleep;
use tracing::error;

use super::brokers::Brokers;
use super::record::{Record, records};
use crate::pipeline::batch::Code;
use crate::queue::{Fault, Identity, Outcome, SendError};

/// Delay before another attempt to enqueue a record when librdkafka's queue is full.
const NO_ROOM: Duration = Duration::from_millis(20);

/// Delivery states of the records of one batch. The batch owns the records themselves.
pub(super) struct Delivery(Vec<Sending>);

struct Sending {
    items: usize,
    topic: Bytes,
    state: State,
}

enum State {
    /// librdkafka does not have the record.
    Waiting,
    /// librdkafka did not accept the record.
    Failed(SendError),
    /// librdkafka has the record and will report the outcome.
    InFlight(DeliveryFuture),
    Acknowledged,
    /// The record was refused permanently.
    Refused(Refusal),
}

struct Refusal {
    fault: Fault,
    reason: String,
}

impl Delivery {
    /// Creates the states for a batch that [`Record::into_chunks`] wrote.
    fn new(chunks: &[Bytes]) -> Self {
        let records = records(chunks).map(|record| Sending {
            items: record.items,
            topic: record.topic,
            state: State::Waiting,
        });
        Delivery(records.collect())
    }

    /// Passes missing records to librdkafka, in order, and waits for room. A record that librdkafka
    /// does not accept, such as one for a missing topic, does not block later records; [`until_settled`](Self::until_settled)
    /// reports it. May be cancelled and called again.
    pub(super) async fn hand_over(
        &mut self,
        chunks: &[Bytes],
        brokers: &Brokers,
        headers: Option<&OwnedHeaders>,
        most: usize,
    ) {
        for (record, sending) in records(chunks).zip(&mut self.0) {
            if matches!(sending.state, State::Waiting | State::Failed(_)) {
                sending.state = match record.payload.len() > most {
                    true => State::Refused(too_large(&record, most)),
                    false => hand_over(&record, brokers, headers).await,
                };
            }
        }
    }

    /// Waits until no record is in flight. May be cancelled and called again.
    pub(super) async fn until_settled(&mut self) -> Result<Outcome, SendError> {
        let mut failed = None;
        for Sending { topic, state, .. } in &mut self.0 {
            let future = match state {
                State::InFlight(future) => future,
                State::Failed(error) => {
                    failed.get_or_insert(error.clone());
                    continue;
                }
                _ => continue,
            };
            *state = match future.await {
                Ok(Ok(_)) => State::Acknowledged,
                Ok(Err((error, _))) => match verdict(topic, &error) {
                    Ok(refused) => State::Refused(refused),
                    Err(error) => {
                        failed.get_or_insert(error);
                        State::Waiting
                    }
                },
                Err(_) => {
                    let reason =
                        "the Kafka client was replaced before the broker acknowledged the record";
                    failed.get_or_insert(SendError::transient(Code::Unavailable, reason));
                    State::Waiting
                }
            };
        }
        match failed {
            Some(error) => Err(error),
            None => self.outcome(),
        }
    }

    /// Returns the outcome of a batch without pending records.
    fn outcome(&self) -> Result<Outcome, SendError> {
        let refused = self.0.iter().filter_map(|sending| match &sending.state {
            State::Refused(refusal) => Some((sending.items, refusal)),
            _ => None,
        });
        let Some((_, first)) = refused.clone().next() else {
            return Ok(Outcome::default());
        };
        let reason = first.reason.clone();
        if refused.clone().count() == self.0.len() {
            let code = match first.fault {
                Fault::Size => Code::ResourceExhausted,
                _ => Code::InvalidArgument,
            };
            return Err(SendError::permanent(code, first.fault, reason));
        }
        Ok(Outcome {
            rejected_items: refused.map(|(items, _)| items).sum(),
            message: reason,
        })
    }
}

fn too_large(record: &Record, most: usize) -> Refusal {
    Refusal {
        // The record was already split as far as possible.
        fault: Fault::Elsewhere,
        reason: format!(
            "a record of {} bytes cannot be split, and `producer::max_message_bytes` allows {most}; raise that limit",
            record.payload.len()
        ),
    }
}

/// Gives a record to librdkafka, which copies it.
async fn hand_over(record: &Record, brokers: &Brokers, headers: Option<&OwnedHeaders>) -> State {
    let topic = std::str::from_utf8(&record.topic).unwrap_or_default();
    loop {
        let ready = FutureRecord::<[u8], [u8]> {
            topic,
            partition: None,
            payload: Some(&record.payload),
            key: (!record.key.is_empty()).then_some(&*record.key),
            timestamp: None,
            headers: headers.cloned(),
        };
        let error = match brokers.send(ready).await {
            Ok(Ok(future)) => return State::InFlight(future),
            Ok(Err(error)) => error,
            Err(ended) => return State::Failed(ended),
        };
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) {
            sleep(NO_ROOM).await;
            continue;
        }
        return match verdict(&record.topic, &error) {
            Ok(refused) => State::Refused(refused),
            Err(error) => State::Failed(error),
        };
    }
}

/// Returns the permanent refusal of a record, or the error to retry. Errors that an operator can resolve, such as a
/// missing topic or permission, are retried.
fn verdict(topic: &[u8], error: &KafkaError) -> Result<Refusal, SendError> {
    use RDKafkaErrorCode::{
        ClusterAuthorizationFailed, InvalidRecord, InvalidTimestamp, InvalidTopic,
        MessageBatchTooLarge, MessageSizeTooLarge, MessageTimedOut, PolicyViolation,
        TopicAuthorizationFailed,
    };
    let topic = String::from_utf8_lossy(topic);
    let reason = format!("Kafka did not accept a record for the topic {topic}: {error}");
    let code = error.rdkafka_error_code();
    let fault = match code {
        Some(MessageSizeTooLarge | MessageBatchTooLarge) => Fault::Size,
        Some(InvalidRecord | InvalidTimestamp) => Fault::Content,
        Some(InvalidTopic | PolicyViolation) => Fault::Elsewhere,
        code => {
            let code = match code {
                Some(TopicAuthorizationFailed | ClusterAuthorizationFailed) => {
                    Code::PermissionDenied
                }
                Some(MessageTimedOut) => Code::DeadlineExceeded,
                _ => Code::Unavailable,
            };
            return Err(SendError::transient(code, reason));
        }
    };
    Ok(Refusal { fault, reason })
}

/// The batches between two attempts, by their identity.
#[derive(Default)]
pub(super) struct Unfinished(Mutex<HashMap<usize, (Weak<Identity>, Delivery)>>);

impl Unfinished {
    /// Takes the delivery states of earlier attempts to send the batch. When the attempt is dropped, its states are
    /// stored again unless it is [finished](Attempt::finished).
    pub(super) fn resume(self: &Arc<Self>, identity: &Arc<Identity>, chunks: &[Bytes]) -> Attempt {
        let mut all = self.0.lock();
        // While the entry exists, no other batch can have its address.
        let left = all.remove(&Arc::as_ptr(identity).addr());
        let delivery = left.map(|(_, delivery)| delivery);
        Attempt {
            unfinished: self.clone(),
            identity: identity.clone(),
            delivery: delivery.unwrap_or_else(|| Delivery::new(chunks)),
        }
    }

    /// Batches that may be tried again.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// An attempt to send a batch.
pub(super) struct Attempt {
    unfinished: Arc<Unfinished>,
    identity: Arc<Identity>,
    /// Delivery states of the records of the batch.
    pub(super) delivery: Delivery,
}

impl Attempt {
    /// Records that there will be no other attempt.
    pub(super) fn finished(mut self) {
        self.delivery.0.clear();
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let delivery = Delivery(std::mem::take(&mut self.delivery.0));
        if delivery.0.is_empty() {
            return;
        }
        let mut all = self.unfinished.0.lock();
        // Remove the batches that the queue has dropped.
        all.retain(|_, (identity, _)| identity.strong_count() > 0);
        let address = Arc::as_ptr(&self.identity).addr();
        all.insert(address, (Arc::downgrade(&self.identity), delivery));
    }
}

impl Brokers {
    /// Ends an attempt. A client with a fatal error is replaced; its remaining records are sent again by the new
    /// client.
    pub(super) fn finish(&self, attempt: Attempt, outcome: &Result<Outcome, SendError>) {
        if !matches!(outcome, Err(error) if error.retryable) {
            attempt.finished();
            return;
        }
        let Some((generation, client)) = self.current() else {
            return;
        };
        if let Some((code, reason)) = client.client().fatal_error() {
            error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                code = ?code,
                error = reason,
                "The Kafka client failed; creating a new client"
            );
            self.renew(generation);
        }
    }
}
