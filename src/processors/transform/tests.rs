use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use super::*;
use crate::component::Host;
use tributary_otlp::Decoded;
use tributary_otlp::edit::put_delimited;
use tributary_profiles::testing_requests::named;

fn config(yaml: &str) -> TransformConfig {
    serde_yaml::from_str(yaml).unwrap()
}

fn mistakes(yaml: &str) -> Vec<String> {
    let mut problems = Problems::default();
    config(yaml).validate(&mut problems);
    let found = problems.found().iter();
    found.map(|problem| problem.message.clone()).collect()
}

fn transform(yaml: &str, signal: Signal, request: &[u8]) -> Result<Batch, Nack> {
    let id = "transform".parse().unwrap();
    let stage = config(yaml)
        .build(&Host::for_tests().context(&id), signal)
        .unwrap();
    let Stage::Pure(processor) = stage else {
        panic!("holds nothing");
    };
    let items = tributary_otlp::count(signal, request);
    let batch = Batch::new(signal, items, Bytes::copy_from_slice(request));
    let batch = processor.process(batch)?.unwrap();
    let (items, bytes) = (batch.items(), batch.wire().to_bytes());
    assert_eq!(tributary_otlp::validate(signal, &bytes), Ok(items));
    Ok(batch)
}

fn attribute(key: &str, text: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(text.to_owned())),
        }),
        ..KeyValue::default()
    }
}

fn shown(attributes: &[KeyValue]) -> String {
    let texts = attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref();
        let text = value.map(tributary_otlp::view::text_of).unwrap_or_default();
        format!("{}={text}", attribute.key)
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn span(name: &str, events: &[&str]) -> Span {
    Span {
        name: name.to_owned(),
        attributes: vec![attribute("a", name)],
        events: events
            .iter()
            .map(|name| Event {
                name: (*name).to_owned(),
                ..Event::default()
            })
            .collect(),
        ..Span::default()
    }
}

fn traces() -> Vec<u8> {
    let of = |service: &str, spans: Vec<Span>| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![attribute("service.name", service)],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            spans,
            ..ScopeSpans::default()
        }],
        schema_url: "schema".to_owned(),
    };
    Decoded::Traces(
        opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest {
            resource_spans: vec![
                of("shop", vec![span("x", &["p", "q"]), span("y", &[])]),
                of("db", vec![span("z", &["r"])]),
            ],
        },
    )
    .encode()
    .to_vec()
}

/// Lists resources, spans and events with their attributes.
fn outline(batch: &Batch) -> String {
    let Decoded::Traces(request) = batch.clone().decoded().unwrap() else {
        panic!("no traces");
    };
    let mut lines = Vec::new();
    for entry in request.resource_spans {
        let resource = entry.resource.unwrap_or_default();
        lines.push(format!(
            "{} {}",
            entry.schema_url,
            shown(&resource.attributes)
        ));
        for scope in entry.scope_spans {
            let name = scope.scope.map(|scope| scope.name).unwrap_or_default();
            lines.push(format!(" {name}"));
            for span in scope.spans {
                let events = span
                    .events
                    .iter()
                    .map(|event| format!("+{}({})", event.name, shown(&event.attributes)));
                let events = events.collect::<String>();
                lines.push(format!(
                    "  {} {}{events}",
                    span.name,
                    shown(&span.attributes)
                ));
            }
        }
    }
    lines.join("\n")
}

#[test]
fn unchanged_batch_keeps_its_bytes() {
    let request = Bytes::from(traces());
    let yaml = "{trace_statements: ['set(span.name, \"new\") where span.name == \"none\"']}";
    let passes = passes(&config(yaml), Signal::Traces).unwrap();
    let transform = Transform {
        passes,
        budget: Budget::new(0),
        log: SampledLog::default(),
    };
    let batch = Batch::new(Signal::Traces, 3, request.clone());
    let after = transform.process(batch).unwrap().unwrap();
    assert_eq!(after.wire().to_bytes().as_ptr(), request.as_ptr());
}

