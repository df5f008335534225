//! Processors that work on the wire against prost, on random requests in every legal encoding.

// A panic in this test crate is a finding.
#![allow(clippy::unwrap_used, clippy::panic)]

mod filter;
#[path = "../../crates/otlp/tests/wire/generator.rs"]
mod generator;
#[allow(dead_code, reason = "the crate `otlp` uses the rest of it")]
#[path = "../../crates/otlp/tests/wire/oracle.rs"]
mod oracle;
mod redaction;
mod sieve;
mod split;
#[path = "../../crates/otlp/tests/wire/strategy.rs"]
mod strategy;
mod survival;

use strategy::request;
