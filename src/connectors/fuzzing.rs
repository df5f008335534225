//! Metrics of connectors, for fuzz targets.

pub use super::profile_metrics::fuzzing::{profile_metrics, request_metrics};