#[test]
fn statements_change_items_and_their_levels() {
    for (statements, expected) in [
        (
            r#"['set(span.attributes["b"], resource.attributes["service.name"]) where span.name != "y"']"#,
            "schema service.name=shop\n \n  x a=x b=shop+p()+q()\n  y a=y\nschema service.name=db\n \n  z a=z b=db+r()",
        ),
        // A span changes its resource, and the next span sees the change.
        (
            r#"['set(resource.attributes["seen"], span.name) where resource.attributes["seen"] == nil', 'set(span.name, resource.attributes["seen"])']"#,
            "schema service.name=shop seen=x\n \n  x a=x+p()+q()\n  x a=y\nschema service.name=db seen=z\n \n  z a=z+r()",
        ),
        (
            r#"['set(spanevent.attributes["of"], span.name)', 'set(span.attributes["last"], spanevent.name)', 'set(scope.name, "s")']"#,
            "schema service.name=shop\n s\n  x a=x last=q+p(of=x)+q(of=x)\n  y a=y\nschema service.name=db\n s\n  z a=z last=r+r(of=z)",
        ),
        // Groups follow one another over all items.
        (
            r#"[{context: span, statements: ['set(resource.attributes["last"], name)']}, {context: span, statements: ['set(attributes["a"], resource.attributes["last"])']}]"#,
            "schema service.name=shop last=y\n \n  x a=y+p()+q()\n  y a=y\nschema service.name=db last=z\n \n  z a=z+r()",
        ),
        (
            r#"[{context: resource, conditions: ['attributes["service.name"] == "db"'], statements: ['set(schema_url, "")', 'delete_key(attributes, "service.name")']}]"#,
            "schema service.name=shop\n \n  x a=x+p()+q()\n  y a=y\n \n \n  z a=z+r()",
        ),
        // The cache lasts for one item and one group.
        (
            r#"['set(span.attributes["a"], span.cache["k"]) where span.cache["k"] != nil', 'set(span.cache["k"], "v")', 'set(span.attributes["b"], span.cache["k"]) where span.name == "y"']"#,
            "schema service.name=shop\n \n  x a=x+p()+q()\n  y a=y b=v\nschema service.name=db\n \n  z a=z+r()",
        ),
    ] {
        let yaml = format!("{{trace_statements: {statements}}}");
        assert_eq!(mistakes(&yaml), Vec::<String>::new(), "{statements}");
        let batch = transform(&yaml, Signal::Traces, &traces()).unwrap();
        assert_eq!(outline(&batch), expected, "{statements}");
    }
}

#[test]
fn unknown_fields_of_changed_items_survive() {
    let mut span = span("x", &[]).encode_to_vec();
    put_delimited(1000, b"later version", &mut span);
    let mut request = span;
    for number in [2, 2, 1] {
        let mut around = Vec::new();
        put_delimited(number, &request, &mut around);
        request = around;
    }
    let yaml = r#"{trace_statements: ['set(span.attributes["a"], 1)', 'delete_key(span.attributes, "none")', 'set(span.status.code, 2)']}"#;
    let batch = transform(yaml, Signal::Traces, &request).unwrap();
    let after = batch.wire().to_bytes();
    assert_ne!(after, request);
    let kept = after.windows(13).any(|bytes| bytes == b"later version");
    assert!(kept, "{after:?}");
}

#[test]
fn added_metrics_are_visited_and_counted() {
    let point = NumberDataPoint {
        attributes: vec![attribute("a", "x")],
        ..NumberDataPoint::default()
    };
    let metric = Metric {
        name: "m".to_owned(),
        data: Some(Data::Gauge(Gauge {
            data_points: vec![point.clone(), point],
        })),
        ..Metric::default()
    };
    let request = Decoded::Metrics(
        opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics {
                    metrics: vec![metric],
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        },
    )
    .encode();
    let yaml = r#"{metric_statements: [
        'copy_metric(name="copy") where metric.name == "m"',
        'set(metric.unit, "s") where metric.name == "copy"',
        {context: datapoint, statements: ['set(metric.description, Concat([metric.description, attributes["a"]], "."))', 'set(attributes["b"], metric.unit)']}
    ]}"#;
    assert!(!mistakes(yaml).is_empty(), "a group follows statements");
    let yaml = r#"{metric_statements: [
        {statements: ['copy_metric(name="copy") where metric.name == "m"', 'set(metric.unit, "s") where metric.name == "copy"']},
        {context: datapoint, statements: ['set(metric.description, Concat([metric.description, attributes["a"]], "."))', 'set(attributes["b"], metric.unit)']}
    ]}"#;
    let batch = transform(yaml, Signal::Metrics, &request).unwrap();
    assert_eq!(batch.items(), 4);
    let Decoded::Metrics(after) = batch.decoded().unwrap() else {
        panic!("no metrics");
    };
    let metrics = &after.resource_metrics[0].scope_metrics[0].metrics;
    let lines: Vec<String> = metrics
        .iter()
        .map(|metric| {
            let Some(Data::Gauge(gauge)) = &metric.data else {
                panic!("no gauge");
            };
            let points = gauge
                .data_points
                .iter()
                .map(|point| shown(&point.attributes));
            let points: Vec<String> = points.collect();
            format!(
                "{} {} {}: {}",
                metric.name,
                metric.unit,
                metric.description,
                points.join(", ")
            )
        })
        .collect();
    assert_eq!(
        lines,
        ["m  .x.x: a=x b=, a=x b=", "copy s .x.x: a=x b=s, a=x b=s"]
    );
}

