//! The requests with every field in hand-written JSON, by the rules of OTLP/JSON: ids in hexadecimal, other bytes in
//! base64, 64-bit integers as texts, enumerations as numbers.

use serde_json::{Value, json};

use crate::harness::Signal;

/// The JSON of `Telemetry::with_every_field(signal, name)`.
pub fn with_every_field(signal: Signal, name: &str) -> Value {
    match signal {
        Signal::Traces => traces(name),
        Signal::Metrics => metrics(name),
        Signal::Logs => logs(name),
        Signal::Profiles => profiles(name),
    }
}

const SCHEMA: &str = "https://opentelemetry.io/schemas/1.30.0";
const TRACE: &str = "000102030405060708090a0b0c0d0e0f";
const SPAN: &str = "1011121314151617";

fn map() -> Value {
    json!({"kvlistValue": {"values": [
        {"key": "inner", "value": {"stringValue": "value"}},
        {"key": "deeper", "value": {"kvlistValue": {"values": []}}},
    ]}})
}

fn attributes(id: &str) -> Value {
    json!([
        {"key": "test.id", "value": {"stringValue": id}},
        {"key": "text", "value": {"stringValue": "Gr\u{fc}\u{df}e, \u{4e16}\u{754c} \u{1f680} \"quoted\" \\ \u{1}"}},
        {"key": "empty", "value": {"stringValue": ""}},
        {"key": "true", "value": {"boolValue": true}},
        {"key": "false", "value": {"boolValue": false}},
        {"key": "least", "value": {"intValue": "-9223372036854775808"}},
        {"key": "most", "value": {"intValue": "9223372036854775807"}},
        {"key": "fraction", "value": {"doubleValue": -0.1}},
        {"key": "infinite", "value": {"doubleValue": "Infinity"}},
        {"key": "bytes", "value": {"bytesValue": "AP+A"}},
        {"key": "list", "value": {"arrayValue": {"values": [
            {"intValue": "0"},
            {"stringValue": "two"},
            {},
        ]}}},
        {"key": "map", "value": map()},
        {"key": "nothing"},
    ])
}

fn resource(name: &str) -> Value {
    json!({
        "attributes": attributes(name),
        "droppedAttributesCount": 1,
        "entityRefs": [{
            "schemaUrl": "https://example.com/entity",
            "type": "service",
            "idKeys": ["text"],
            "descriptionKeys": ["empty"],
        }],
    })
}

fn scope(name: &str) -> Value {
    json!({
        "name": "library",
        "version": "1.2.3",
        "attributes": attributes(name),
        "droppedAttributesCount": 2,
    })
}

fn traces(name: &str) -> Value {
    let span = json!({
        "traceId": TRACE,
        "spanId": SPAN,
        "traceState": "a=1,b=2",
        "parentSpanId": "18191a1b1c1d1e1f",
        "flags": 0x301,
        "name": "GET /",
        "kind": 2,
        "startTimeUnixNano": "1700000000123456789",
        "endTimeUnixNano": "1700000000123456790",
        "attributes": attributes(&format!("{name}-0")),
        "droppedAttributesCount": 3,
        "events": [{
            "timeUnixNano": "1700000000123456789",
            "name": "exception",
            "attributes": attributes(name),
            "droppedAttributesCount": 4,
        }],
        "droppedEventsCount": 5,
        "links": [{
            "traceId": "ff".repeat(16),
            "spanId": "FE".repeat(8),
            "traceState": "c=3",
            "attributes": attributes(name),
            "droppedAttributesCount": 6,
            "flags": 1,
        }],
        "droppedLinksCount": 7,
        "status": {"message": "it failed", "code": 2},
    });
    let least = json!({
        "attributes": [{"key": "test.id", "value": {"stringValue": format!("{name}-1")}}],
    });
    json!({"resourceSpans": [{
        "resource": resource(name),
        "scopeSpans": [
            {"scope": scope(name), "spans": [span, least], "schemaUrl": SCHEMA},
            {},
        ],
        "schemaUrl": SCHEMA,
    }]})
}

fn logs(name: &str) -> Value {
    let record = json!({
        "timeUnixNano": "1700000000123456789",
        "observedTimeUnixNano": "1700000000123456790",
        "severityNumber": 9,
        "severityText": "INFO",
        "body": map(),
        "attributes": attributes(&format!("{name}-0")),
        "droppedAttributesCount": 1,
        "flags": 1,
        "traceId": TRACE,
        "spanId": SPAN,
        "eventName": "event",
    });
    let least = json!({
        "attributes": [{"key": "test.id", "value": {"stringValue": format!("{name}-1")}}],
    });
    json!({"resourceLogs": [{
        "resource": resource(name),
        "scopeLogs": [{"scope": scope(name), "logRecords": [record, least], "schemaUrl": SCHEMA}],
        "schemaUrl": SCHEMA,
    }]})
}

