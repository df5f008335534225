//! Reading valid requests without decoding them: `Copy` views of the messages in the bytes. Nothing is allocated;
//! fields may be in any order.
//!
//! A getter looks through the fields of its message, so read each field once. A message that should occur once and
//! occurs again is read as its last occurrence; [`merge_repeated`](super::merge_repeated) merges such messages when a request enters.

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

view! {
    /// A request of any signal.
    Request {
        /// The telemetry by resource.
        resources: each<ResourceEntry> = 1;
    }
}

impl<'a> Request<'a> {
    /// The view of a valid request.
    pub fn new(request: &'a [u8]) -> Self {
        Request(Message::new(request))
    }
}

view! {
    /// Telemetry of one resource: `ResourceSpans`, `ResourceMetrics`, `ResourceLogs`, `ResourceProfiles`.
    ResourceEntry {
        /// The resource; may be missing.
        resource: one<Resource> = 1;
        /// Its telemetry by scope.
        scopes: each<ScopeEntry> = 2;
        /// The schema of the resource.
        schema_url: text = 3;
    }
}

view! {
    /// Telemetry of one instrumentation scope: `ScopeSpans`, `ScopeMetrics`, `ScopeLogs`, `ScopeProfiles`. Read only
    /// the entries of the signal of the request; the fields of the signals share a number.
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
