use crate::path::Context;
use crate::{Condition, ParseError, parse, parse_statement, parse_statement_condition};
use tributary_otlp::Signal;

fn spans(text: &str) -> Result<Condition, ParseError> {
    parse(text, Signal::Traces, None)
}

#[test]
fn is_root_span_needs_spans_in_any_order() {
    for text in [
        "resource.schema_url == \"\" and IsRootSpan()",
        "IsRootSpan() and resource.schema_url == \"\"",
    ] {
        assert_eq!(spans(text).unwrap().context, Context::Span, "{text}");
    }
    for text in [
        "spanevent.name == \"\" and IsRootSpan()",
        "IsRootSpan() and spanevent.name == \"\"",
    ] {
        assert!(spans(text).is_err(), "{text}");
    }
}

#[test]
fn data_point_functions_belong_to_filters() {
    let text = "HasAttrKeyOnDatapoint(\"a\")";
    assert!(parse(text, Signal::Metrics, None).is_ok());
    assert!(parse_statement_condition(text, Signal::Metrics, None).is_err());
    let statement = format!("set(metric.name, \"b\") where {text}");
    assert!(parse_statement(&statement, Signal::Metrics, None).is_err());
}

#[test]
fn trace_state_has_one_key() {
    assert!(spans("span.trace_state[span.name] == \"\"").is_ok());
    assert!(spans("span.trace_state[\"a\"][\"b\"] == \"\"").is_err());
}
