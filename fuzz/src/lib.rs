//! Fuzz targets: one function per target, each of which asserts a property rather than the mere
//! absence of a crash. `fuzz/run 60` runs each target for a minute.

#[path = "../../crates/otlp/tests/wire/generator.rs"]
mod generator;
#[path = "../../crates/otlp/tests/wire/oracle.rs"]
mod oracle;
#[path = "../../crates/otlp/tests/wire/rebuild.rs"]
mod rebuild;
#[path = "../../crates/profiles/src/testing.rs"]
mod samples;
#[allow(dead_code, reason = "its tests of samplers have no fuzz target")]
#[path = "../../tests/wire/sieve.rs"]
mod sieve;
#[path = "../../tests/wire/survival.rs"]
mod survival;

mod answers;
mod certificates;
mod columns;
mod compression;
mod conditions;
mod connectors;
mod credentials;
mod exposition;
mod frames;
mod framing;
mod greeting;
mod headers;
mod join;
mod naming;
mod pprof;
mod printed;
mod profile_formats;
mod profiles;
mod pyroscope;
mod redaction;
mod scrapes;
pub mod seeds;
mod statements;
mod spans;
mod storage;
mod symbols;
mod telemetry;

pub use answers::{answers, refusals};
pub use certificates::{certificate, material, names};
pub use columns::parquet_table;
pub use compression::decompress;
pub use conditions::{conditions, filter};
pub use connectors::{count, profile_metrics};
pub use credentials::credentials;
pub use exposition::prometheus;
pub use frames::frames;
pub use framing::framing;
pub use greeting::greeting;
pub use headers::headers;
pub use join::join_profiles;
pub use naming::naming;
pub use pprof::pprof;
pub use printed::debug;
pub use profile_formats::{jfr, profile_formats};
pub use profiles::profiles;
pub use pyroscope::{pyroscope_form, pyroscope_push, pyroscope_stacks};
pub use redaction::{redact, redaction};
pub use scrapes::{relabel, scrape};
pub use statements::statements;
pub use spans::spans;
pub use storage::{segment, stored_record};
pub use symbols::{gopclntab, symbols_compile, symbols_file};
pub use telemetry::{edit, json, split, stamp, transcode, validate, view};
