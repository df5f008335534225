//! `kafka`: writes telemetry to topics of Kafka, with librdkafka.
//!
//! ```text
//! encode: request -> groups by topic and key -> records within max_message_bytes
//! send:   records -> librdkafka -> brokers; acknowledged when every record is
//! ```
//!
//! A batch is taken over: the next one follows as soon as librdkafka has its records, so the order is that of the
//! queue. An attempt whose time is over leaves its records with librdkafka, which goes on trying. The next attempt
//! waits for the same ones, so nothing is written twice by us, and what has the same key stays in order.

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

/// The registry's entry.
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