#[test]
fn error_mode_decides_about_failed_statements() {
    let statements =
        r#"['set(span.attributes["n"], Int("x"))', 'set(span.attributes["b"], "after")']"#;
    for mode in ["ignore", "silent"] {
        let yaml = format!("{{error_mode: {mode}, trace_statements: {statements}}}");
        let batch = transform(&yaml, Signal::Traces, &traces()).unwrap();
        assert!(outline(&batch).contains("y a=y b=after"), "{mode}");
    }
    let yaml = format!("{{error_mode: propagate, trace_statements: {statements}}}");
    let refused = transform(&yaml, Signal::Traces, &traces()).unwrap_err();
    assert!(!refused.retryable, "{refused:?}");
}

#[test]
fn mistakes_name_the_cause() {
    for (yaml, expected) in [
        ("{flatten_data: true}", "is not supported"),
        (
            "{trace_statements: ['set(attributes[\"a\"], 1)']}",
            "character 5 of the statement: `attributes` has no context",
        ),
        (
            "{trace_statements: ['set(span.attributes[\"a\"], ParseXML(span.name))']}",
            "character 27 of the statement: the function ParseXML of the Collector is not built in",
        ),
        (
            "{log_statements: [{context: span, statements: ['set(name, \"x\")']}]}",
            "is not a context of logs",
        ),
        (
            "{metric_statements: [{context: exemplar, statements: []}]}",
            "the context exemplar is not built in",
        ),
        (
            "{metric_statements: ['convert_sum_to_gauge() where datapoint.count == 1']}",
            "convert_sum_to_gauge needs the context metric, not datapoint",
        ),
        (
            "{log_statements: [{context: log, statements: ['limit(attributes, 1, [\"a\", \"b\"])']}]}",
            "more priority keys than the limit",
        ),
        (
            "{trace_statements: [{context: span, statements: ['set(resource.cache[\"a\"], 1)']}]}",
            "only the cache of its own context",
        ),
        (
            "{trace_statements: [{context: span, conditions: ['name = 1'], statements: ['set(name, \"a\")']}]}",
            "character 6 of the condition: a single `=`",
        ),
    ] {
        let found = mistakes(yaml);
        assert!(
            found.iter().any(|message| message.contains(expected)),
            "{yaml}: {found:?}"
        );
    }
}

#[test]
fn profile_writes_append_to_the_dictionary() {
    let request = named("shop", 1, ["main"]).encode_to_vec();
    let yaml = r#"{profile_statements: ['set(profile.attributes["team"], "core")', 'set(profile.period, 7)', 'set(resource.attributes["env"], "prod")']}"#;
    let batch = transform(yaml, Signal::Profiles, &request).unwrap();
    let before = named("shop", 1, ["main"]).dictionary.unwrap();
    let Decoded::Profiles(after) = batch.decoded().unwrap() else {
        panic!("no profiles");
    };
    let findings = |request| tributary_profiles::check::check(request).counts().clone();
    assert_eq!(findings(&after), findings(&named("shop", 1, ["main"])));
    let dictionary = after.dictionary.as_ref().unwrap();
    let count = before.attribute_table.len();
    assert_eq!(dictionary.attribute_table[..count], before.attribute_table);
    let entry = &after.resource_profiles[0];
    let resource = entry.resource.as_ref().unwrap();
    assert!(shown(&resource.attributes).ends_with("env=prod"));
    let profile = &entry.scope_profiles[0].profiles[0];
    assert_eq!(profile.period, 7);
    let index = *profile.attribute_indices.last().unwrap();
    let attribute = &dictionary.attribute_table[usize::try_from(index).unwrap()];
    let key = usize::try_from(attribute.key_strindex).unwrap();
    assert_eq!(dictionary.string_table[key], "team");
}

