//! The processors. A new component is one file and one line in [`REGISTRY`].

pub mod attributes;
pub mod batch;
pub mod compression;
mod decoding;
pub mod dedup;
pub mod filter;
pub mod log_dedup;
pub mod matching;
pub mod memory_limiter;
pub mod probabilistic_sampler;
pub mod redaction;
pub mod resource;
pub mod symbolication;
pub mod transform;

use crate::component::{Entry, ProcessorConfig};

/// All built-in processors.
pub static REGISTRY: &[Entry<dyn ProcessorConfig>] = &[
    attributes::ENTRY,
    batch::ENTRY,
    compression::ENTRY,
    dedup::ENTRY,
    filter::ENTRY,
    log_dedup::ENTRY,
    memory_limiter::ENTRY,
    probabilistic_sampler::ENTRY,
    redaction::ENTRY,
    resource::ENTRY,
    symbolication::ENTRY,
    transform::ENTRY,
];
