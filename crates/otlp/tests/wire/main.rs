//! The wire path against prost, on random requests in every legal encoding.

// A test crate: a panic is a finding.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attributes;
mod generator;
mod oracle;
mod partition;
mod rebuild;
mod split;
mod stamp;
mod strategy;
mod strings;
mod validate;
mod view;

use strategy::request;
