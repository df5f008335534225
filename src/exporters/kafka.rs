//! `kafka`: writes telemetry to topics of Kafka, with librdkafka.
//!
//! ```text
//! encode: request -> groups by topic and key -> records within max_message_bytes
//! send:   records -> librdkafka -> brokers; acknowledged when every record is
//! ```
//!
//! The exporter buffers a batch: the next batch follows as soon as librdkafka has the records of the batch, so the order
//! of the queue is kept. After the timeout of an attempt, its records stay with librdkafka, which continues to retry.
//! The next attempt waits for the same records, so the exporter writes no duplicates, and records of a key stay in
//! order.

#[cfg(feature = "kafka")]
mod brokers;
mod config;
#[cfg(feature = "kafka")]
mod delivery;
#[cfg(feature = "kafka")]
mod group;
#[cfg(feature = "kafka")]
mod producer;
#[cfg(feature = "kafka")]
mod record;
#[cfg(feature = "kafka")]
#[cfg(test)]
mod tests;

pub use self::config::{
    Config, KafkaCompression, KafkaCompressionParams, PartitionHasher, Producer, ProducerSignal,
    RecordPartitioner, StickyKey, is_topic,
};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Terminal,
};
use crate::metric::shared;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "kafka",
    aliases: &[],
    "Writes telemetry to Kafka topics.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE]
);

impl ExporterConfig for Config {
    #[cfg(feature = "kafka")]
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        use std::sync::Arc;

        use crate::queue;
        use crate::queue::Settings;

        let exporter = producer::Exporter::new(self, &cx.id)
            .map_err(|reason| BuildError(format!("exporter {}: {reason}", cx.id)))?;
        let settings = Settings {
            queue: self.sending_queue.0.clone(),
            retry: self.retry_on_failure.0.clone(),
            timeout: *self.timeout,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(exporter);
        queue::terminal(cx, signals, &settings, &sender)
    }

    #[cfg(not(feature = "kafka"))]
    fn build(&self, cx: &BuildContext, _signals: &[Signal]) -> Result<Terminal, BuildError> {
        Err(BuildError(format!(
            "exporter {}: this collector was built without Kafka",
            cx.id
        )))
    }
}
