//! Tributary: an OpenTelemetry Collector-style pipeline processor with profiles as a first-class signal.
//!
//! Read the modules in this order:
//!
//! 1. [`batch`]: what flows. A [`batch::Batch`] is some telemetry of one signal, kept as the bytes it arrived in.
//! 2. [`wire`]: everything that is done to those bytes: validate, count, edit, concatenate, split, transcode.
//! 3. [`pipeline`]: where batches go. A consumer's return value is the acknowledgement.
//! 4. [`component`]: what a receiver, processor, exporter, connector or extension is to the rest of the program.
//! 5. [`receivers`], [`processors`], [`exporters`], [`connectors`], [`extensions`]: one component, one file;
//!    one registry line each.
//! 6. [`profiles`]: the domain of profiles: the dictionary, merging, canonical identities, the checker.
//!    [`redaction`]: what is private in a text, found and taken out. [`symbols`]: names for the addresses in binaries.
//! 7. [`queue`]: the sending queue in front of every network exporter. [`storage`]: the log on disk that it may be kept in.
//! 8. [`config`]: from YAML text to typed configuration, with every error at its place.
//!    `ottl`: conditions, in a part of the Collector's language. `re2`: regular expressions, in Go's.
//! 9. [`service`] and [`cli`]: the life of the process, and its command line.
//! 10. [`memory`], [`health`], [`net`], [`auth`], [`files`], [`compression`], [`telemetry`]: what the components share.
//!     `turns`: heavy work off the threads that serve sockets. `discovery`: which servers there are.
//!     [`allocator`], [`code_pages`] and [`open_files`]: what the process asks of the system.

pub mod allocator;
pub mod auth;
pub mod batch;
pub mod cli;
pub mod code_pages;

pub mod component;
pub mod compression;
pub mod config;
pub mod connectors;
pub mod cpu_profile;
mod discovery;
pub mod exporters;
pub mod extensions;
pub mod files;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod health;
pub mod memory;
pub mod net;
pub mod open_files;
mod ottl;
pub mod pipeline;
pub mod processors;
pub mod profiles;
pub mod queue;
mod re2;
pub mod receivers;
pub mod redaction;
pub mod service;
pub mod storage;
pub mod symbols;
pub mod telemetry;
mod turns;
pub mod wire;
