//! Properties that hold for every request, whether from proptest or from a fuzzer.

use std::collections::BTreeSet;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tributary_otlp::Limit;
use tributary_otlp::attributes::{Actions, AttributeLevel};
use tributary_otlp::stamp::Stamp;
use tributary_otlp::{Decoded, Signal};

/// Asserts that the validator accepts, refuses and counts like prost. Groups are the documented exception.
pub(crate) fn validates_like_prost(signal: Signal, request: &[u8]) {
    let decoded = Decoded::decode(signal, request);
    match (tributary_otlp::validate(signal, request), decoded) {
        (Ok(count), Ok(decoded)) => {
            assert_eq!(count, items(&decoded));
            assert_eq!(count, tributary_otlp::count(signal, request));
        }
        (Err(malformed), _) if malformed.reason.contains("group") => {}
        (Err(malformed), Ok(_)) => panic!("prost accepts: {malformed}"),
        (Ok(_), Err(error)) => panic!("prost refuses: {error}"),
        (Err(malformed), Err(_)) => assert!(malformed.offset <= request.len()),
    }
}

/// Asserts that editing the encoded request equals decoding, editing and encoding.
pub(crate) fn edits_like_prost(
    signal: Signal,
    request: &[u8],
    level: AttributeLevel,
    actions: &Actions,
) {
    let mut expected = Decoded::decode(signal, request).unwrap();
    actions.apply_decoded(level, &mut expected);
    let edited = actions.apply(signal, level, request).unwrap();
    let edited = edited.as_deref().unwrap_or(request);
    assert_eq!(
        tributary_otlp::validate(signal, edited),
        Ok(items(&expected))
    );
    let edited = Decoded::decode(signal, edited).unwrap();
    // Debug output, because NaN is not equal to itself.
    assert_eq!(format!("{edited:?}"), format!("{expected:?}"));
}

/// Asserts that stamping the encoded request equals decoding, removing possible forgeries, adding the stamp,
/// and encoding.
pub(crate) fn stamps_like_prost(signal: Signal, request: &[u8], key: &str, identity: Option<&str>) {
    let mut expected = Decoded::decode(signal, request).unwrap();
    stamp_decoded(&mut expected, key, identity);
    let stamp = Stamp::new(key);
    let stamping = stamp.prepare(signal, identity, request).unwrap();
    let output = stamping.write().unwrap();
    assert_eq!(stamping.bytes(), output.as_ref().map(Vec::len));
    let stamped = output.as_deref().unwrap_or(request);
    assert_eq!(
        tributary_otlp::validate(signal, stamped),
        Ok(items(&expected))
    );
    let stamped = Decoded::decode(signal, stamped).unwrap();
    assert_eq!(format!("{stamped:?}"), format!("{expected:?}"));
}

fn stamp_decoded(request: &mut Decoded, key: &str, identity: Option<&str>) {
    let edit = |resource: &mut Option<Resource>, names_key: &dyn Fn(&KeyValue) -> bool| {
        if let Some(resource) = resource {
            resource.attributes.retain(|found| !names_key(found));
        }
        if let Some(identity) = identity {
            let value = Some(Value::StringValue(identity.to_owned()));
            let attributes = &mut resource.get_or_insert_default().attributes;
            attributes.push(KeyValue {
                key: key.to_owned(),
                value: Some(AnyValue { value }),
                ..KeyValue::default()
            });
        }
    };
    let by_text = |attribute: &KeyValue| attribute.key == key;
    match request {
        Decoded::Traces(request) => (request.resource_spans.iter_mut())
            .for_each(|entry| edit(&mut entry.resource, &by_text)),
        Decoded::Metrics(request) => (request.resource_metrics.iter_mut())
            .for_each(|entry| edit(&mut entry.resource, &by_text)),
        Decoded::Logs(request) => {
            (request.resource_logs.iter_mut()).for_each(|entry| edit(&mut entry.resource, &by_text))
        }
        Decoded::Profiles(request) => {
            let texts = request.dictionary.clone().unwrap_or_default().string_table;
            let by_either = |attribute: &KeyValue| {
                let index = attribute.key_strindex;
                let text = usize::try_from(index)
                    .ok()
                    .and_then(|index| texts.get(index));
                by_text(attribute) || index != 0 && text.is_none_or(|text| text == key)
            };
            (request.resource_profiles.iter_mut())
                .for_each(|entry| edit(&mut entry.resource, &by_either));
        }
    }
}

