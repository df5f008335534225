//! The processors. A new component is one file and one line in [`REGISTRY`].

pub mod attributes;
pub mod batch;
pub mod compression;
pub mod cumulative_to_delta;
mod decoding;
pub mod dedup;
pub mod filter;
pub mod groupbyattrs;
pub mod log_dedup;
pub mod matching;
pub mod memory_limiter;
pub mod probabilistic_sampler;
pub mod redaction;
pub mod resource;
pub mod resource_detection;
pub mod symbolication;
pub mod transform;

use crate::component::{Entry, ProcessorConfig};

/// All built-in processors.
pub static REGISTRY: &[Entry<dyn ProcessorConfig>] = &[
    attributes::ENTRY,
    batch::ENTRY,
    compression::ENTRY,
    cumulative_to_delta::ENTRY,
    dedup::ENTRY,
    filter::ENTRY,
    groupbyattrs::ENTRY,
    log_dedup::ENTRY,
    memory_limiter::ENTRY,
    probabilistic_sampler::ENTRY,
    redaction::ENTRY,
    resource::ENTRY,
    resource_detection::ENTRY,
    symbolication::ENTRY,
    transform::ENTRY,
];
