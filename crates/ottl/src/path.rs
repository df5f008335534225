//! The paths of the language.

use super::Operand;
use tributary_otlp::Signal;

/// The part of a request in which a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// `resource`.
    Resource,
    /// `scope`, or `instrumentation_scope`.
    Scope,
    /// `span`.
    Span,
    /// `spanevent`.
    SpanEvent,
    /// `metric`.
    Metric,
    /// `datapoint`.
    DataPoint,
    /// `log`.
    Log,
    /// `profile`.
    Profile,
}

/// The nesting levels of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Resources.
    Resource,
    /// Instrumentation scopes.
    Scope,
    /// Spans, metrics, log records, profiles.
    Item,
    /// Span events, data points.
    Inner,
}

impl Context {
    /// All contexts with their names. A scope has two names.
    pub const NAMES: [(&'static str, Context); 9] = [
        ("resource", Context::Resource),
        ("scope", Context::Scope),
        ("instrumentation_scope", Context::Scope),
        ("span", Context::Span),
        ("spanevent", Context::SpanEvent),
        ("metric", Context::Metric),
        ("datapoint", Context::DataPoint),
        ("log", Context::Log),
        ("profile", Context::Profile),
    ];

    /// Returns the context of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut names = Context::NAMES.iter();
        names
            .find(|(known, _)| *known == name)
            .map(|(_, context)| *context)
    }

    /// Returns the name in the language.
    pub fn name(self) -> &'static str {
        let mut names = Context::NAMES.iter();
        names
            .find(|(_, context)| *context == self)
            .map_or("", |(name, _)| name)
    }

    /// Returns the level at which items of this context are nested.
    pub fn depth(self) -> Depth {
        match self {
            Context::Resource => Depth::Resource,
            Context::Scope => Depth::Scope,
            Context::Span | Context::Metric | Context::Log | Context::Profile => Depth::Item,
            Context::SpanEvent | Context::DataPoint => Depth::Inner,
        }
    }

    /// Whether requests of a signal have this context.
    pub fn is_of(self, signal: Signal) -> bool {
        match self {
            Context::Resource | Context::Scope => true,
            Context::Span | Context::SpanEvent => signal == Signal::Traces,
            Context::Metric | Context::DataPoint => signal == Signal::Metrics,
            Context::Log => signal == Signal::Logs,
            Context::Profile => signal == Signal::Profiles,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub context: Context,
    pub field: Field,
    /// Whether nanoseconds since 1970 are a time.
    pub as_time: bool,
    /// Keys in brackets behind the path.
    pub keys: Vec<Key>,
}

#[derive(Debug, Clone)]
pub(crate) enum Key {
    Name(String),
    /// Index in a list, from 0.
    Position(i64),
    /// An expression for a name or an index.
    Computed(Box<Operand>),
}

/// A field of a context. The flag `true` selects the text form of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Attributes,
    DroppedAttributes,
    Name,
    Version,
    TraceId(bool),
    SpanId(bool),
    ParentSpanId(bool),
    ProfileId(bool),
    TraceState,
    Kind,
    KindText,
    StartTime,
    EndTime,
    Time,
    ObservedTime,
    DroppedEvents,
    DroppedLinks,
    StatusCode,
    StatusMessage,
    Flags,
    SeverityNumber,
    SeverityText,
    Body,
    BodyText,
    EventName,
    Description,
    Unit,
    Type,
    Temporality,
    IsMonotonic,
    ValueInt,
    ValueDouble,
    Count,
    Sum,
    Duration,
    Period,
    PayloadFormat,
    SchemaUrl,
    /// Values that the statements of a group keep while they process one item.
    Cache,
    KindEnumText,
    Events,
    Links,
    Status,
    Metadata,
    DataPoints,
    Exemplars,
    BucketCounts,
    ExplicitBounds,
    Scale,
    ZeroCount,
    /// Buckets of an exponential histogram; the flag `true` selects the positive ones.
    Buckets(bool),
    BucketsOffset(bool),
    BucketsCounts(bool),
    Quantiles,
}

impl Field {
    /// Whether the field is a map, whose first key is a name.
    pub(super) fn is_map(self) -> bool {
        matches!(self, Field::Attributes | Field::Cache | Field::Metadata)
    }

    /// Whether keys may follow the field.
    pub(super) fn has_keys(self) -> bool {
        self.is_map() || matches!(self, Field::Body | Field::TraceState)
    }
}

