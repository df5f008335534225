//! The collector's own telemetry: logs, the page of metrics, and the description of each metric.
//!
//! Names and labels are those of the Collector, so that existing dashboards and alerts work. Metrics without a counterpart
//! in the Collector begin with `tributary_`. Handles are resolved once, when a component is built, because a lookup costs
//! more than counting.
//!
//! Without load, these equations hold, in items. The integration tests check them:
//!
//! ```text
//! tributary_pipeline_*{pipeline}:            received = forwarded + dropped + refused + in_flight
//! tributary_exporter_*{exporter,data_type}:  received = delivered + dropped + refused + in_flight
//! tributary_connector_*{connector}:          received = delivered + dropped + refused + in_flight
//! ```
//!
//! For an exporter with a stored queue, the equation is `received + recovered = delivered + dropped + refused + kept +
//! in_flight`. `recovered` counts the items in the queue at the start of the exporter, and `kept` the items in the queue
//! at its end.
//!
//! Only connectors that buffer acknowledged items have an account.
//!
//! The items that a pipeline forwards are the items that all its exporters accepted.

pub(crate) mod certificates;
pub mod config;
pub(crate) mod disk;
pub mod endpoint;
pub mod exposition;
pub mod logs;
mod page;
mod process;
pub(crate) mod terminal;
