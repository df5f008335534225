//! Log records.

use super::common::{AnyValue, Attribute};
use super::message::view;

view! {
    /// A log record.
    LogRecord {
        /// Time of the event, in nanoseconds since 1970; 0 if unknown.
        time_unix_nano: uint64 = 1;
        /// `SeverityNumber`.
        severity_number: int32 = 2;
        /// Severity as named by its source.
        severity_text: text = 3;
        /// Body of the log record; may be missing.
        body: one<AnyValue> = 5;
        /// Attributes that describe the log record.
        attributes: each<Attribute> = 6;
        /// Number of attributes that the application dropped before export.
        dropped_attributes_count: uint32 = 7;
        /// `LogRecordFlags`.
        flags: uint32 = 8;
        /// 16 bytes, or none.
        trace_id: bytes = 9;
        /// 8 bytes, or none.
        span_id: bytes = 10;
        /// Time of the observation by the collecting system, in nanoseconds since 1970.
        observed_time_unix_nano: uint64 = 11;
        /// Name of the event type.
        event_name: text = 12;
    }
}