/// Returns the fields of a context with their names.
pub(super) fn fields(context: Context) -> &'static [(&'static str, Field)] {
    match context {
        Context::Resource => &[
            ("attributes", Field::Attributes),
            ("dropped_attributes_count", Field::DroppedAttributes),
            ("schema_url", Field::SchemaUrl),
            ("cache", Field::Cache),
        ],
        Context::Scope => &[
            ("attributes", Field::Attributes),
            ("dropped_attributes_count", Field::DroppedAttributes),
            ("name", Field::Name),
            ("version", Field::Version),
            ("schema_url", Field::SchemaUrl),
            ("cache", Field::Cache),
        ],
        Context::Span => &[
            ("attributes", Field::Attributes),
            ("dropped_attributes_count", Field::DroppedAttributes),
            ("name", Field::Name),
            ("trace_id", Field::TraceId(false)),
            ("trace_id.string", Field::TraceId(true)),
            ("span_id", Field::SpanId(false)),
            ("span_id.string", Field::SpanId(true)),
            ("parent_span_id", Field::ParentSpanId(false)),
            ("parent_span_id.string", Field::ParentSpanId(true)),
            ("trace_state", Field::TraceState),
            ("kind", Field::Kind),
            ("kind.string", Field::KindText),
            ("start_time_unix_nano", Field::StartTime),
            ("end_time_unix_nano", Field::EndTime),
            ("dropped_events_count", Field::DroppedEvents),
            ("dropped_links_count", Field::DroppedLinks),
            ("status.code", Field::StatusCode),
            ("status.message", Field::StatusMessage),
            ("flags", Field::Flags),
            ("kind.deprecated_string", Field::KindEnumText),
            ("events", Field::Events),
            ("links", Field::Links),
            ("status", Field::Status),
            ("cache", Field::Cache),
        ],
        Context::SpanEvent => &[
            ("attributes", Field::Attributes),
            ("dropped_attributes_count", Field::DroppedAttributes),
            ("name", Field::Name),
            ("time_unix_nano", Field::Time),
            ("cache", Field::Cache),
        ],
        Context::Metric => &[
            ("name", Field::Name),
            ("description", Field::Description),
            ("unit", Field::Unit),
            ("type", Field::Type),
            ("aggregation_temporality", Field::Temporality),
            ("is_monotonic", Field::IsMonotonic),
            ("data_points", Field::DataPoints),
            ("metadata", Field::Metadata),
            ("cache", Field::Cache),
        ],
        Context::DataPoint => &[
            ("attributes", Field::Attributes),
            ("start_time_unix_nano", Field::StartTime),
            ("time_unix_nano", Field::Time),
            ("value_int", Field::ValueInt),
            ("value_double", Field::ValueDouble),
            ("count", Field::Count),
            ("sum", Field::Sum),
            ("flags", Field::Flags),
            ("exemplars", Field::Exemplars),
            ("bucket_counts", Field::BucketCounts),
            ("explicit_bounds", Field::ExplicitBounds),
            ("scale", Field::Scale),
            ("zero_count", Field::ZeroCount),
            ("positive", Field::Buckets(true)),
            ("positive.offset", Field::BucketsOffset(true)),
            ("positive.bucket_counts", Field::BucketsCounts(true)),
            ("negative", Field::Buckets(false)),
            ("negative.offset", Field::BucketsOffset(false)),
            ("negative.bucket_counts", Field::BucketsCounts(false)),
            ("quantile_values", Field::Quantiles),
            ("cache", Field::Cache),
        ],
        Context::Log => &[
            ("attributes", Field::Attributes),
            ("dropped_attributes_count", Field::DroppedAttributes),
            ("trace_id", Field::TraceId(false)),
            ("trace_id.string", Field::TraceId(true)),
            ("span_id", Field::SpanId(false)),
            ("span_id.string", Field::SpanId(true)),
            ("time_unix_nano", Field::Time),
            ("observed_time_unix_nano", Field::ObservedTime),
            ("severity_number", Field::SeverityNumber),
            ("severity_text", Field::SeverityText),
            ("body", Field::Body),
            ("body.string", Field::BodyText),
            ("flags", Field::Flags),
            ("event_name", Field::EventName),
            ("cache", Field::Cache),
        ],
        Context::Profile => &[
            ("attributes", Field::Attributes),
            ("dropped_attributes_count", Field::DroppedAttributes),
            ("profile_id", Field::ProfileId(false)),
            ("profile_id.string", Field::ProfileId(true)),
            ("time_unix_nano", Field::Time),
            ("duration_unix_nano", Field::Duration),
            ("period", Field::Period),
            ("original_payload_format", Field::PayloadFormat),
            ("duration", Field::Duration),
            ("cache", Field::Cache),
        ],
    }
}

pub(super) fn number(name: &str) -> Option<i64> {
    const SEVERITIES: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
    const NAMES: [(&str, i64); 20] = [
        ("SPAN_KIND_UNSPECIFIED", 0),
        ("SPAN_KIND_INTERNAL", 1),
        ("SPAN_KIND_SERVER", 2),
        ("SPAN_KIND_CLIENT", 3),
        ("SPAN_KIND_PRODUCER", 4),
        ("SPAN_KIND_CONSUMER", 5),
        ("STATUS_CODE_UNSET", 0),
        ("STATUS_CODE_OK", 1),
        ("STATUS_CODE_ERROR", 2),
        ("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0),
        ("AGGREGATION_TEMPORALITY_DELTA", 1),
        ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2),
        ("METRIC_DATA_TYPE_NONE", 0),
        ("METRIC_DATA_TYPE_GAUGE", 1),
        ("METRIC_DATA_TYPE_SUM", 2),
        ("METRIC_DATA_TYPE_HISTOGRAM", 3),
        ("METRIC_DATA_TYPE_EXPONENTIAL_HISTOGRAM", 4),
        ("METRIC_DATA_TYPE_SUMMARY", 5),
        ("FLAG_NONE", 0),
        ("FLAG_NO_RECORDED_VALUE", 1),
    ];
    if let Some(severity) = name.strip_prefix("SEVERITY_NUMBER_") {
        if severity == "UNSPECIFIED" {
            return Some(0);
        }
        let (word, step) = match severity.split_at_checked(severity.len().saturating_sub(1)) {
            Some((word, "2")) => (word, 1),
            Some((word, "3")) => (word, 2),
            Some((word, "4")) => (word, 3),
            _ => (severity, 0),
        };
        let at = SEVERITIES.iter().position(|known| *known == word)?;
        return i64::try_from(at).ok().map(|at| 4 * at + 1 + step);
    }
    let mut names = NAMES.iter();
    names
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}
