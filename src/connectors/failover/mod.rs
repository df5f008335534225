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
use std::time::Duration;

use bytes::Bytes;

use self::levels::Levels;
use crate::batch::{Batch, Requests, Signal};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, ConnectorConfig, Entry, Outputs, Terminal,
};
use crate::config::{PipelineId, Problems};
use crate::entry;
use crate::pipeline::{BoxFuture, Consumer as _, Idle};
use crate::queue::{
    self, Encoded, Fault, Outcome, QueueConfig, RetryConfig, SendError, Sender, Settings,
};

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
        let mut levels: [Option<Arc<Levels>>; 4] = Default::default();
        let mut inputs = Outputs::default();
        for signal in signals {
            let of_signal = Arc::new(Levels::new(self, cx, *signal, &outputs));
            inputs.set(*signal, of_signal.clone());
            levels[signal.index()] = Some(of_signal);
        }
        match &*self.sending_queue {
            None => Ok(Terminal {
                inputs,
                component: Box::new(Idle),
            }),
            Some(queue) => queued(cx, signals, queue, levels),
        }
    }
}

/// The levels behind a queue, which offers again what none of them takes.
fn queued(
    cx: &BuildContext,
    signals: &[Signal],
    queue: &QueueConfig,
    levels: [Option<Arc<Levels>>; 4],
) -> Result<Terminal, BuildError> {
    let settings = Settings {
        queue: Some(queue.clone()),
        retry: Some(RetryConfig {
            // For ever: what is in the queue was acknowledged.
            max_elapsed_time: Default::default(),
            ..RetryConfig::default()
        }),
        // Each level has those of its exporters.
        timeout: Duration::ZERO,
    };
    let sender: Arc<dyn Sender> = Arc::new(Offering(levels));
    queue::terminal(cx, signals, &settings, &sender)
}

/// What takes batches out of the queue.
struct Offering([Option<Arc<Levels>>; 4]);

impl Sender for Offering {
    fn encode(&self, _: Signal, requests: &Requests) -> Result<Vec<Bytes>, SendError> {
        Ok(requests.parts().to_vec())
    }

    fn encodes_every_byte(&self) -> bool {
        false
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let Some(levels) = &self.0[batch.signal.index()] else {
                return Ok(Outcome::default());
            };
            let requests: Requests = batch.chunks.iter().cloned().collect();
            // The queue holds the memory for as long as this takes.
            let offered = Batch::new(batch.signal, batch.items, requests);
            let taken = levels.consume(offered).await;
            taken
                .map(|()| Outcome::default())
                .map_err(|nack| SendError {
                    retryable: nack.retryable,
                    throttle: nack.retry_after,
                    code: nack.code,
                    // The exporters of the levels have taken apart what can be.
                    fault: Fault::Elsewhere,
                    reason: nack.reason.into_owned(),
                })
        })
    }
}
