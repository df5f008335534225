//! Finds functions whose share of a service's profiles has changed significantly: between two
//! versions of the service, or since the same hour of the day before.
//!
//! Profiles are summed by window, series (`service.name` and sample type) and version. A window
//! yields, for each function, its own share of the window's total and its share including callees.
//! When a new version has enough windows, a rank test compares them with those of the previous
//! version; it is repeated as more windows arrive. Each significant change becomes one log record,
//! an OpenTelemetry event `profile.regression` or `profile.improvement`.
//!
//! The connector observes: it acknowledges profiles once they are counted, and never refuses them
//! for lack of room. Profiles and windows without room are skipped and counted.

mod compare;
mod config;
mod days;
mod event;
mod finding;
mod history;
mod measure;
mod metrics;
mod rank;
mod shares;
mod stage;
#[cfg(test)]
mod tests;
mod versions;
mod window;

pub use self::config::{Baseline, Config};
use crate::component::{
    BuildContext, BuildError, ConnectorConfig, Entry, Origin, Outputs, Stability, Terminal,
};
use crate::entry;
use crate::metric::{self, shared};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "profile_regressions",
    aliases: &[],
    "Finds functions that cost more or less than in the previous version or the day before.",
    &[(Signal::Profiles, Stability::Alpha)],
    emits: &[Signal::Logs],
    collector: Origin::Own,
    metrics: &[shared::CONNECTOR, OWN_METRICS]
);

/// Metrics of this component alone.
const OWN_METRICS: &[metric::Metric] = &[
    metric::counter(
        "tributary_connector_profile_regressions",
        "Number of findings, by kind: regression or improvement",
    ),
    metric::counter(
        "tributary_connector_profile_regressions_comparisons",
        "Number of comparisons of two versions or two hours of a series",
    ),
    metric::counter(
        "tributary_connector_profile_regressions_skipped_samples",
        "Number of samples that are in no comparison, by reason",
    ),
];

impl ConnectorConfig for Config {
    fn build(
        &self,
        cx: &BuildContext,
        _: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        let next = outputs.get(Signal::Logs).ok_or_else(|| {
            BuildError("no logs pipeline lists the connector as a receiver".to_owned())
        })?;
        Ok(stage::build(self, cx, next.clone()))
    }
}
