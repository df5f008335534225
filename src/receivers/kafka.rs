//! `kafka`: reads telemetry from topics of Kafka, with librdkafka.
//!
//! ```text
//! fetch -> a lane per partition -> pipeline; its offset is stored when the pipeline has accepted a message
//! ```
//!
//! A temporarily refused message is retried while later messages of its partition wait; other partitions continue. The
//! buffered messages are bounded. While the buffer stays full, the partitions with the most buffered messages are
//! paused, so that the member can read other partitions and respond to its group.

mod config;
#[cfg(feature = "kafka")]
mod consumer;
#[cfg(feature = "kafka")]
mod consumer_settings;
#[cfg(feature = "kafka")]
mod intake;
#[cfg(feature = "kafka")]
mod lanes;
#[cfg(feature = "kafka")]
mod membership;
#[cfg(feature = "kafka")]
#[cfg(test)]
mod tests;
mod topics;
mod validation;

pub use self::config::{
    Autocommit, Config, ConsumerSignal, ErrorBackoff, HeaderExtraction, InitialOffset,
    MessageMarking, RebalanceStrategy,
};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::Component;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "kafka",
    aliases: &[],
    "Reads telemetry from Kafka topics.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::RECEIVER, METRICS]
);

const METRICS: &[Metric] = &[metric::counter(
    "tributary_receiver_kafka_skipped_messages",
    "Number of Kafka messages that were skipped because they were not readable or were refused permanently, by \
     reason",
)];

impl ReceiverConfig for Config {
    #[cfg(feature = "kafka")]
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let receiver = consumer::Receiver::new(self, cx, outputs)
            .map_err(|reason| BuildError(format!("receiver {}: {reason}", cx.id)))?;
        Ok(Box::new(receiver))
    }

    #[cfg(not(feature = "kafka"))]
    fn build(&self, cx: &BuildContext, _: Outputs) -> Result<Box<dyn Component>, BuildError> {
        Err(BuildError(format!(
            "receiver {}: this collector was built without Kafka",
            cx.id
        )))
    }
}
