//! Hands everything on, so that pipelines can be joined and parted, with a queue in between where that is wanted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::queued::queued;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, ConnectorConfig, Entry, Outputs, Terminal,
};
use crate::entry;
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
    "Hands everything on, so that pipelines can be joined and parted.",
    ALL_SIGNALS
);

/// Hands everything on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A queue in front of the pipelines that follow. What they do not take is offered again, after 100ms at first and at
    /// least every 45s, for ever. With `storage` what is in it is on disk until they have dealt with it: a window of
    /// `compression` or `log_dedup`, a batch, and an exporter's queue in memory only borrow it then. Request headers
    /// do not get past it. Default: off.
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
            // What comes out of the pipeline before is what goes into the one after: not even a call lies between.
            None => Ok(Terminal {
                inputs: outputs,
                component: Box::new(Idle),
            }),
        }
    }
}
