//! The part of a request that an expression is evaluated on.

use super::path::Context;
use tributary_otlp::view::{
    Attributes, Event, ExponentialHistogramPoint, HistogramPoint, LogRecord, Message, NumberPoint,
    Resource, ResourceEntry, ScopeEntry, Span, SummaryPoint, View as _,
};

/// The part of a request on which an expression is evaluated, with its enclosing levels.
#[derive(Debug, Clone, Copy, Default)]
pub struct EvaluationTarget<'a> {
    /// The resource.
    pub resource: Message<'a>,
    /// The instrumentation scope.
    pub scope: Message<'a>,
    /// A span, a metric, or a log record.
    pub item: Message<'a>,
    /// The profile, in requests of profiles.
    pub profile: Option<&'a ProfileFields>,
    /// A span event or a data point.
    pub inner: Message<'a>,
    /// For a data point: the number of the metric's field that contains it.
    pub form: u32,
    /// The cache of the statements that are executed, as an encoded `KeyValueList`.
    pub cache: Message<'a>,
}

/// A profile whose references to the dictionary are resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileFields {
    /// Attributes, as an encoded resource.
    pub attributes: Vec<u8>,
    /// `dropped_attributes_count`.
    pub dropped_attributes: u32,
    /// `profile_id`.
    pub profile_id: Vec<u8>,
    /// `time_unix_nano`.
    pub time: u64,
    /// `duration_nano`.
    pub duration: u64,
    /// `period`.
    pub period: i64,
    /// `original_payload_format`.
    pub payload_format: String,
}

/// Returns the attributes of the context's part. A metric has no attributes.
pub fn attributes<'a>(context: Context, here: &EvaluationTarget<'a>) -> Attributes<'a> {
    let none = || Resource::view(Message::default()).attributes();
    match context {
        Context::Resource => ResourceEntry::view(here.resource)
            .resource()
            .map_or_else(none, |resource| resource.attributes()),
        Context::Scope => ScopeEntry::view(here.scope)
            .scope()
            .map_or_else(none, |scope| scope.attributes()),
        Context::Span => Span::view(here.item).attributes(),
        Context::SpanEvent => Event::view(here.inner).attributes(),
        Context::Log => LogRecord::view(here.item).attributes(),
        Context::DataPoint => of_form(here.inner, here.form),
        Context::Profile => here.profile.map_or_else(none, |profile| {
            Resource::view(Message::new(&profile.attributes)).attributes()
        }),
        Context::Metric => none(),
    }
}

/// Returns the attributes of a data point in this field of its metric.
fn of_form(point: Message<'_>, form: u32) -> Attributes<'_> {
    match form {
        9 => HistogramPoint::view(point).attributes(),
        10 => ExponentialHistogramPoint::view(point).attributes(),
        11 => SummaryPoint::view(point).attributes(),
        _ => NumberPoint::view(point).attributes(),
    }
}
