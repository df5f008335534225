//! `redaction`: removes private data from all parts of a request.
//!
//! Requests are scanned on the wire. A request without hits is forwarded with the same bytes. In a request with hits,
//! only the strings with hits and the enclosing lengths change. Profiles share strings, so each string is scanned
//! once. The references decide whether a string is redacted, and strings without references are removed.
//!
//! The keys of the Collector's processor have the same meaning here, in addition to built-in detectors. Requests that
//! cannot be scanned are refused, unless `mode` is `report`. No error, log line or metric contains text of a request.

mod body;
mod config;
mod embedded;
mod hits;
mod policy;
mod probe;
mod profile_attributes;
mod profile_request;
mod profiles;
mod redactor;
mod refusal;
mod rewriting;
mod rules;
mod sanitize;
mod sanitizer_config;
mod summary;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use bytes::Bytes;

pub use self::config::{
    Chosen, Config, EmbeddedOtlp, EmbeddedSignal, OriginalPayload, RedactionMode, SummaryDetail,
    UnknownFields,
};
use self::hits::Counters;
use self::policy::Policy;
use self::redactor::Redactor;
use self::refusal::{Reason, Refusal, with_reason};
pub use self::sanitizer_config::{DbSanitizerConfig, SystemConfig, UrlSanitizerConfig};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::{Processor, output_memory};
use tributary_memory::Budget;
use tributary_otlp::room::RoomExhausted;
use tributary_otlp::strings::{RewriteError, rewrite};
use tributary_otlp::{Requests, Signal};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    Config,
    "redaction",
    aliases: &[],
    "Removes private data: attributes by key, values by pattern and detector.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_processor_redaction_hits",
        "Number of hits, by detector or rule, signal and place in the item",
    ),
    metric::counter(
        "tributary_processor_redaction_refused_requests",
        "Number of requests that could not be examined and were refused, by signal and reason; with `mode: \
         report` they pass unchanged",
    ),
];

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        Ok(Stage::Pure(Box::new(Redaction::new(self, cx, signal)?)))
    }
}

/// The processor.
struct Redaction {
    policy: Policy,
    counters: Counters,
    budget: Arc<Budget>,
}

impl Redaction {
    fn new(config: &Config, cx: &BuildContext, signal: Signal) -> Result<Self, BuildError> {
        let policy = Policy::new(config)?;
        Ok(Redaction {
            counters: Counters::new(cx, signal, &policy),
            policy,
            budget: cx.budget.clone(),
        })
    }

    /// Returns a request without private data; `None` if it stays unchanged.
    fn redact(&self, signal: Signal, request: &Bytes) -> Result<Option<Redacted>, Nack> {
        let (policy, counters, budget) = (&self.policy, &self.counters, &self.budget);
        let output = OutputMemory::new(budget);
        let redacted = match signal {
            Signal::Profiles => profiles::redact(policy, counters, budget, request, 0),
            _ => {
                let mut redactor = Redactor::new(policy, counters, budget, 0);
                let redacted = rewrite(&policy.tables, signal, request, &output, &mut redactor);
                let redacted = redacted.map_err(|refused| with_reason(refused, &output));
                redacted.map(|redacted| redacted.map(Redacted::same_items))
            }
        };
        redacted.or_else(|refused| self.refuse(signal, &refused))
    }

    /// Refuses a request that cannot be scanned. In mode `report`, the request passes unchanged.
    #[cold]
    fn refuse(
        &self,
        signal: Signal,
        refused: &RewriteError<Refusal>,
    ) -> Result<Option<Redacted>, Nack> {
        self.counters.refused(Reason::of(refused));
        if self.policy.report {
            return Ok(None);
        }
        if let RewriteError::Rewriter(Refusal::NoRoom(no_room)) = refused {
            return Err(output_memory::refusal(*no_room));
        }
        let why = match refused {
            RewriteError::Malformed(reason) => (*reason).to_owned(),
            RewriteError::RoomExhausted => RoomExhausted.to_string(),
            RewriteError::Rewriter(refusal) => refusal.to_string(),
        };
        Err(Nack::invalid(format!(
            "cannot redact the {signal} request, and therefore refusing it: {why}"
        )))
    }
}

struct Redacted {
    request: Bytes,
    /// Number of items in the request, if redaction may have changed the number.
    items: Option<usize>,
}

impl Redacted {
    fn same_items(request: Bytes) -> Self {
        Redacted {
            request,
            items: None,
        }
    }
}

impl Processor for Redaction {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        let signal = batch.signal();
        let mut items = batch.items();
        let mut changed: Vec<(usize, Bytes)> = Vec::new();
        for (at, part) in batch.wire().parts().iter().enumerate() {
            let Some(redacted) = self.redact(signal, part)? else {
                continue;
            };
            if let Some(after) = redacted.items {
                let before = tributary_otlp::count(signal, part);
                items = items.saturating_sub(before).saturating_add(after);
            }
            changed.push((at, redacted.request));
        }
        if changed.is_empty() {
            return Ok(Some(batch));
        }
        // The old and the new request are in memory at the same time.
        let made: usize = changed.iter().map(|(_, request)| request.len()).sum();
        let output = OutputMemory::new(&self.budget);
        output.take(made).map_err(output_memory::refusal)?;
        let mut changed = changed.into_iter().peekable();
        let parts = batch.wire().parts().iter().enumerate();
        let parts: Requests = parts
            .map(
                |(at, part)| match changed.next_if(|(place, _)| *place == at) {
                    Some((_, redacted)) => redacted,
                    None => part.clone(),
                },
            )
            .collect();
        Ok(Some(batch.with_output(items, parts, output.keep(made))))
    }
}
