//! Tributary: an OpenTelemetry Collector-style pipeline processor with profiles as a first-class signal.
//!
//! The crates below this one, from the bottom up: [`tributary_memory`] (the budget in bytes), [`tributary_config`] (YAML
//! text to typed values), [`tributary_otlp`] (requests as bytes), [`tributary_compression`], [`tributary_storage`] (the
//! durable log), [`tributary_net`] (servers, clients, TLS), [`tributary_profiles`], [`tributary_redaction`],
//! [`tributary_ottl`], [`tributary_symbols`], [`tributary_detectors`] (attributes of host, cluster and cloud) and
//! [`tributary_temporality`] (deltas of metrics). None of them knows a component.
//!
//! This crate is the collector. Read its modules in this order:
//!
//! 1. [`pipeline`]: what flows and where it goes. A consumer's return value is the acknowledgement.
//! 2. [`component`]: what a receiver, processor, exporter, connector or extension is to the rest of the program.
//!    [`profile_stores`]: the open stores that exporters fill and servers query.
//!    [`profile_api`] answers queries over HTTP.
//! 3. [`queue`]: the sending queue in front of every network exporter.
//! 4. [`receivers`], [`processors`], [`exporters`], [`connectors`], [`extensions`]: one component, one folder; one
//!    registry line each.
//! 5. [`telemetry`]: the collector's own logs and metrics; [`metric`] has the declarations.
//! 6. [`app`]: the command line, the service, and how a configuration becomes a graph of components.

pub mod app;
pub mod component;
pub mod connectors;
pub mod exporters;
pub mod extensions;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod introspection;
pub mod metric;
pub mod pipeline;
pub mod processors;
pub mod profile_api;
mod profile_files;
pub mod profile_stores;
pub mod queue;
pub mod receivers;
pub mod serving;
pub mod telemetry;
#[cfg(test)]
mod testing;
