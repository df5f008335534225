//! The collector's own telemetry: logs, the page of metrics, and what each metric means.
//!
//! Names and labels are the Collector's where it has one, so that existing dashboards and alerts work. What it has no
//! name for begins with `tributary_`. Handles are resolved once, when a component is built: looking one up costs more
//! than counting.
//!
//! Two equations hold at any quiet moment, in items; the integration tests assert them:
//!
//! ```text
//! tributary_pipeline_*{pipeline}:            received = forwarded + dropped + refused + in_flight
//! tributary_exporter_*{exporter,data_type}:  received = delivered + dropped + refused + in_flight
//! tributary_connector_*{connector}:          received = delivered + dropped + refused + in_flight
//! ```
//!
//! An exporter with a stored queue begins with what that has: `received + recovered = delivered + dropped + refused + kept +
//! in_flight`, where `kept` is what it leaves there when it ends before the process does.
//!
//! Of connectors, those have an account that hold what they have taken.
//!
//! A pipeline forwards what all its exporters took responsibility for, so the two chain up.

pub(crate) mod certificates;
pub mod config;
pub(crate) mod disk;
pub mod endpoint;
pub mod exposition;
pub mod logs;
mod process;
pub(crate) mod terminal;
