//! Hands everything on, so that pipelines can be joined and parted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Signal;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, ConnectorConfig, Entry, Outputs, Terminal,
};
use crate::config::Validate;
use crate::entry;
use crate::pipeline::Idle;

/// The registry's entry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "forward",
    aliases: &[],
    "Hands everything on, so that pipelines can be joined and parted.",
    ALL_SIGNALS
);

/// The `forward` connector has no settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Validate for Config {}

impl ConnectorConfig for Config {
    fn build(
        &self,
        _: &BuildContext,
        _: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        // What comes out of the pipeline before is what goes into the one after: not even a call lies between.
        Ok(Terminal {
            inputs: outputs,
            component: Box::new(Idle),
        })
    }
}
