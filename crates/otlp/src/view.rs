//! `Copy` views of the messages in a valid request, without decoding or allocation. Fields may be in any
//! order.
//!
//! A getter searches the fields of its message, so read each field once. Of a repeated singular message, the getter
//! reads the last occurrence. [`merge_repeated`](super::merge_repeated) merges the occurrences when a request is
//! received.

mod as_text;
mod common;
mod log;
mod message;
mod metric;
mod trace;

pub use self::as_text::text_of;
pub use self::common::{AnyValue, Attribute, Attributes, EntityRef, Resource, Scope, attribute};
pub use self::log::LogRecord;
pub use self::message::{Each, Message, View};
pub use self::metric::{
    Buckets, Data, Exemplar, ExponentialHistogramPoint, HistogramPoint, Metric, Number,
    NumberPoint, Quantile, SummaryPoint,
};
pub use self::trace::{Event, Link, Span, Status};

use self::message::view;
use crate::reader::Fields;

view! {
    /// A request of any signal.
    Request {
        /// The telemetry by resource.
        resources: each<ResourceEntry> = 1;
    }
}

impl<'a> Request<'a> {
    /// Creates the view of a valid request.
    pub fn new(request: &'a [u8]) -> Self {
        Request(Message::new(request))
    }
}

view! {
    /// Telemetry of one resource: `ResourceSpans`, `ResourceMetrics`, `ResourceLogs`, `ResourceProfiles`.
    ResourceEntry {
        /// The resource; may be missing.
        resource: one<Resource> = 1;
        /// Telemetry by scope.
        scopes: each<ScopeEntry> = 2;
        /// The schema of the resource.
        schema_url: text = 3;
    }
}

view! {
    /// Telemetry of one instrumentation scope: `ScopeSpans`, `ScopeMetrics`, `ScopeLogs`, `ScopeProfiles`. Read only
    /// the entries of the request's signal: all signals use the same field number.
    ScopeEntry {
        /// The scope; may be missing.
        scope: one<Scope> = 1;
        /// The spans of a traces request.
        spans: each<Span> = 2;
        /// The metrics of a metrics request.
        metrics: each<Metric> = 2;
        /// The records of a logs request.
        log_records: each<LogRecord> = 2;
        /// The schema of the entries.
        schema_url: text = 3;
    }
}

/// The string table of a valid request of profiles, to which its attributes may refer.
pub fn string_table(request: &[u8]) -> Vec<&str> {
    const DICTIONARY: u32 = 2;
    const STRING_TABLE: u32 = 5;
    let tables = messages(request, DICTIONARY);
    let strings = tables.flat_map(|table| messages(table, STRING_TABLE));
    strings
        .map(|text| std::str::from_utf8(text).unwrap_or_default())
        .collect()
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}
