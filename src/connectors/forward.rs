//! Hands everything on, so that pipelines can be joined and parted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::batch::Signal;
use crate::component::{BuildContext, BuildError, ConnectorConfig, Outputs, Terminal};
use crate::config::Validate;
use crate::pipeline::{BoxFuture, Component, Undelivered};

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
            component: Box::new(Forward),
        })
    }
}

struct Forward;

impl Component for Forward {
    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async { Undelivered::default() })
    }
}
