//! What fuzz targets see that nobody else should use: parsers that are private to their modules.

pub use crate::exporters::fuzzing as exporters;
pub use crate::receivers::otlp::fuzzing as receiver;
