//! Spans.

use super::common::Attribute;
use super::message::view;

view! {
    /// A span.
    Span {
        /// 16 bytes.
        trace_id: bytes = 1;
        /// 8 bytes.
        span_id: bytes = 2;
        /// W3C trace state.
        trace_state: text = 3;
        /// 8 bytes; empty for a root span.
        parent_span_id: bytes = 4;
        /// The name of the operation.
        name: text = 5;
        /// `SpanKind`.
        kind: int32 = 6;
        /// Start, in nanoseconds since 1970.
        start_time_unix_nano: uint64 = 7;
        /// End, in nanoseconds since 1970.
        end_time_unix_nano: uint64 = 8;
        /// Attributes of the span.
        attributes: each<Attribute> = 9;
        /// Number of attributes that the application dropped before export.
        dropped_attributes_count: uint32 = 10;
        /// Events during the span.
        events: each<Event> = 11;
        /// Number of events that the application dropped before export.
        dropped_events_count: uint32 = 12;
        /// Links to related spans.
        links: each<Link> = 13;
        /// Number of links that the application dropped before export.
        dropped_links_count: uint32 = 14;
        /// Status of the span; may be missing.
        status: one<Status> = 15;
        /// `SpanFlags`.
        flags: uint32 = 16;
    }
}

view! {
    /// An event of a span.
    Event {
        /// Time of the event, in nanoseconds since 1970.
        time_unix_nano: uint64 = 1;
        /// Name of the event.
        name: text = 2;
        /// Attributes of the event.
        attributes: each<Attribute> = 3;
        /// Number of attributes that the application dropped before export.
        dropped_attributes_count: uint32 = 4;
    }
}

view! {
    /// A link to another span.
    Link {
        /// 16 bytes.
        trace_id: bytes = 1;
        /// 8 bytes.
        span_id: bytes = 2;
        /// W3C trace state.
        trace_state: text = 3;
        /// Attributes of the link.
        attributes: each<Attribute> = 4;
        /// Number of attributes that the application dropped before export.
        dropped_attributes_count: uint32 = 5;
        /// `SpanFlags`.
        flags: uint32 = 6;
    }
}

view! {
    /// Status of a span: success or error.
    Status {
        /// Description of the error.
        text: text = 2;
        /// `StatusCode`.
        code: int32 = 3;
    }
}
