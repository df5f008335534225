//! The sender behind the queue: from requests to records, and from records to the brokers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as Time;

use bytes::Bytes;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tokio::sync::{RwLock, oneshot};
use tokio::time::{Instant, sleep};
use tracing::{error, info};

use super::config::{Config, PartitionHasher};
use super::delivery::{Attempt, Unfinished};
use super::group::Grouping;
use super::record::{FRAMING, Record, values};
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, Taken};
use futures_util::future::BoxFuture;
use tributary_config::ComponentId;
use tributary_config::units::Duration;
use tributary_net::kafka::client::{Logging, Renewals, creation_error, settings};
use tributary_net::kafka::{RecordEncoding, milliseconds};
use tributary_otlp::{Requests, Signal};

/// A client of librdkafka; clones share the client.
type Client = FutureProducer<Logging>;

/// Maximum size of librdkafka's queue, in bytes, unless a few records are larger.
const HELD: usize = 64 << 20;

/// One exporter.
pub(super) struct Exporter {
    pub(super) brokers: Arc<Brokers>,
    routes: [Route; 4],
    headers: Option<OwnedHeaders>,
    /// The most bytes of key and value of a record.
    most: usize,
    /// Time that one attempt may wait for the brokers.
    patience: Option<Time>,
    pub(super) unfinished: Arc<Unfinished>,
}

/// Topic, encoding and grouping of a signal.
struct Route {
    topic: Bytes,
    encoding: RecordEncoding,
    grouping: Grouping,
}

impl Exporter {
    /// A client that begins to connect.
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
            patience: config.timeout.unless_zero(),
            unfinished: Arc::default(),
        })
    }

    /// Hands librdkafka the records of a batch that it does not have yet.
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
            let outcome = attempt.delivery.settle().await;
            self.brokers.finish(attempt, &outcome);
            outcome
        })
    }

    /// The next batch may follow as soon as librdkafka has this batch, so records stay in order and share produce
    /// requests.
    fn gathers(&self) -> bool {
        true
    }

    fn take<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Taken, SendError>> {
        Box::pin(async move {
            let mut attempt = self.begin(batch).await;
            let (mut tell, settled) = oneshot::channel();
            let (brokers, patience) = (self.brokers.clone(), self.patience);
            tokio::spawn(async move {
                let outcome = tokio::select! {
                    outcome = attempt.delivery.settle() => outcome,
                    error = too_late(patience) => Err(error),
                    // The queue has dropped the batch.
                    () = tell.closed() => return,
                };
                // Before the outcome is reported, because a new attempt may begin then.
                brokers.finish(attempt, &outcome);
                let _ = tell.send(outcome);
            });
            Ok(Taken::Over(settled))
        })
    }
}

/// The end of an attempt that waits too long. Its records stay with librdkafka.
async fn too_late(patience: Option<Time>) -> SendError {
    match patience {
        Some(patience) => sleep(patience).await,
        None => std::future::pending().await,
    }
    let reason = "the brokers have not acknowledged every record within the timeout";
    SendError::transient(Code::DeadlineExceeded, reason)
}

/// The client, and the settings to create another one. The client is replaced when certificates change, and after
/// fatal errors of librdkafka, such as a fenced idempotent producer.
pub(super) struct Brokers {
    id: ComponentId,
    settings: ClientConfig,
    renewals: Renewals,
    /// Generation of the current client, and the client itself; `None` only after the exporter has ended.
    client: Mutex<(u64, Option<Client>)>,
    /// Senders of records share the lock; replacing a working client takes it exclusively.
    gate: RwLock<()>,
}

fn connect(settings: &ClientConfig, id: &ComponentId) -> Result<Client, String> {
    Client::from_config_and_context(settings, Logging::new(id, "exporter"))
        .map_err(|error| creation_error(&error))
}

impl Brokers {
    fn new(config: &Config, id: &ComponentId) -> Result<Self, String> {
        let renewals = Renewals::new(&config.connection());
        let settings = producer_settings(config);
        let client = connect(&settings, id)?;
        Ok(Brokers {
            id: id.clone(),
            settings,
            renewals,
            client: Mutex::new((0, Some(client))),
            gate: RwLock::default(),
        })
    }

    /// Hands librdkafka a record.
    ///
    /// # Errors
    ///
    /// The exporter has ended. The inner error is that of librdkafka.
    pub(super) async fn send(
        &self,
        record: FutureRecord<'_, [u8], [u8]>,
    ) -> Result<Result<DeliveryFuture, KafkaError>, SendError> {
        let _pass = self.gate.read().await;
        let Some((_, client)) = self.current() else {
            let reason = "the exporter is shutting down";
            return Err(SendError::transient(Code::Unavailable, reason));
        };
        Ok(client.send_result(record).map_err(|(error, _)| error))
    }

