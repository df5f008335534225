//! Sampling spans: by trace id, and by the `ot` member of the trace state.

use super::carrier::{Carrier, Decision, Item, Policy, Sampler};
use super::threshold::{Randomness, Threshold};
use super::trace_state::TraceState;
use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::Field;
use tributary_otlp::view::{AnyValue, Attribute, Message, View as _};

/// The attribute that overrides the decision: 0 means never, more means always.
const PRIORITY: &[u8] = b"sampling.priority";

/// Decides about a span, and writes the decision into a sampled span.
pub(super) fn sample<'a>(
    sampler: Sampler,
    fail_closed: bool,
    span: &Field<'a>,
    editor: &mut Editor<'a>,
) -> Decision {
    let mut trace_id: &[u8] = &[];
    let mut trace_state: Option<Field<'a>> = None;
    let mut priority = None;
    for field in span.fields().map_while(Result::ok) {
        let Some(bytes) = field.value.bytes() else {
            continue;
        };
        match field.number {
            1 => trace_id = bytes,
            3 => trace_state = Some(field),
            9 if priority.is_none() => {
                let attribute = Attribute::view(Message::new(bytes));
                if attribute.key_bytes() == PRIORITY {
                    priority = Some(attribute.value().unwrap_or(AnyValue::Empty));
                }
            }
            _ => {}
        }
    }
    let text = trace_state
        .and_then(|field| field.value.bytes())
        .unwrap_or_default();
    let state = std::str::from_utf8(text).ok().and_then(TraceState::parse);
    let item = item(
        sampler,
        trace_id,
        state.as_ref().map(|state| state.sampling),
    );
    let decision = sampler.decide(item, fail_closed, || {
        priority.and_then(|value| prioritized(&value))
    });
    if let (true, Some(carrier), Some(mut state)) = (decision.sampled, decision.carrier, state) {
        state.sampling = carrier;
        let after = state.text();
        match trace_state {
            _ if after.as_bytes() == text => {}
            Some(field) => {
                editor.replace(&field, |output| put_delimited(3, after.as_bytes(), output))
            }
            None => editor.append(span, |output| put_delimited(3, after.as_bytes(), output)),
        }
    }
    decision
}

/// Describes a span by its trace id and trace state; `carrier` is `None` if the trace state cannot be parsed.
pub(super) fn item(sampler: Sampler, trace_id: &[u8], carrier: Option<Carrier>) -> Item {
    let trace_id: Option<&[u8; 16]> = trace_id.try_into().ok();
    let trace_id = trace_id.filter(|id| **id != [0; 16]);
    let (randomness, policy) = match (sampler, carrier.and_then(|carrier| carrier.randomness)) {
        (Sampler::Never, _) => (Some(Randomness::ALL), Policy::SamplingPriority),
        (Sampler::Hash { seed, .. }, _) => (
            trace_id.map(|id| Randomness::of_hash(id, seed)),
            Policy::TraceIdHash,
        ),
        (_, Some(randomness)) => (Some(randomness), Policy::SamplingRandomness),
        // A trace state that cannot be parsed might have a randomness.
        _ if carrier.is_none() => (None, Policy::Missing),
        _ => (trace_id.map(Randomness::of_trace), Policy::TraceIdW3c),
    };
    with_hash(
        sampler,
        Item {
            randomness,
            policy: randomness.map_or(Policy::Missing, |_| policy),
            carrier,
            is_unusable: carrier.is_none(),
            is_independent: false,
        },
    )
}

/// Sets the randomness of an item in hash mode.
///
/// An item without sampling information gets the randomness of its hash. An item from a tier with the same seed
/// already has it. An item from a tier with another seed is sampled independently. An item with other sampling
/// information cannot be sampled by a hash.
///
/// The Collector treats items of both kinds of tiers as errors, and drops them with `fail_closed` (contrib issue
/// 42188), although its documentation suggests such tiers.
pub(super) fn with_hash(sampler: Sampler, mut item: Item) -> Item {
    if !matches!(sampler, Sampler::Hash { .. }) {
        return item;
    }
    match &mut item.carrier {
        Some(Carrier {
            randomness: said @ None,
            threshold: None,
        }) => *said = item.randomness.or(Some(Randomness::ALL)),
        Some(Carrier {
            randomness: Some(said),
            ..
        }) if item.randomness == Some(*said) => {}
        Some(Carrier {
            randomness: Some(said),
            threshold,
        }) if item.randomness.is_some() && said.is_hash() => {
            *threshold = None;
            item.is_independent = true;
        }
        _ => {
            item.is_unusable = true;
            item.carrier = None;
        }
    }
    item
}

/// Returns the threshold that a priority attribute demands; `None` if its value is not a number.
fn prioritized(priority: &AnyValue<'_>) -> Option<Threshold> {
    let number = match priority {
        AnyValue::Int(0) => 0.0,
        AnyValue::Int(number) => {
            if *number > 0 {
                1.0
            } else {
                -1.0
            }
        }
        AnyValue::Double(number) => *number,
        AnyValue::String(text) => text.parse().ok()?,
        _ => return None,
    };
    if number == 0.0 {
        Some(Threshold::NEVER)
    } else if number > 0.0 {
        Some(Threshold::ALWAYS)
    } else {
        None
    }
}
