//! `filter`: drops telemetry by conditions or by properties.
//!
//! Key names and meanings are those of the Collector's filter processor. The crate `ottl` implements the language of
//! conditions. Scopes, resources and metrics that become empty are dropped, too.

mod config;
mod metrics;
mod profiles;
mod rules;
#[cfg(test)]
mod tests;
mod validation;

use std::sync::Arc;

pub use self::config::{
    ConditionEntry, ConditionGroup, Config, ErrorMode, LogFilters, LogProperties, MetricFilters,
    MetricMatchType, MetricProperties, ProfileFilters, SeverityName, SpanFilters, TraceFilters,
};
use self::rules::{Conditions, Rules};
use super::decoding;
use super::matching::Selecting;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::Processor;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::{OutputMemory, refusal};
use crate::processors::filter::metrics::FilterMetrics;
use tributary_config::{Problems, Validate};
use tributary_memory::Budget;
use tributary_otlp::edit::Editor;
use tributary_otlp::reader::{Field, WireFault};
use tributary_otlp::sieve::{Sieve, Sieved, each, sieve};
use tributary_otlp::view::{Message, ResourceEntry, ScopeEntry};
use tributary_otlp::{Requests, Signal};
use tributary_ottl::EvaluationTarget;
use tributary_ottl::path::Depth;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    Config,
    "filter",
    aliases: &[],
    "Drops items that match conditions or properties.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR, METRICS]
);

/// Metrics of this component.
const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_processor_filter_spans_filtered",
        "Number of spans dropped by the filter",
    ),
    metric::counter(
        "otelcol_processor_filter_datapoints_filtered",
        "Number of metric data points dropped by the filter",
    ),
    metric::counter(
        "otelcol_processor_filter_logs_filtered",
        "Number of log records dropped by the filter",
    ),
    metric::counter(
        "otelcol_processor_filter_profiles_filtered",
        "Number of profile samples dropped by the filter",
    ),
];

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        validation::validate(self, problems);
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        Ok(Stage::Pure(Box::new(Filter {
            rules: Rules::new(self, signal)?,
            budget: cx.budget.clone(),
            metrics: FilterMetrics::new(&cx.id, signal),
        })))
    }
}

/// The processor.
struct Filter {
    rules: Rules,
    budget: Arc<Budget>,
    metrics: FilterMetrics,
}

impl Processor for Filter {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        if self.rules.is_empty() {
            return Ok(Some(batch));
        }
        let signal = batch.signal();
        let mut left = Requests::default();
        let mut changed = false;
        let mut items = batch.items();
        let output = OutputMemory::new(&self.budget);
        let mut made = 0;
        for part in batch.wire().parts() {
            let sieved = match signal {
                Signal::Profiles => {
                    let room = decoding::room(std::slice::from_ref(part), &self.budget);
                    let _room = room.map_err(refusal)?;
                    profiles::filter(&self.rules, part, &output)?
                }
                _ => Filtering::filter(&self.rules, signal, part, &output)?,
            };
            changed |= sieved != Sieved::Same;
            let count = |part: &[u8]| tributary_otlp::count(signal, part);
            match sieved {
                Sieved::Same => left.push(part.clone()),
                Sieved::Changed(after) => {
                    made += after.len();
                    items = (items + count(&after)).saturating_sub(count(part));
                    left.push(after.into());
                }
                Sieved::Nothing => items = items.saturating_sub(count(part)),
            }
        }
        if !changed {
            return Ok(Some(batch));
        }
        self.metrics.filtered(batch.items().saturating_sub(items));
        Ok((!left.parts().is_empty()).then(|| batch.with_output(items, left, output.keep(made))))
    }
}

/// A walk through a request.
struct Filtering<'f, 'a> {
    rules: &'f Rules,
    signal: Signal,
    selecting: Selecting<'f>,
    here: EvaluationTarget<'a>,
    /// Conditions partially evaluated for the current resource, scope and item, where they use them.
    within: [Option<Conditions>; 3],
    /// The first error that is to be propagated.
    error: Option<String>,
}

