//! Conditions that select the records to count. Records for which no condition is true pass.

use tracing::warn;

use crate::pipeline::batch::Nack;
use crate::pipeline::output_memory::OutputMemory;
use crate::processors::decoding;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::edit::Editor;
use tributary_otlp::reader::Field;
use tributary_otlp::sieve::{Sieve, Sieved, sieve};
use tributary_otlp::view::{Message, ResourceEntry, ScopeEntry};
use tributary_otlp::{Requests, Signal};
use tributary_ottl::path::{Context, Depth};
use tributary_ottl::{Condition, EvaluationTarget, ParseError, parse, within};

/// Conditions, of which at least one must be true. Without conditions, all records are counted.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    conditions: Vec<Condition>,
    log: SampledLog,
}

/// The records of a batch.
#[derive(Debug)]
pub(super) struct Divided {
    /// Records to count, and their number.
    pub(super) counted: (Requests, usize),
    /// Records to forward unchanged.
    pub(super) passing: (Requests, usize),
}

impl Conditions {
    /// Parses the conditions. Validation has already reported invalid conditions.
    pub(super) fn new(texts: &[String]) -> Self {
        let conditions = texts.iter().filter_map(|text| condition(text).ok());
        Conditions {
            conditions: conditions.collect(),
            log: SampledLog::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Divides the records of some requests.
    ///
    /// # Errors
    /// A request is not valid.
    pub(super) fn divide(
        &self,
        requests: &Requests,
        output: &OutputMemory,
    ) -> Result<Divided, Nack> {
        let part = |counted: bool| -> Result<(Requests, usize), Nack> {
            let mut left = Requests::default();
            let mut records = 0;
            for request in requests.parts() {
                let mut choice = Choice {
                    all: self,
                    of_resource: None,
                    of_scope: None,
                    counted,
                    here: EvaluationTarget::default(),
                };
                let sieved = sieve(request, output, &mut choice);
                let sieved =
                    sieved.map_err(|error| decoding::unedited(Signal::Logs, error, output))?;
                let stays = match sieved {
                    Sieved::Same => request.clone(),
                    Sieved::Changed(stays) => stays.into(),
                    Sieved::Nothing => continue,
                };
                match tributary_otlp::count(Signal::Logs, &stays) {
                    0 => {}
                    count => {
                        records += count;
                        left.push(stays);
                    }
                }
            }
            Ok((left, records))
        };
        Ok(Divided {
            counted: part(true)?,
            passing: part(false)?,
        })
    }

    /// Whether a condition is true. `conditions` are partially evaluated. As in the Collector, a condition that
    /// cannot be evaluated is false, and the record passes.
    fn any_is_true(&self, conditions: &[Condition], here: &EvaluationTarget<'_>) -> bool {
        conditions
            .iter()
            .any(|condition| match condition.is_true(here) {
                Ok(is_true) => is_true,
                Err(undecided) => {
                    if let Some(suppressed) = self.log.admit() {
                        warn!(
                            condition = &*condition.text,
                            suppressed, "a condition of log_dedup {undecided}; the record passes"
                        );
                    }
                    false
                }
            })
    }
}

/// Parses a condition.
///
/// # Errors
///
/// The syntax error and its position, if the text is not a valid condition.
pub(super) fn condition(text: &str) -> Result<Condition, ParseError> {
    parse(text, Signal::Logs, Some(Context::Log))
}

/// A walk through a request that keeps either the counted records or the passing ones.
struct Choice<'c, 'a> {
    all: &'c Conditions,
    /// Conditions partially evaluated for the current resource and scope, where they use them.
    of_resource: Option<Vec<Condition>>,
    of_scope: Option<Vec<Condition>>,
    counted: bool,
    here: EvaluationTarget<'a>,
}

impl Choice<'_, '_> {
    fn of_resource(&self) -> &[Condition] {
        self.of_resource.as_deref().unwrap_or(&self.all.conditions)
    }

    fn of_scope(&self) -> &[Condition] {
        self.of_scope
            .as_deref()
            .unwrap_or_else(|| self.of_resource())
    }
}

impl<'a> Sieve<'a> for Choice<'_, 'a> {
    fn resource(&mut self, entry: ResourceEntry<'a>) -> bool {
        self.here.resource = entry.message();
        self.of_resource = within(&self.all.conditions, Depth::Resource, &self.here);
        true
    }

    fn scope(&mut self, entry: ScopeEntry<'a>) -> bool {
        self.here.scope = entry.message();
        self.of_scope = within(self.of_resource(), Depth::Scope, &self.here);
        true
    }

    fn item(&mut self, item: &Field<'a>, _: &mut Editor<'a>) -> bool {
        self.here.item = Message::new(item.value.bytes().unwrap_or_default());
        self.all.any_is_true(self.of_scope(), &self.here) == self.counted
    }
}