#[test]
fn growth_beyond_the_budget_is_refused() {
    let yaml = r#"{trace_statements: ['set(span.name, Concat([span.name, span.name, span.name, span.name], ""))']}"#;
    // Outputs may exceed the limit by 8 MiB.
    let mut request = traces();
    let more = span(&"n".repeat(4_000_000), &[]);
    let more = ResourceSpans {
        scope_spans: vec![ScopeSpans {
            spans: vec![more],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    put_delimited(1, &more.encode_to_vec(), &mut request);
    let transform = Transform {
        passes: passes(&config(yaml), Signal::Traces).unwrap(),
        budget: Budget::new(300_000),
        log: SampledLog::default(),
    };
    let refused = transform.process(Batch::new(Signal::Traces, 4, Bytes::from(request)));
    assert!(refused.is_err());
}

#[test]
fn profiles_without_entries_get_valid_dictionaries() {
    use opentelemetry_proto::tonic::profiles::v1development::{
        KeyValueAndUnit, Profile, ProfilesDictionary,
    };
    let yaml = r#"{profile_statements: ['set(profile.attributes["team"], "core")']}"#;
    for dictionary in [None, Some(ProfilesDictionary::default())] {
        let mut request = named("shop", 1, ["main"]);
        request.dictionary = dictionary;
        let entry = &mut request.resource_profiles[0];
        entry.resource = None;
        entry.scope_profiles[0].scope = None;
        entry.scope_profiles[0].profiles = vec![Profile::default()];
        let batch = transform(yaml, Signal::Profiles, &request.encode_to_vec()).unwrap();
        let Decoded::Profiles(after) = batch.decoded().unwrap() else {
            panic!("no profiles");
        };
        let dictionary = after.dictionary.unwrap();
        assert_eq!(dictionary.string_table, ["", "team"]);
        let [zero, team] = dictionary.attribute_table.as_slice() else {
            panic!("{dictionary:?}");
        };
        assert_eq!(*zero, KeyValueAndUnit::default());
        assert_eq!(team.key_strindex, 1);
        let profile = &after.resource_profiles[0].scope_profiles[0].profiles[0];
        assert_eq!(profile.attribute_indices, [1]);
    }
}

#[test]
fn memory_of_a_pass_is_free_for_the_next_one() {
    let groups = (0..12).map(|at| {
        let set = |context: &str| format!(r#"set({context}.attributes["k"], "{at}")"#);
        format!("{{statements: ['{}', '{}']}}", set("span"), set("resource"))
    });
    let groups: Vec<String> = groups.collect();
    let yaml = format!("{{trace_statements: [{}]}}", groups.join(", "));
    let request = Decoded::Traces(
        opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                scope_spans: vec![ScopeSpans {
                    spans: vec![span(&"n".repeat(500_000), &[])],
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        },
    )
    .encode();
    let transform = Transform {
        passes: passes(&config(&yaml), Signal::Traces).unwrap(),
        budget: Budget::new(300_000),
        log: SampledLog::default(),
    };
    assert_eq!(transform.passes.len(), 12);
    let batch = transform.process(Batch::new(Signal::Traces, 1, request));
    let batch = batch.unwrap().unwrap();
    assert!(outline(&batch).ends_with("k=11"));
    assert_eq!(transform.budget.used(), batch.wire().to_bytes().len());
}

#[test]
fn decoded_metrics_take_memory() {
    let points = vec![NumberDataPoint::default(); 200_000];
    let request = Decoded::Metrics(
        opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics {
                    metrics: vec![Metric {
                        data: Some(Data::Gauge(Gauge {
                            data_points: points,
                        })),
                        ..Metric::default()
                    }],
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        },
    )
    .encode();
    for (statement, is_refused) in [
        ("convert_gauge_to_sum(\"delta\", true)", true),
        ("convert_sum_to_gauge()", false),
    ] {
        let yaml =
            format!("{{metric_statements: [{{context: metric, statements: ['{statement}']}}]}}");
        let transform = Transform {
            passes: passes(&config(&yaml), Signal::Metrics).unwrap(),
            budget: Budget::new(1 << 20),
            log: SampledLog::default(),
        };
        let batch = Batch::new(Signal::Metrics, 200_000, request.clone());
        assert_eq!(transform.process(batch).is_err(), is_refused, "{statement}");
        assert_eq!(transform.budget.used(), 0, "{statement}");
    }
}