impl<'f, 'a> Filtering<'f, 'a> {
    fn filter(
        rules: &'f Rules,
        signal: Signal,
        request: &'a [u8],
        output: &'a OutputMemory,
    ) -> Result<Sieved, Nack> {
        let mut filtering = Filtering {
            rules,
            signal,
            selecting: rules.choice.selecting(signal),
            here: EvaluationTarget::default(),
            within: Default::default(),
            error: None,
        };
        let sieved = sieve(request, output, &mut filtering)
            .map_err(|error| decoding::unedited(signal, error, output))?;
        match filtering.error {
            Some(error) => Err(Nack::invalid(error)),
            None => Ok(sieved),
        }
    }

    /// Returns the conditions, evaluated as far as possible.
    fn conditions(&self) -> &Conditions {
        let deepest = self.within.iter().rev().flatten().next();
        deepest.unwrap_or(&self.rules.conditions)
    }

    /// Begins another resource, scope or item at `depth`.
    fn leave(&mut self, depth: Depth) {
        for known in self.within.iter_mut().skip(depth as usize) {
            *known = None;
        }
    }

    /// Evaluates which conditions can match within the current item at `depth`, before its children are visited.
    fn enter(&mut self, depth: Depth) {
        let within = self.conditions().within(depth, &self.here);
        if let Some(known) = self.within.get_mut(depth as usize) {
            *known = within;
        }
    }

    fn passes(&mut self, depth: Depth) -> bool {
        match self.rules.any_is_true(self.conditions(), depth, &self.here) {
            Ok(dropped) => !dropped,
            Err(error) => {
                self.error.get_or_insert(error);
                true
            }
        }
    }

    fn events(&mut self, span: &Field<'a>, editor: &mut Editor<'a>) -> Result<bool, WireFault> {
        each(span.fields(), 11, editor, |event, _| {
            self.here.inner = message(event);
            Ok(self.passes(Depth::Inner))
        })?;
        // A span without events is still a span.
        Ok(true)
    }

    fn points(&mut self, metric: &Field<'a>, editor: &mut Editor<'a>) -> Result<bool, WireFault> {
        // Protobuf allows the points of a metric in several fields, so all fields count.
        let (mut any_stays, mut any_goes) = (false, false);
        for field in metric.fields() {
            let field = field?;
            if !matches!(field.number, 5 | 7 | 9 | 10 | 11) || field.value.bytes().is_none() {
                continue;
            }
            self.here.form = field.number;
            editor.message(&field, |editor| {
                each(field.fields(), 1, editor, |point, _| {
                    self.here.inner = message(point);
                    let stays = self.passes(Depth::Inner);
                    any_stays |= stays;
                    any_goes |= !stays;
                    Ok(stays)
                })
            })?;
        }
        Ok(any_stays || !any_goes)
    }
}

fn message<'a>(field: &Field<'a>) -> Message<'a> {
    Message::new(field.value.bytes().unwrap_or_default())
}

impl<'a> Sieve<'a> for Filtering<'_, 'a> {
    fn resource(&mut self, entry: ResourceEntry<'a>) -> bool {
        self.here.resource = entry.message();
        self.leave(Depth::Resource);
        let passes = self.selecting.of_resource(entry) && self.passes(Depth::Resource);
        if passes {
            self.enter(Depth::Resource);
        }
        passes
    }

    fn scope(&mut self, entry: ScopeEntry<'a>) -> bool {
        self.here.scope = entry.message();
        self.leave(Depth::Scope);
        let passes = self.selecting.of_scope(entry) && self.passes(Depth::Scope);
        if passes {
            self.enter(Depth::Scope);
        }
        passes
    }

    fn item(&mut self, item: &Field<'a>, editor: &mut Editor<'a>) -> bool {
        self.here.item = message(item);
        self.leave(Depth::Item);
        if !(self.selecting.of_item(self.here.item) && self.passes(Depth::Item)) {
            return false;
        }
        if !self.rules.conditions.asks(Depth::Inner) {
            return true;
        }
        self.enter(Depth::Item);
        let left = match self.signal {
            Signal::Traces => self.events(item, editor),
            _ => self.points(item, editor),
        };
        left.unwrap_or_else(|fault| {
            self.error.get_or_insert(fault.text().to_owned());
            true
        })
    }
}
