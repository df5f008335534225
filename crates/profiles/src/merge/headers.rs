//! Merges the headers of profiles.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};

use super::super::dictionary::Dictionary;
use super::super::id::{AttributeId, AttributeSetId};
use super::super::model::Header;
use super::super::names;
use super::{DurationRule, MergeCounts, MergeOptions};
use crate::entry::Attribute;

pub(super) fn join(
    into: &mut Header,
    from: &Header,
    options: MergeOptions,
    dictionary: &mut Dictionary,
    counts: &mut MergeCounts,
) {
    let end = |header: &Header| header.time.saturating_add(header.duration);
    let time = match (into.time, from.time) {
        (0, time) | (time, 0) => time,
        (a, b) => a.min(b),
    };
    into.duration = match options.duration {
        DurationRule::Span => end(into).max(end(from)).saturating_sub(time),
        DurationRule::Sum => into.duration.checked_add(from.duration).unwrap_or_else(|| {
            counts.saturated += 1;
            u64::MAX
        }),
    };
    into.time = time;
    into.period = into.period.max(from.period);
    into.dropped_attributes = into
        .dropped_attributes
        .saturating_add(from.dropped_attributes);
    if into.attributes != from.attributes {
        into.attributes = union(dictionary, into.attributes, from.attributes);
    }
}

/// Returns the union of two attribute sets. The first value of a key stays, but comments are concatenated.
fn union(
    dictionary: &mut Dictionary,
    first: AttributeSetId,
    second: AttributeSetId,
) -> AttributeSetId {
    let mut all: Vec<AttributeId> = Vec::new();
    let comments = [first, second].map(|set| dictionary.find(set, names::COMMENT));
    if let [Some(first), Some(second)] = comments
        && first != second
    {
        all.push(joined(dictionary, first, second));
    }
    all.extend_from_slice(dictionary.attributes(first));
    all.extend_from_slice(dictionary.attributes(second));
    dictionary.attribute_set(&all)
}

fn joined(dictionary: &mut Dictionary, first: Attribute, second: Attribute) -> AttributeId {
    let list = |attribute: Attribute| match dictionary.any_value(attribute.value).value {
        Some(Value::ArrayValue(array)) => array.values,
        value => vec![AnyValue { value }],
    };
    let mut values = list(first);
    for value in list(second) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let value = AnyValue {
        value: Some(Value::ArrayValue(ArrayValue { values })),
    };
    let value = dictionary.value(&value);
    dictionary.attribute(Attribute { value, ..first })
}
