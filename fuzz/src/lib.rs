//! What the fuzz targets check: one function per target, and every one asserts a promise rather than the mere absence
//! of a crash. `fuzz/run 60` runs them all for a minute each.

#[path = "../../tests/wire/generator.rs"]
mod generator;
#[path = "../../tests/wire/oracle.rs"]
mod oracle;
#[path = "../../tests/wire/rebuild.rs"]
mod rebuild;

mod answers;
mod certificates;
mod compression;
mod frames;
mod framing;
mod headers;
mod pprof;
mod printed;
pub mod seeds;
mod telemetry;

pub use answers::{answers, refusals};
pub use certificates::certificate;
pub use compression::decompress;
pub use frames::frames;
pub use framing::framing;
pub use headers::headers;
pub use pprof::pprof;
pub use printed::debug;
pub use telemetry::{edit, json, split, stamp, transcode, validate, view};
