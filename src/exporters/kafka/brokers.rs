//! The connection to the brokers, which is replaced when credentials change.

use std::sync::Arc;
use std::time::Duration as Time;

use parking_lot::Mutex;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep};
use tracing::{error, info};

use super::config::{Config, PartitionHasher};
use crate::pipeline::batch::Code;
use crate::queue::SendError;
use tributary_config::ComponentId;
use tributary_config::units::Duration;
use tributary_net::kafka::client::{Logging, Renewals, creation_error, settings};
use tributary_net::kafka::milliseconds;

/// A client of librdkafka; clones share the client.
type Client = FutureProducer<Logging>;

/// The client, and the settings to create another one. The client is replaced when certificates change, and after
/// fatal errors of librdkafka, such as a fenced idempotent producer.
pub(super) struct Brokers {
    pub(super) id: ComponentId,
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
    pub(super) fn new(config: &Config, id: &ComponentId) -> Result<Self, String> {
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

    /// Passes a record to librdkafka.
    ///
    /// # Errors
    ///
    /// The exporter has ended. The inner error is the error of librdkafka.
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
    pub(super) fn renew_when_due(self: &Arc<Self>) {
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
        let deadline = Instant::now() + MAX_DELIVERY_TIME;
        while client.in_flight_count() > 0 && Instant::now() < deadline {
            sleep(END_CHECK_INTERVAL).await;
        }
        self.renew(generation);
    }

    pub(super) fn current(&self) -> Option<(u64, Client)> {
        let current = self.client.lock();
        let (generation, client) = &*current;
        client.clone().map(|client| (*generation, client))
    }

    /// Replaces the client, unless it has been replaced since `generation`.
    pub(super) fn renew(&self, generation: u64) {
        let mut current = self.client.lock();
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
        let current = self.client.get_mut();
        discard(current.1.take());
    }
}

/// Ends a client on a separate thread, after it has delivered its records.
fn discard(client: Option<Client>) {
    let ending = std::thread::Builder::new().name("kafka-end".to_owned());
    // If no thread can be created, this ends the client without waiting.
    let _ = ending.spawn(move || {
        if let Some(client) = client {
            // Waiting attempts get the outcome of the remaining records.
            let _ = client.flush(LAST_DELIVERIES);
        }
    });
}

/// Time for a client to deliver its records before it is replaced, and the interval between checks for its end.
const MAX_DELIVERY_TIME: Time = Time::from_secs(10);
const END_CHECK_INTERVAL: Time = Time::from_millis(20);

/// Time for a replaced client to deliver its remaining records.
const LAST_DELIVERIES: Time = Time::from_secs(30);

fn producer_settings(config: &Config) -> ClientConfig {
    let mut settings = settings(&config.connection());
    let producer = &config.producer;
    let most = producer.max_message_bytes;
    let is_idempotent = producer.required_acks != 1;
    let linger = milliseconds(producer.linger);
    // The same time as the retries of the queue. With a shorter time, librdkafka could drop a record that the queue
    // sends again, and the record could arrive twice or out of order.
    let queue = config.sending_queue.iter();
    let is_stored = queue.filter_map(|queue| queue.storage.as_ref()).count() > 0;
    let message_timeout = match &*config.retry_on_failure {
        None => milliseconds(config.timeout),
        Some(retry) => match milliseconds(retry.of_queue(is_stored).limit()) {
            0 => 0,
            longest => longest.max(milliseconds(config.timeout)),
        },
    };
    let message_timeout = match message_timeout {
        0 => 0,
        some => some.max(linger + 1000).min(MAX_LIBRDKAFKA_TIME),
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
        .set("message.timeout.ms", message_timeout.to_string())
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
const MAX_LIBRDKAFKA_TIME: u64 = i32::MAX as u64;

/// Maximum size of librdkafka's queue, in bytes, unless a few records are larger.
const HELD: usize = 64 << 20;
