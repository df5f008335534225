//! The processors. A new one is one file and one line in [`REGISTRY`].

pub mod attributes;
pub mod batch;
pub mod compression;
pub mod dedup;
pub mod memory_limiter;
mod offer;
pub mod redaction;

use crate::component::{Entry, ProcessorConfig};

/// Every processor that is built in.
pub static REGISTRY: &[Entry<dyn ProcessorConfig>] = &[
    attributes::ENTRY,
    batch::ENTRY,
    compression::ENTRY,
    dedup::ENTRY,
    memory_limiter::ENTRY,
    redaction::ENTRY,
];
