//! `failover`: one of several ways on, the first that is open.
//!
//! ```text
//! pipelines -> [sending_queue] -> levels of a signal -> pipelines of level 1, or else of level 2, ...
//! ```
//!
//! Nothing is held but what the optional queue has: whoever brings a batch waits for the answer of the level that
//! takes it, and hears of the refusal when none does.

mod config;
mod levels;
mod metrics;
#[cfg(test)]
mod tests;

pub use self::config::Config;

use std::sync::Arc;

use self::levels::Levels;
use super::queued::queued;
use crate::batch::Signal;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, ConnectorConfig, Entry, Outputs, Terminal,
};
use crate::config::{PipelineId, Problems};
use crate::entry;
use crate::pipeline::Idle;

/// The registry's entry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "failover",
    aliases: &[],
    "Hands everything to the first level of pipelines that takes it.",
    ALL_SIGNALS
);

impl ConnectorConfig for Config {
    fn check_pipelines(&self, ends: &[PipelineId], starts: &[PipelineId], problems: &mut Problems) {
        self.check_levels(ends, starts, problems);
    }

    fn build(
        &self,
        cx: &BuildContext,
        signals: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        let mut inputs = Outputs::default();
        for signal in signals {
            let levels = Levels::new(self, cx, *signal, &outputs);
            inputs.set(*signal, Arc::new(levels));
        }
        match &*self.sending_queue {
            None => Ok(Terminal {
                inputs,
                component: Box::new(Idle),
            }),
            Some(queue) => queued(cx, signals, queue, inputs),
        }
    }
}
