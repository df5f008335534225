//! Compares operations on encoded requests with prost, on random requests in all legal encodings.

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
