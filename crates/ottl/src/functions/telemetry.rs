//! Functions that read the current span or metric.

use super::ParameterKind::Text;
use super::{Function, Parameter};
use crate::path::Context;
use crate::value::Value;
use tributary_otlp::view::{AnyValue, Attributes, Data, Message, Metric, Span, View as _};

const KEY: Parameter = Parameter::new("key", Text);

pub(super) const ALL: &[Function] = &[
    Function::new("IsRootSpan", &[], |arguments| {
        let parent = Span::view(arguments.here.item).parent_span_id();
        Ok(Value::Bool(parent.iter().all(|byte| *byte == 0)))
    })
    .reads(Context::Span),
    Function::new("HasAttrKeyOnDatapoint", &[KEY], |arguments| {
        let has = has_attribute(arguments.here.item, arguments.text(0)?, None);
        Ok(Value::Bool(has))
    })
    .reads(Context::Metric),
    Function::new(
        "HasAttrOnDatapoint",
        &[KEY, Parameter::new("expected_val", Text)],
        |arguments| {
            let value = arguments.text(1)?;
            let has = has_attribute(arguments.here.item, arguments.text(0)?, Some(value));
            Ok(Value::Bool(has))
        },
    )
    .reads(Context::Metric),
];

/// Whether any data point of the metric has an attribute, with the given value, if any. A value that is not a text
/// counts as the empty text. (The Collector does the same, but checks the value only in the first point that has the
/// key.)
fn has_attribute(metric: Message<'_>, key: &str, value: Option<&str>) -> bool {
    let matches = |attributes: Attributes<'_>| {
        let found = attributes
            .into_iter()
            .find(|attribute| attribute.key_bytes() == key.as_bytes());
        found.is_some_and(|found| {
            let text = match found.value() {
                Some(AnyValue::String(text)) => text,
                _ => "",
            };
            value.is_none_or(|value| value == text)
        })
    };
    match Metric::view(metric).data() {
        None => false,
        Some(Data::Gauge { mut points } | Data::Sum { mut points, .. }) => {
            points.any(|point| matches(point.attributes()))
        }
        Some(Data::Histogram { mut points, .. }) => points.any(|point| matches(point.attributes())),
        Some(Data::ExponentialHistogram { mut points, .. }) => {
            points.any(|point| matches(point.attributes()))
        }
        Some(Data::Summary { mut points }) => points.any(|point| matches(point.attributes())),
    }
}
