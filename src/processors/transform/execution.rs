//! Executes the statements of a pass on the current item.

use super::groups::Group;
use super::parts::Parts;
use crate::pipeline::batch::Nack;
use crate::pipeline::output_memory::{OutputMemory, refusal};
use crate::processors::filter::ErrorMode;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;
use tributary_otlp::reader::WireFault;
use tributary_otlp::room::RoomExhausted;
use tributary_ottl::Undecided;

/// Reason why a request cannot be transformed.
#[derive(Debug)]
pub(super) enum Untransformed {
    /// A statement failed whose error mode is `propagate`.
    Failed(String),
    /// The memory budget has no room.
    Full,
    /// The request is malformed.
    Malformed(WireFault),
}

impl From<RoomExhausted> for Untransformed {
    fn from(_: RoomExhausted) -> Self {
        Untransformed::Full
    }
}

impl From<WireFault> for Untransformed {
    fn from(fault: WireFault) -> Self {
        Untransformed::Malformed(fault)
    }
}

impl Untransformed {
    pub(super) fn refusal(self, signal: Signal, output: &OutputMemory) -> Nack {
        match self {
            Untransformed::Failed(reason) => Nack::invalid(reason),
            Untransformed::Full => refusal(output.no_room()),
            Untransformed::Malformed(fault) => {
                Nack::invalid(format!("malformed {signal} request: {}", fault.text()))
            }
        }
    }
}

/// Executes groups of statements on the current item.
pub(super) fn execute(
    groups: &[Group],
    parts: &mut Parts<'_>,
    room: &OutputMemory,
    log: &SampledLog,
) -> Result<(), Untransformed> {
    for group in groups {
        parts.clear_cache(room);
        if !is_selected(group, parts, log)? {
            continue;
        }
        for statement in &group.statements {
            let effect = match statement.execute_within(&parts.target(), room) {
                Ok(effect) => effect,
                Err(Undecided::NoMemory) => return Err(Untransformed::Full),
                Err(why) => {
                    fail(group.error_mode, "statement", &statement.text, why, log)?;
                    continue;
                }
            };
            if let Some(change) = effect.change {
                parts.apply(change, room)?;
            }
            for metric in effect.added {
                room.take(metric.len()).map_err(|_| RoomExhausted)?;
                parts.added.push(metric);
            }
        }
    }
    Ok(())
}

/// Whether one of the group's conditions is true.
fn is_selected(group: &Group, parts: &Parts<'_>, log: &SampledLog) -> Result<bool, Untransformed> {
    for condition in &group.conditions {
        match condition.is_true(&parts.target()) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(why) => fail(group.error_mode, "condition", &condition.text, why, log)?,
        }
    }
    Ok(group.conditions.is_empty())
}

fn fail(
    error_mode: ErrorMode,
    kind: &str,
    text: &str,
    why: Undecided,
    log: &SampledLog,
) -> Result<(), Untransformed> {
    match error_mode {
        ErrorMode::Silent => {}
        ErrorMode::Ignore => {
            if let Some(suppressed) = log.admit() {
                tracing::warn!(text, suppressed, "a {kind} {why}");
            }
        }
        ErrorMode::Propagate => {
            return Err(Untransformed::Failed(format!("the {kind} `{text}` {why}")));
        }
    }
    Ok(())
}
