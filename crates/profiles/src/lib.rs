//! Profiles of the OpenTelemetry profiles signal: reading, writing, merging, splitting and converting.
//!
//! An OTLP request has one dictionary for all its profiles: tables of strings, functions, locations, stacks, attributes
//! and more, which refer to each other by index. Therefore requests cannot be merged by concatenating bytes. This crate
//! reads requests into one [`Dictionary`] with unique entries, and into flat columns of samples ([`Profiles`]). Written
//! requests contain only referenced entries.
//!
//! # Invariants
//!
//! - Input is untrusted: every index and length is checked, and memory is bounded by the size of the input.
//! - A [`Dictionary`] interns: equal entries have equal indices. It only grows.
//! - Index 0 of every table is the zero value, as the protocol demands.
//! - Adding a request to a [`Merger`], [`Compactor`] or [`Aggregator`] adds all its profiles, or none on an error.
//! - [`Compactor`], [`split`] and [`join`](mod@join) lose no data. [`Merger`] and [`Aggregator`] summarize.
//!
//! # Example
//!
//! ```
//! use tributary_profiles::merge::{MergeOptions, Merger};
//! use tributary_profiles::{folded, top};
//!
//! let monday = folded::read("main;parse 30\nmain;write 10\n")?;
//! let tuesday = folded::read("main;parse 50\n")?;
//! let mut merger = Merger::new(MergeOptions::default());
//! for profiles in [monday, tuesday] {
//!     merger.add_encoded(&profiles.encode())?;
//! }
//! let merged = merger.finish();
//! let samples = top::sample_type(&merged, None).expect("a profile has a sample type");
//! assert_eq!(folded::write(&merged, samples), "main;parse 80\nmain;write 10\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! - [`id`], [`table`], [`dictionary`]: tables and their typed indices. `location_hints` finds locations by address.
//! - [`model`]: profiles over a dictionary.
//! - [`reindex`], [`references`], [`ingest`](mod@ingest): read encoded requests, copying dictionary entries lazily.
//!   [`relocations`] aligns processes that map a binary at different addresses.
//! - [`write`](mod@write): encodes requests.
//! - [`merge`], [`compact`]: combine profiles by adding values, or without loss; [`aggregate`]: summarizes over
//!   time and instances.
//! - [`join`](mod@join), [`cut`]: merge and split encoded requests for batching; [`partition`]: splits by
//!   destination. [`decoded`]: estimates the memory of a decoded request.
//! - [`identity`]: content hashes that are equal on every hop.
//! - [`pprof`]: converts pprof files in both directions.
//! - [`folded`], [`top`], [`diff`], [`frames`]: output for people: folded stacks, top functions, differences, and
//!   the choice of visible frames.
//! - [`resolve`]: requests without indices, for tests and display.
//! - [`naming`]: adds names to locations of encoded requests.
//! - [`layout`], [`check`]: detect incompatible protocol versions and broken rules.
//!
//! The rules are those of `opentelemetry/proto/profiles/v1development/profiles.proto` of OTLP 1.10.

pub mod aggregate;
mod carried;
pub mod check;
pub mod compact;
pub mod cut;
pub mod decoded;
pub mod dictionary;
pub mod diff;
mod encoding;
pub mod entries;
mod entry;
mod fault;
pub mod folded;
pub mod frames;
mod group;
pub mod id;
pub mod identity;
pub mod ingest;
pub mod join;
pub mod layout;
mod location_hints;
pub mod merge;
pub mod model;
pub mod names;
pub mod naming;
pub mod partition;
pub mod pprof;
pub mod references;
pub mod reindex;
pub mod relocations;
pub mod resolve;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
pub mod testing_requests;
#[cfg(test)]
mod testing_subjects;
#[cfg(test)]
mod tests;
pub mod top;
pub mod write;

pub use self::aggregate::Aggregator;
pub use self::compact::Compactor;
pub use self::cut::{halve, split};
pub use self::decoded::{Shape, decoded_bytes};
pub use self::dictionary::Dictionary;
pub use self::join::{Joined, compacted, drop_unreferenced, is_readable, join};
pub use self::merge::Merger;
pub use self::model::Profiles;
