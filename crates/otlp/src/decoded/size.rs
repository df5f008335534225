//! Memory bound of decoded requests.

use std::sync::LazyLock;

use opentelemetry_proto::tonic::collector::logs::v1 as logs_service;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics_service;
use opentelemetry_proto::tonic::collector::profiles::v1development as profiles_service;
use opentelemetry_proto::tonic::collector::trace::v1 as trace_service;
use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::logs::v1 as logs;
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::profiles::v1development as profiles;
use opentelemetry_proto::tonic::resource::v1 as resource;
use opentelemetry_proto::tonic::trace::v1 as trace;

use crate::DEPTH_LIMIT;
use crate::Signal;
use crate::reader::{Fields, Value};
use crate::schema::{FieldCheck, SCHEMA};

/// Returns the maximum memory, in bytes, for decoding a valid request into the structs of
/// `opentelemetry-proto`. Visits all messages, at a fraction of the cost of decoding.
pub fn decoded_bytes(signal: Signal, request: &[u8]) -> usize {
    message(SCHEMA.root(signal), request, 0)
}

/// Returns the maximum memory, in bytes, for decoding a valid metric into the struct of `opentelemetry-proto`.
pub fn decoded_metric_bytes(metric: &[u8]) -> usize {
    // Resource, scope, metric.
    let table = [1, 2, 2]
        .iter()
        .try_fold(SCHEMA.root(Signal::Metrics), |table, number| {
            let action = SCHEMA.tables.get(table)?.actions.get(number << 3 | 2)?;
            match action {
                FieldCheck::Repeated(target)
                | FieldCheck::Item(target)
                | FieldCheck::Metric(target) => Some(usize::from(*target)),
                _ => None,
            }
        });
    size_of::<metrics::Metric>() + table.map_or(0, |table| message(table, metric, 0))
}

/// Overhead of an allocation, in bytes.
const ALLOCATION: usize = 16;
/// Capacity of a list after its first element.
const FIRST_PLACES: usize = 4;
/// Slots per element while a full list is doubled: the old and the new list exist at once.
const PLACES: usize = 3;
/// Size of a number in a list, in bytes.
const NUMBER: usize = 8;

fn message(table: usize, body: &[u8], depth: u32) -> usize {
    let (Some(schema), Some(layout)) = (SCHEMA.tables.get(table), LAYOUTS.get(table)) else {
        return 0;
    };
    let mut sum = 0;
    let mut seen = 0_u32;
    let mut element = |number: u32, size: usize| {
        let bit = 1_u32.checked_shl(number).unwrap_or_default();
        let is_first = seen & bit == 0;
        seen |= bit;
        match is_first {
            true => FIRST_PLACES * size + ALLOCATION,
            false => PLACES * size,
        }
    };
    for field in Fields::new(body).map_while(Result::ok) {
        let is_repeated =
            layout.repeated & 1_u32.checked_shl(field.number).unwrap_or_default() != 0;
        let Value::Bytes(content) = field.value else {
            if is_repeated {
                sum += element(field.number, NUMBER);
            }
            continue;
        };
        let action = usize::try_from(field.number << 3 | 2).ok();
        let action = action.and_then(|key| schema.actions.get(key));
        let (target, is_element) = match action {
            Some(
                FieldCheck::Repeated(target)
                | FieldCheck::Item(target)
                | FieldCheck::Metric(target),
            ) => (target, true),
            Some(FieldCheck::KeyValue(target)) => (target, is_repeated),
            Some(FieldCheck::Single(target) | FieldCheck::Data(target)) => (target, false),
            Some(FieldCheck::Text | FieldCheck::Bytes) => {
                sum += match content.len() {
                    0 => 0,
                    len => len + NUMBER + ALLOCATION,
                };
                if is_repeated {
                    sum += element(field.number, size_of::<String>());
                }
                continue;
            }
            Some(FieldCheck::PackedVarints) => {
                let numbers = content.iter().filter(|byte| **byte < 0x80).count();
                sum += PLACES * NUMBER * numbers + ALLOCATION;
                continue;
            }
            Some(FieldCheck::PackedFixed64 | FieldCheck::PackedFixed32) => {
                sum += PLACES * 2 * content.len() + ALLOCATION;
                continue;
            }
            _ => continue,
        };
        let target = usize::from(*target);
        if is_element {
            let size = LAYOUTS.get(target).map_or(0, |layout| layout.size);
            sum += element(field.number, size);
        }
        if depth < DEPTH_LIMIT {
            sum += message(target, content, depth + 1);
        }
    }
    sum
}

struct Layout {
    /// Size of the struct in bytes, without the contents of its lists and texts.
    size: usize,
    /// Bit set of the numbers of repeated fields.
    repeated: u32,
}

