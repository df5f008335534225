//! The `pyroscope` receiver: Pyroscope's agents send their profiles to the collector without changes.
//!
//! The same port serves both protocols: `POST /ingest`, and `push.v1.PusherService/Push` over Connect and gRPC. All
//! profiles of a request are forwarded as one batch, and a request is acknowledged only after the pipeline has accepted
//! the batch.

mod answer;
mod config;
mod convert;
mod ingest;
mod jfr;
mod push;
mod sender;
mod server;

pub use self::config::{Config, PyroscopeHttpConfig, PyroscopeProtocols};
use crate::component::{
    BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig, Stability,
};
use crate::metric::shared;
use crate::pipeline::{Component, Idle};
use crate::receivers::profile_intake::Intake;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "pyroscope",
    aliases: &[],
    "Receives profiles of Pyroscope's agents, and converts them to OTLP.",
    &[(Signal::Profiles, Stability::Alpha)],
    collector: Origin::Own,
    metrics: &[shared::RECEIVER, shared::SERVER, shared::TLS, shared::PPROF_REPAIRS]
);

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let (Some(consumer), Some(http)) = (outputs.get(Signal::Profiles), &*self.protocols.http)
        else {
            return Ok(Box::new(Idle));
        };
        let (consumer, budget) = (consumer.clone(), cx.budget.clone());
        let limit = http.max_body();
        let intake = Intake::new(&cx.id, consumer, budget, "http", limit, server::LIMIT_KEY);
        server::listening(http, &self.tenant_attribute, cx, intake)
    }
}