    /// Reconnects when certificates have changed, in a separate task, because an attempt may end at any time.
    fn renew_when_due(self: &Arc<Self>) {
        if self.renewals.are_due() {
            let brokers = self.clone();
            tokio::spawn(async move { brokers.reconnect().await });
        }
    }

    /// Replaces the client after it has delivered its records, so that no record overtakes an earlier record of its
    /// key. The wait is limited, because the old certificate may be the reason for failed deliveries.
    pub(super) async fn reconnect(&self) {
        let _alone = self.gate.write().await;
        let Some((generation, client)) = self.current() else {
            return;
        };
        info!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "exporter",
            "The files of the `tls` section have changed; reconnecting to Kafka"
        );
        let deadline = Instant::now() + ORDERLY;
        while client.in_flight_count() > 0 && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        self.renew(generation);
    }

    fn current(&self) -> Option<(u64, Client)> {
        let current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, client) = &*current;
        client.clone().map(|client| (*generation, client))
    }

    /// Ends an attempt. A client with a fatal error is replaced; its remaining records are sent again by the new
    /// client.
    fn finish(&self, attempt: Attempt, outcome: &Result<Outcome, SendError>) {
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

    /// Replaces the client, unless it has been replaced since `generation`.
    fn renew(&self, generation: u64) {
        let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != generation {
            return;
        }
        match connect(&self.settings, &self.id) {
            Ok(new) => {
                let old = current.1.replace(new);
                current.0 += 1;
                discard(old);
            }
            Err(reason) => error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                error = reason,
                "Cannot create a new Kafka client; still using the previous one"
            ),
        }
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        let current = self
            .client
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        discard(current.1.take());
    }
}

/// Ends a client on a separate thread, after it has delivered its records.
fn discard(client: Option<Client>) {
    let ending = std::thread::Builder::new().name("kafka-end".to_owned());
    // Without a thread it ends here, without waiting.
    let _ = ending.spawn(move || {
        if let Some(client) = client {
            // Waiting attempts get the outcome of the remaining records.
            let _ = client.flush(LAST_DELIVERIES);
        }
    });
}

/// Time for a client to deliver its records before it is replaced, and the interval between checks for its end.
const ORDERLY: Time = Time::from_secs(10);
const LOOK: Time = Time::from_millis(20);

/// Time for a replaced client to deliver its remaining records.
const LAST_DELIVERIES: Time = Time::from_secs(30);

/// Returns the settings of librdkafka's producer.
fn producer_settings(config: &Config) -> ClientConfig {
    let mut settings = settings(&config.connection());
    let producer = &config.producer;
    let most = producer.max_message_bytes;
    let is_idempotent = producer.required_acks != 1;
    let linger = milliseconds(producer.linger);
    // As long as the retries of the queue. With a shorter time, a record that librdkafka drops and the queue sends
    // again could arrive twice or out of order.
    let queue = config.sending_queue.iter();
    let is_stored = queue.filter_map(|queue| queue.storage.as_ref()).count() > 0;
    let patience = match &*config.retry_on_failure {
        None => milliseconds(config.timeout),
        Some(retry) => match milliseconds(retry.of_queue(is_stored).limit()) {
            0 => 0,
            longest => longest.max(milliseconds(config.timeout)),
        },
    };
    let patience = match patience {
        0 => 0,
        some => some.max(linger + 1000).min(FOREVER),
    };
    let answer = match milliseconds(config.timeout) {
        0 => milliseconds(Duration::secs(30)),
        some => some,
    };
    settings
        .set("acks", producer.required_acks.to_string())
        .set("enable.idempotence", is_idempotent.to_string())
        .set("compression.type", producer.compression.name())
        .set(
            "compression.level",
            producer.compression_params.level.to_string(),
        )
        .set("linger.ms", linger.to_string())
        .set(
            "batch.num.messages",
            producer.flush_max_messages.to_string(),
        )
        .set("batch.size", most.to_string())
        .set("message.max.bytes", most.to_string())
        .set(
            "queue.buffering.max.kbytes",
            (HELD.max(most.saturating_mul(4)) >> 10).to_string(),
        )
        .set("request.timeout.ms", answer.to_string())
        .set("message.timeout.ms", patience.to_string())
        .set(
            "partitioner",
            match config.record_partitioner.sticky_key.hasher {
                PartitionHasher::SaramaCompat => "fnv1a_random",
                PartitionHasher::Murmur2 => "murmur2_random",
            },
        );
    if !is_idempotent {
        // With more requests in flight, a retried request could fall behind its successor.
        settings.set("max.in.flight.requests.per.connection", "1");
    }
    settings
}

/// librdkafka keeps times in 31 bits.
const FOREVER: u64 = i32::MAX as u64;

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
