//! Profiles: what is in them, when two are the same, and how many become one.
//!
//! An OTLP message has one dictionary for all its profiles: tables of strings, functions, locations, stacks, attributes
//! and more, which refer to each other by index. So two messages cannot be put together as bytes. Here they are read into
//! one [`Dictionary`], in which every entry is once, and into flat columns of samples ([`Profiles`]); what is written
//! from there has the entries that are referred to and no others.
//!
//! - [`id`], [`table`], [`dictionary`]: the tables and their typed indices.
//!   `places` finds locations again by their addresses.
//! - [`model`]: profiles over a dictionary.
//! - [`reindex`], [`references`], [`ingest`](mod@ingest): from an encoded request into them, lazily.
//!   [`relocations`] brings processes that run a binary at different addresses together.
//! - [`write`](mod@write): from them to a request's bytes.
//! - [`merge`], [`compact`]: one from many, by adding up or without a loss; [`aggregate`]: over time and instances.
//! - [`join`](mod@join), [`cut`]: encoded requests into larger and smaller ones, for batching. [`partition`]: by destination.
//!   [`decoded`]: how much memory a request takes once it is read.
//! - [`identity`]: hashes of content that every hop computes alike.
//! - [`pprof`]: pprof files, to and from all this.
//! - [`folded`], [`top`], [`diff`], [`frames`]: for people: stacks as text, which functions count most, what grew, and
//!   which frames are shown.
//! - [`resolve`]: everything as strings and addresses, for people and tests.
//! - [`naming`]: names for locations that have none, written on the wire.
//! - [`layout`], [`check`]: which versions of the protocol a message is not of, and which rules it breaks.
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
pub mod entries;
pub mod folded;
pub mod frames;
mod group;
pub mod id;
pub mod identity;
pub mod ingest;
pub mod join;
pub mod layout;
pub mod merge;
pub mod model;
pub mod names;
pub mod naming;
pub mod partition;
mod places;
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
pub use self::join::{collected, compacted, join, understood};
pub use self::merge::Merger;
pub use self::model::Profiles;