/// Layouts by position in [`SCHEMA`].
static LAYOUTS: LazyLock<Vec<Layout>> = LazyLock::new(|| {
    let layout = |table: &crate::schema::Table| Layout {
        size: size(&table.descriptor.name).unwrap_or(MAX_STRUCT_SIZE),
        repeated: table
            .descriptor
            .fields
            .iter()
            .filter(|field| field.repeated)
            .fold(0, |bits, field| {
                bits | 1_u32.checked_shl(field.number).unwrap_or_default()
            }),
    };
    SCHEMA.tables.iter().map(layout).collect()
});

/// Size for unlisted types; a test fails if there are any.
const MAX_STRUCT_SIZE: usize = size_of::<trace::Span>();

/// Returns the size of the struct of a message type.
fn size(name: &str) -> Option<usize> {
    macro_rules! sizes {
        ($($module:ident: $($type:ident)*;)*) => {
            &[$($((stringify!($type), size_of::<$module::$type>()),)*)*]
        };
    }
    use metrics::exponential_histogram_data_point as exponential;
    use metrics::summary_data_point as summary;
    use trace::span;
    let sizes: &[(&str, usize)] = sizes! {
        trace_service: ExportTraceServiceRequest ExportTraceServiceResponse ExportTracePartialSuccess;
        metrics_service: ExportMetricsServiceRequest ExportMetricsServiceResponse ExportMetricsPartialSuccess;
        logs_service: ExportLogsServiceRequest ExportLogsServiceResponse ExportLogsPartialSuccess;
        profiles_service: ExportProfilesServiceRequest ExportProfilesServiceResponse ExportProfilesPartialSuccess;
        common: AnyValue ArrayValue KeyValueList KeyValue InstrumentationScope EntityRef;
        resource: Resource;
        trace: TracesData ResourceSpans ScopeSpans Span Status;
        span: Event Link;
        logs: LogsData ResourceLogs ScopeLogs LogRecord;
        metrics: MetricsData ResourceMetrics ScopeMetrics Metric Gauge Sum Histogram ExponentialHistogram Summary
            NumberDataPoint HistogramDataPoint ExponentialHistogramDataPoint SummaryDataPoint Exemplar;
        exponential: Buckets;
        summary: ValueAtQuantile;
        profiles: ProfilesDictionary ProfilesData ResourceProfiles ScopeProfiles Profile ValueType Sample Mapping Stack
            Location Line Function KeyValueAndUnit;
    };
    let short = name.rsplit('.').next()?;
    // OTLP has two types `Link`: of spans and of samples.
    if name.ends_with("profiles.v1development.Link") {
        return Some(size_of::<profiles::Link>());
    }
    let found = sizes.iter().find(|(known, _)| *known == short);
    found.map(|(_, size)| *size)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message as _;

    use super::*;
    use crate::edit::put_delimited;

    #[test]
    fn every_message_type_has_a_known_size() {
        for table in &SCHEMA.tables {
            let name = &table.descriptor.name;
            // Internal types of a library that occur in no request.
            if name.starts_with("opentelemetry.proto.tracez.") {
                continue;
            }
            assert!(size(name).is_some(), "no size of {name}");
        }
    }

    fn nested(numbers: &[u32], body: &[u8]) -> Vec<u8> {
        numbers.iter().rev().fold(body.to_vec(), |body, number| {
            let mut output = Vec::new();
            put_delimited(*number, &body, &mut output);
            output
        })
    }

    #[test]
    fn estimates_cover_the_structs_of_bombs() {
        let empty_spans = nested(&[1, 2], &[0x12, 0].repeat(100_000));
        let spans = ExportTraceServiceRequest::decode(empty_spans.as_slice()).unwrap();
        let spans = &spans.resource_spans[0].scope_spans[0].spans;
        let taken = spans.capacity() * size_of::<trace::Span>();
        let estimate = decoded_bytes(Signal::Traces, &empty_spans);
        assert!(
            (taken..4 * taken).contains(&estimate),
            "{estimate} of {taken}"
        );

        let empty_events = nested(&[1, 2, 2], &[0x5a, 0].repeat(100_000));
        let events = ExportTraceServiceRequest::decode(empty_events.as_slice()).unwrap();
        let events = &events.resource_spans[0].scope_spans[0].spans[0].events;
        let taken = events.capacity() * size_of::<trace::span::Event>();
        let estimate = decoded_bytes(Signal::Traces, &empty_events);
        assert!(
            (taken..4 * taken).contains(&estimate),
            "{estimate} of {taken}"
        );

        // One element each: a list has four slots from its first element on.
        let lone = nested(&[1, 2, 2], &[0x5a, 0]).repeat(1000);
        let lone_estimate = decoded_bytes(Signal::Traces, &lone);
        let each = 4
            * (size_of::<trace::ScopeSpans>()
                + size_of::<trace::Span>()
                + size_of::<trace::span::Event>());
        assert!(lone_estimate > 1000 * each, "{lone_estimate}");
    }

    #[test]
    fn estimates_cover_lists_of_numbers() {
        let indices = nested(&[1, 2, 2, 2], &nested(&[2], &[0; 100_000]));
        assert!(decoded_bytes(Signal::Profiles, &indices) >= 2 * 100_000 * size_of::<i32>());
    }
}
