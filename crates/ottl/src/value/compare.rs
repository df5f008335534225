//! Comparison by the rules of the language (contrib, `pkg/ottl/compare.go`).

use std::cmp::Ordering;

use opentelemetry_proto::tonic::common::v1 as proto;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Proto;

use super::Value;
use crate::Comparison;

/// Compares two values. Values of different kinds are not equal and have no order.
pub(crate) fn compare(left: &Value<'_>, comparison: Comparison, right: &Value<'_>) -> bool {
    let order = match (left, right) {
        (Value::Nil, Value::Nil) => Some(Ordering::Equal),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Int(right)) | (Value::Duration(left), Value::Duration(right)) => {
            Some(left.cmp(right))
        }
        (Value::Time(left), Value::Time(right)) => Some(left.nanoseconds.cmp(&right.nanoseconds)),
        (Value::Int(left), Value::Double(right)) => {
            return numbers(*left as f64, comparison, *right);
        }
        (Value::Double(left), Value::Int(right)) => {
            return numbers(*left, comparison, *right as f64);
        }
        (Value::Double(left), Value::Double(right)) => return numbers(*left, comparison, *right),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Id(left), Value::Id(right)) => (left == right).then_some(Ordering::Equal),
        (left, right) if left.is_map() && right.is_map() || left.is_list() && right.is_list() => {
            // The count is cheap, whereas the comparison decodes both values.
            let is_equal =
                left.len() == right.len() && sorted(left.proto()) == sorted(right.proto());
            is_equal.then_some(Ordering::Equal)
        }
        _ => None,
    };
    // Ids, lists and maps have equality but no order.
    match (comparison, order) {
        (Comparison::Equal, order) => order == Some(Ordering::Equal),
        (Comparison::NotEqual, order) => order != Some(Ordering::Equal),
        (_, _) if left.has_no_order() => false,
        (Comparison::Less, order) => order == Some(Ordering::Less),
        (Comparison::Greater, order) => order == Some(Ordering::Greater),
        (Comparison::LessOrEqual, order) => order.is_some_and(Ordering::is_le),
        (Comparison::GreaterOrEqual, order) => order.is_some_and(Ordering::is_ge),
    }
}

#[allow(clippy::float_cmp)] // What is asked for.
fn numbers(left: f64, comparison: Comparison, right: f64) -> bool {
    match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessOrEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterOrEqual => left >= right,
    }
}

/// Sorts the keys of all maps, since maps have no order.
fn sorted(mut value: proto::AnyValue) -> proto::AnyValue {
    match &mut value.value {
        Some(Proto::KvlistValue(list)) => {
            for entry in &mut list.values {
                entry.value = entry.value.take().map(sorted);
            }
            list.values.sort_by(|a, b| a.key.cmp(&b.key));
        }
        Some(Proto::ArrayValue(list)) => {
            for entry in &mut list.values {
                *entry = sorted(std::mem::take(entry));
            }
        }
        _ => {}
    }
    value
}

impl Value<'_> {
    /// Whether the value supports equality only.
    fn has_no_order(&self) -> bool {
        matches!(self, Value::Id(_)) || self.is_map() || self.is_list()
    }

    /// Whether two values are equal.
    pub(crate) fn equals(&self, other: &Value<'_>) -> bool {
        compare(self, Comparison::Equal, other)
    }
}
