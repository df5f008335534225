//! Forwards batches from pipelines to pipelines, optionally with a queue between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::queued::queued;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, ConnectorConfig, Entry, Origin, Outputs, Terminal,
};
use crate::entry;
use crate::metric::shared;
use crate::pipeline::Idle;
use crate::queue::QueueConfig;
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "forward",
    aliases: &[],
    "Forwards batches unchanged, to merge pipelines or to split one.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE]
);

/// Queue in front of the following pipelines.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Queue in front of the following pipelines. Data that they refuse is retried without limit, after 100ms at first
    /// and at least every 45s. With `storage`, the data stays on disk until a following pipeline has delivered it:
    /// buffering processors and in-memory queues behind the connector do not acknowledge it earlier. Request headers do
    /// not pass the queue. Default: off. (The Collector has no such key.)
    pub sending_queue: Section<QueueConfig>,
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let queue = self.sending_queue.iter();
        queue.filter_map(QueueConfig::uses).collect()
    }
}

impl ConnectorConfig for Config {
    fn build(
        &self,
        cx: &BuildContext,
        signals: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        match &*self.sending_queue {
            Some(queue) => queued(cx, signals, queue, outputs),
            // Without a queue, the following pipeline is connected directly.
            None => Ok(Terminal {
                inputs: outputs,
                component: Box::new(Idle),
            }),
        }
    }
}
