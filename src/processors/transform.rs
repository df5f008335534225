//! `transform`: changes telemetry by statements of the OpenTelemetry Transformation Language.
//!
//! Key names and meanings are those of the Collector's transform processor. The crate `ottl` implements the language.
//! An item that no statement changes is neither decoded nor copied.

mod config;
mod execution;
mod groups;
mod parts;
mod profiles;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use bytes::Bytes;

pub use self::config::{StatementEntry, StatementGroup, TransformConfig};
use self::groups::{Pass, lists, passes};
use super::decoding;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::metric::shared;
use crate::pipeline::Processor;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::{OutputMemory, refusal};
use tributary_config::{Problems, Validate};
use tributary_memory::{Budget, Permit};
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::{Requests, Signal};
use tributary_ottl::path::Context;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    TransformConfig,
    "transform",
    aliases: &[],
    "Changes telemetry by statements of the OpenTelemetry Transformation Language.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR]
);

impl Validate for TransformConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.flatten_data {
            problems.error(
                &["flatten_data"],
                "is not supported: remove the key, and write to the paths of resources and scopes directly",
            );
        }
        for (key, signal, entries) in lists(self) {
            let mut has_text = false;
            for (at, entry) in entries.iter().enumerate() {
                let at = at.to_string();
                match entry {
                    StatementEntry::Text(_) => has_text = true,
                    StatementEntry::Group(_) if has_text => problems.error(
                        &[key, &at],
                        "a group cannot follow a statement: write all statements in groups, or none",
                    ),
                    StatementEntry::Group(group) => check_context(group, &[key, &at], signal, problems),
                }
            }
            for mistake in passes(self, signal).err().into_iter().flatten() {
                let path: Vec<&str> = mistake.path.iter().map(String::as_str).collect();
                problems.error_within(&path, mistake.character, mistake.message);
            }
        }
    }
}

fn check_context(group: &StatementGroup, path: &[&str], signal: Signal, problems: &mut Problems) {
    let Some(name) = group.context.as_deref().map(str::to_ascii_lowercase) else {
        return;
    };
    if !Context::of_name(&name).is_some_and(|context| context.is_of(signal)) {
        let names = Context::NAMES
            .iter()
            .filter(|(_, context)| context.is_of(signal));
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        let message = match name.as_str() {
            "exemplar" | "profilesample" => format!("the context {name} is not built in"),
            _ => format!(
                "is not a context of {signal}; use one of: {}",
                names.join(", ")
            ),
        };
        problems.error(&[path, &["context"]].concat(), message);
    }
}

impl ProcessorConfig for TransformConfig {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        let passes = passes(self, signal).map_err(|mistakes| {
            let messages: Vec<String> = mistakes
                .into_iter()
                .map(|mistake| mistake.message)
                .collect();
            BuildError(messages.join("; "))
        })?;
        Ok(Stage::Pure(Box::new(Transform {
            passes,
            budget: cx.budget.clone(),
            log: SampledLog::default(),
        })))
    }
}

/// The processor.
struct Transform {
    passes: Vec<Pass>,
    budget: Arc<Budget>,
    log: SampledLog,
}

impl Processor for Transform {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        if self.passes.is_empty() {
            return Ok(Some(batch));
        }
        let signal = batch.signal();
        let mut items = batch.items();
        let mut permits = Vec::new();
        let mut transformed = Requests::default();
        for part in batch.wire().parts() {
            match self.request(signal, part)? {
                None => transformed.push(part.clone()),
                Some((after, permit)) => {
                    let count = |part: &[u8]| tributary_otlp::count(signal, part);
                    items = (items + count(&after)).saturating_sub(count(part));
                    permits.push(permit);
                    transformed.push(after);
                }
            }
        }
        let Some(permit) = permits.pop() else {
            return Ok(Some(batch));
        };
        let mut batch = batch.with_output(items, transformed, permit);
        permits.into_iter().for_each(|permit| batch.hold(permit));
        Ok(Some(batch))
    }
}

impl Transform {
    /// Executes all passes on a request; returns `None` if nothing changes.
    fn request(&self, signal: Signal, request: &Bytes) -> Result<Option<(Bytes, Permit)>, Nack> {
        let mut current: Option<(Bytes, Permit)> = None;
        for pass in &self.passes {
            let request = current.as_ref().map_or(request, |(bytes, _)| bytes);
            // Of a pass, only the output stays: what the pass used besides is free again for the next one.
            let memory = OutputMemory::new(&self.budget);
            let output = &memory;
            let changed = match signal {
                Signal::Profiles => {
                    let room = decoding::room(std::slice::from_ref(request), &self.budget);
                    let _room = room.map_err(refusal)?;
                    profiles::transform(pass, request, output, &self.log)
                }
                _ => walk::transform(pass, request, output, &self.log),
            };
            let changed = changed.map_err(|reason| reason.refusal(signal, output))?;
            if let Some(changed) = changed {
                let permit = memory.keep(changed.len());
                current = Some((changed.into(), permit));
            }
        }
        Ok(current)
    }
}
