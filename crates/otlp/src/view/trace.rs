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
        /// What describes it.
        attributes: each<Attribute> = 9;
        /// How many attributes were dropped before they were sent.
        dropped_attributes_count: uint32 = 10;
        /// What happened during the span.
        events: each<Event> = 11;
        /// How many events were dropped before they were sent.
        dropped_events_count: uint32 = 12;
        /// Other spans that it has to do with.
        links: each<Link> = 13;
        /// How many links were dropped before they were sent.
        dropped_links_count: uint32 = 14;
        /// How it ended; may be missing.
        status: one<Status> = 15;
        /// `SpanFlags`.
        flags: uint32 = 16;
    }
}

view! {
    /// An event of a span.
    Event {
        /// When, in nanoseconds since 1970.
        time_unix_nano: uint64 = 1;
        /// What happened.
        name: text = 2;
        /// What describes it.
        attributes: each<Attribute> = 3;
        /// How many attributes were dropped before they were sent.
        dropped_attributes_count: uint32 = 4;
    }
}

view! {
    /// A link from a span to another one.
    Link {
        /// 16 bytes.
        trace_id: bytes = 1;
        /// 8 bytes.
        span_id: bytes = 2;
        /// W3C trace state.
        trace_state: text = 3;
        /// What describes it.
        attributes: each<Attribute> = 4;
        /// How many attributes were dropped before they were sent.
        dropped_attributes_count: uint32 = 5;
        /// `SpanFlags`.
        flags: uint32 = 6;
    }
}

view! {
    /// How a span ended.
    Status {
        /// What went wrong.
        text: text = 2;
        /// `StatusCode`.
        code: int32 = 3;
    }
}