fn metrics(name: &str) -> Value {
    let exemplar = |key: &str, value: Value| {
        json!({
            "filteredAttributes": attributes(name),
            "timeUnixNano": "1700000000123456789",
            "spanId": SPAN,
            "traceId": TRACE,
            key: value,
        })
    };
    let exemplars = json!([
        exemplar("asInt", json!("-1")),
        exemplar("asDouble", json!(0.1)),
    ]);
    let point = |number: usize, more: Value| {
        let mut point = json!({
            "attributes": attributes(&format!("{name}-{number}")),
            "startTimeUnixNano": "1700000000123456788",
            "timeUnixNano": "1700000000123456789",
            "flags": 1,
        });
        point
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        point
    };
    let metric = |kind: &str, data: Value| {
        json!({
            "name": "http.server.duration",
            "description": "how long",
            "unit": "s",
            "metadata": attributes(name),
            kind: data,
        })
    };
    let gauge = point(0, json!({"exemplars": exemplars, "asDouble": -0.5}));
    let sum = point(
        1,
        json!({"exemplars": exemplars, "asInt": "-9223372036854775808"}),
    );
    let histogram = point(
        2,
        json!({
            "count": "6",
            "sum": 1.5,
            "bucketCounts": ["1", "2", "3"],
            "explicitBounds": [0.5, 10],
            "exemplars": exemplars,
            "min": 0,
            "max": 1e300,
        }),
    );
    let exponential = point(
        3,
        json!({
            "count": "18446744073709551615",
            "sum": -1.5,
            "scale": -3,
            "zeroCount": "1",
            "positive": {"offset": -2, "bucketCounts": ["0", "1", "18446744073709551615"]},
            "negative": {"offset": 2, "bucketCounts": ["1"]},
            "exemplars": exemplars,
            "min": -1,
            "max": 1,
            "zeroThreshold": 0.001,
        }),
    );
    let summary = point(
        4,
        json!({
            "count": "2",
            "sum": 3.5,
            "quantileValues": [{"quantile": 0.99, "value": 2.5}],
        }),
    );
    let metrics = json!([
        metric("gauge", json!({"dataPoints": [gauge]})),
        metric(
            "sum",
            json!({
                "dataPoints": [sum], "aggregationTemporality": 2, "isMonotonic": true,
            })
        ),
        metric(
            "histogram",
            json!({"dataPoints": [histogram], "aggregationTemporality": 1})
        ),
        metric(
            "exponentialHistogram",
            json!({
                "dataPoints": [exponential], "aggregationTemporality": 2,
            })
        ),
        metric("summary", json!({"dataPoints": [summary]})),
    ]);
    json!({"resourceMetrics": [{
        "resource": resource(name),
        "scopeMetrics": [{"scope": scope(name), "metrics": metrics, "schemaUrl": SCHEMA}],
        "schemaUrl": SCHEMA,
    }]})
}

fn profiles(name: &str) -> Value {
    let dictionary = json!({
        "mappingTable": [{}, {
            "memoryStart": "4096",
            "memoryLimit": "8192",
            "fileOffset": "16",
            "filenameStrindex": 6,
            "attributeIndices": [2],
        }],
        "locationTable": [{}, {
            "mappingIndex": 1,
            "address": "18446744073709551615",
            "lines": [{"functionIndex": 1, "line": "12", "column": "34"}],
            "attributeIndices": [3],
        }],
        "functionTable": [{}, {
            "nameStrindex": 4,
            "systemNameStrindex": 4,
            "filenameStrindex": 5,
            "startLine": "10",
        }],
        "linkTable": [{}, {"traceId": TRACE, "spanId": SPAN}],
        "stringTable": [
            "", "test.id", "cpu", "nanoseconds", "main", "main.rs", "/bin/app", "bytes", "build", "key",
        ],
        "attributeTable": [
            {},
            {"keyStrindex": 1, "value": {"stringValue": format!("{name}-0")}},
            {"keyStrindex": 8, "value": {"bytesValue": "AQI="}},
            {"keyStrindex": 9, "value": {"intValue": "-7"}, "unitStrindex": 7},
        ],
        "stackTable": [{}, {"locationIndices": [1]}],
    });
    let kind = json!({"typeStrindex": 2, "unitStrindex": 3});
    let profile = json!({
        "sampleType": kind,
        "samples": [{
            "stackIndex": 1,
            "attributeIndices": [1, 3],
            "linkIndex": 1,
            "values": ["-9223372036854775808", "2"],
            "timestampsUnixNano": ["1700000000123456789", "1700000000123456790"],
        }],
        "timeUnixNano": "1700000000123456789",
        "durationNano": "10000000000",
        "periodType": kind,
        "period": "10000000",
        "profileId": TRACE,
        "droppedAttributesCount": 1,
        "originalPayloadFormat": "pprofext",
        "originalPayload": "H4sI",
        "attributeIndices": [3],
    });
    json!({
        "resourceProfiles": [{
            "resource": resource(name),
            "scopeProfiles": [{"scope": scope(name), "profiles": [profile], "schemaUrl": SCHEMA}],
            "schemaUrl": SCHEMA,
        }],
        "dictionary": dictionary,
    })
}
