//! `nop`: accepts and discards all data.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Outputs, Terminal,
};
use crate::metric::shared;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, Idle};
use crate::queue::metrics::ExporterMetrics;
use futures_util::future::BoxFuture;
use tributary_config::Validate;
use tributary_otlp::Signal;

/// Configuration of the `nop` exporter: it has no keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Validate for Config {}

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "nop",
    aliases: &[],
    "Accepts and discards everything.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[shared::EXPORTER]
);

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let mut inputs = Outputs::default();
        for signal in signals {
            let metrics = ExporterMetrics::new(cx, *signal);
            inputs.set(*signal, Arc::new(Nop { metrics }));
        }
        Ok(Terminal {
            inputs,
            component: Box::new(Idle),
        })
    }
}

struct Nop {
    metrics: ExporterMetrics,
}

impl Consumer for Nop {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        self.metrics.received(batch.items());
        self.metrics.delivered(batch.items());
        Box::pin(async { Ok(()) })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::testing::{Recorded, context};

    #[tokio::test]
    async fn all_data_is_accepted_and_counted_as_delivered() {
        let recorded = Recorded::new();
        let exporter = recorded.within(|| Config {}.build(&context("nop"), &Signal::ALL).unwrap());
        for signal in Signal::ALL {
            let consumer = exporter.inputs.get(signal).unwrap();
            consumer
                .consume(Batch::new(signal, 3, Bytes::new()))
                .await
                .unwrap();
        }
        for signal in Signal::ALL {
            assert_eq!(recorded.items("received", signal), 3);
            assert_eq!(recorded.items("delivered", signal), 3);
            assert_eq!(recorded.items("refused", signal), 0);
        }
    }
}
