//! `nop`: receives nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig,
};
use crate::pipeline::{Component, Idle};
use tributary_config::Validate;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "nop",
    aliases: &[],
    "Receives nothing; a placeholder for pipelines that need a receiver.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[]
);

/// Configuration of the `nop` receiver: it has no keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Validate for Config {}

impl ReceiverConfig for Config {
    fn build(&self, _: &BuildContext, _: Outputs) -> Result<Box<dyn Component>, BuildError> {
        Ok(Box::new(Idle))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::pipeline::Undelivered;
    use crate::testing::context;

    #[tokio::test]
    async fn nop_receiver_starts_and_stops() {
        let mut receiver = Config {}
            .build(&context("nop"), Outputs::default())
            .unwrap();
        receiver.start();
        let undelivered = receiver.shutdown(Instant::now()).await;
        assert_eq!(undelivered, Undelivered::default());
    }
}