/// Asserts that parts are valid, within the limits, and together contain every item in order.
pub(crate) fn divided_without_loss(
    signal: Signal,
    request: &Bytes,
    limit: Limit,
    pieces: Vec<(usize, Bytes)>,
) {
    if signal == Signal::Profiles {
        return cuts_profiles_without_loss(request, &pieces);
    }
    // Normalizes as prost does: a metric with data in several fields is decoded, and a negative zero loses its sign.
    let written = |request: &[u8]| {
        let plain = Decoded::decode(signal, request).unwrap().encode();
        lines(&Decoded::decode(signal, &plain).unwrap())
    };
    let whole = written(request);
    let mut together = Vec::new();
    for (count, piece) in &pieces {
        assert_eq!(tributary_otlp::validate(signal, piece), Ok(*count));
        let inside = written(piece);
        assert!(*count <= limit.items);
        // A single item may exceed the limit.
        assert!(piece.len() <= limit.bytes || inside.len() <= 1);
        together.extend(inside);
    }
    // Parts without items may change their order, but are never lost.
    let with_items = |lines: &[String]| -> Vec<String> {
        let with_items = lines.iter().filter(|line| line.starts_with("item"));
        with_items.cloned().collect()
    };
    assert_eq!(with_items(&whole), with_items(&together));
    let whole: BTreeSet<_> = whole.into_iter().collect();
    assert_eq!(whole, together.into_iter().collect());
    if limit.items == usize::MAX && limit.bytes == usize::MAX {
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].1.as_ptr(), request.as_ptr());
    }
}

/// Asserts that parts are valid and contain every observation in order. Other tests check the indices.
fn cuts_profiles_without_loss(request: &Bytes, pieces: &[(usize, Bytes)]) {
    let samples = |request: &[u8]| {
        let Ok(Decoded::Profiles(request)) = Decoded::decode(Signal::Profiles, request) else {
            panic!("a request of profiles");
        };
        let scopes = request.resource_profiles.into_iter();
        let scopes = scopes.flat_map(|resource| resource.scope_profiles);
        let profiles = scopes.flat_map(|scope| scope.profiles);
        let samples = profiles.flat_map(|profile| profile.samples);
        samples
            .map(|sample| (sample.values, sample.timestamps_unix_nano))
            .collect::<Vec<_>>()
    };
    let mut together = Vec::new();
    for (count, piece) in pieces {
        assert_eq!(
            tributary_otlp::validate(Signal::Profiles, piece),
            Ok(*count)
        );
        together.extend(samples(piece));
    }
    assert_eq!(samples(request), together);
}

/// Counts spans, data points, log records or samples, as decoded by prost.
pub(crate) fn items(decoded: &Decoded) -> usize {
    lines(decoded)
        .iter()
        .filter(|line| line.starts_with("item"))
        .count()
}

/// Returns a line for every item with its context, and for every part without items. Lines can be compared where
/// structs cannot, because NaN is not equal to itself.
pub(crate) fn lines(decoded: &Decoded) -> Vec<String> {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let mut lines = Vec::new();
    macro_rules! walk {
        ($request:expr, $resources:ident, $scopes:ident, $entries:ident, $add:expr) => {
            for resource in &$request.$resources {
                let mut header = resource.clone();
                header.$scopes.clear();
                if resource.$scopes.is_empty() {
                    lines.push(format!("empty {header:?}"));
                }
                for scope in &resource.$scopes {
                    let mut inner = scope.clone();
                    inner.$entries.clear();
                    let header = format!("{header:?} {inner:?}");
                    if scope.$entries.is_empty() {
                        lines.push(format!("empty {header}"));
                    }
                    for entry in &scope.$entries {
                        $add(&mut lines, &header, entry);
                    }
                }
            }
        };
    }
    match decoded {
        Decoded::Traces(request) => walk!(
            request,
            resource_spans,
            scope_spans,
            spans,
            |lines: &mut Vec<_>, header: &str, span| lines.push(format!("item {span:?} {header}"))
        ),
        Decoded::Logs(request) => walk!(
            request,
            resource_logs,
            scope_logs,
            log_records,
            |lines: &mut Vec<_>, header: &str, log| lines.push(format!("item {log:?} {header}"))
        ),
        Decoded::Metrics(request) => walk!(
            request,
            resource_metrics,
            scope_metrics,
            metrics,
            |lines: &mut Vec<_>,
             header: &str,
             metric: &opentelemetry_proto::tonic::metrics::v1::Metric| {
                let mut inner = metric.clone();
                let mut points: Vec<String> = Vec::new();
                macro_rules! take {
                    ($data:expr) => {
                        points.extend(
                            $data
                                .data_points
                                .drain(..)
                                .map(|point| format!("{point:?}")),
                        )
                    };
                }
                match &mut inner.data {
                    Some(Data::Gauge(data)) => take!(data),
                    Some(Data::Sum(data)) => take!(data),
                    Some(Data::Histogram(data)) => take!(data),
                    Some(Data::ExponentialHistogram(data)) => take!(data),
                    Some(Data::Summary(data)) => take!(data),
                    None => {}
                }
                if points.is_empty() {
                    lines.push(format!("empty {inner:?} {header}"));
                }
                lines.extend(
                    points
                        .into_iter()
                        .map(|point| format!("item {point} {inner:?} {header}")),
                );
            }
        ),
        Decoded::Profiles(request) => walk!(
            request,
            resource_profiles,
            scope_profiles,
            profiles,
            |lines: &mut Vec<_>,
             header: &str,
             profile: &opentelemetry_proto::tonic::profiles::v1development::Profile| {
                let mut inner = profile.clone();
                inner.samples.clear();
                lines.push(format!("profile {inner:?} {header}"));
                lines.extend(
                    profile
                        .samples
                        .iter()
                        .map(|sample| format!("item {sample:?} {inner:?} {header}")),
                );
            }
        ),
    }
    lines
}
