//! Partial evaluation of conditions: the parts about a resource, scope or item are evaluated once for everything
//! inside.
//!
//! A resource may have a megabyte of attributes and a million log records. Searching the attributes for each record
//! would take hours. Therefore the tests on the current resource are replaced by their results, and likewise the tests
//! on scopes. Tests on spans and metrics are replaced if there are conditions for events, links or data points.

use super::path::{Depth, Field, Key, Path};
use super::value::{Undecided, Value, put_value};
use super::{Call, Condition, EvaluationTarget, Operand, Test};

/// Returns the conditions for the parts inside the current part. Returns `None` if no condition depends on the current
/// part.
pub fn within(
    conditions: &[Condition],
    depth: Depth,
    here: &EvaluationTarget<'_>,
) -> Option<Vec<Condition>> {
    let known = conditions.iter();
    let known: Vec<_> = known
        .map(|condition| condition.within(depth, here))
        .collect();
    let any = known.iter().any(Option::is_some);
    any.then(|| {
        let all = known.into_iter().zip(conditions);
        all.map(|(known, condition)| known.unwrap_or_else(|| condition.clone()))
            .collect()
    })
}

impl Condition {
    /// Returns the condition for the parts inside the current part at this depth. Returns `None` if the condition does
    /// not depend on the current part. The enclosing parts must have been evaluated before.
    pub fn within(&self, depth: Depth, here: &EvaluationTarget<'_>) -> Option<Condition> {
        let depends_on = self.context.depth() > depth && self.test.depends_on(depth);
        depends_on.then(|| Condition {
            context: self.context,
            test: self.test.within(depth, here),
            text: self.text.clone(),
        })
    }
}

impl Test {
    /// Whether the test depends on a part at this depth or above.
    pub(super) fn depends_on(&self, depth: Depth) -> bool {
        self.any_depth(&|other| other <= depth)
    }

    fn depends_below(&self, depth: Depth) -> bool {
        self.any_depth(&|other| other > depth)
    }

    fn any_depth(&self, is: &dyn Fn(Depth) -> bool) -> bool {
        match self {
            Test::Constant(_) | Test::Undecided(_) => false,
            Test::Not(test) => test.any_depth(is),
            Test::All(tests) | Test::Any(tests) => tests.iter().any(|test| test.any_depth(is)),
            Test::Compare(left, _, right) => left.any_depth(is) || right.any_depth(is),
            Test::Truth(operand) => operand.any_depth(is),
        }
    }

    /// Returns the test for the parts inside the current part.
    pub(super) fn within(&self, depth: Depth, here: &EvaluationTarget<'_>) -> Test {
        if !self.depends_on(depth) {
            return self.clone();
        }
        if !self.depends_below(depth) {
            return match self.eval(here) {
                Ok(answer) => Test::Constant(answer),
                Err(why) => Test::Undecided(why),
            };
        }
        let all = |tests: &[Test]| tests.iter().map(|test| test.within(depth, here)).collect();
        let operand = |operand: &Operand| operand.within(depth, here);
        match self {
            Test::Not(test) => Test::Not(Box::new(test.within(depth, here))),
            Test::All(tests) => Test::All(all(tests)),
            Test::Any(tests) => Test::Any(all(tests)),
            Test::Compare(left, comparison, right) => {
                Test::Compare(operand(left), *comparison, operand(right))
            }
            Test::Truth(call) => Test::Truth(operand(call)),
            Test::Constant(_) | Test::Undecided(_) => self.clone(),
        }
    }
}

impl Operand {
    /// Whether the value depends on a part at this depth or above.
    pub(super) fn depends_on(&self, depth: Depth) -> bool {
        self.any_depth(&|other| other <= depth)
    }

    fn depends_below(&self, depth: Depth) -> bool {
        self.any_depth(&|other| other > depth)
    }

    fn any_depth(&self, is: &dyn Fn(Depth) -> bool) -> bool {
        let any = |operands: &[Operand]| operands.iter().any(|operand| operand.any_depth(is));
        match self {
            Operand::Path(path) => {
                // The cache changes with every item.
                let depth = match path.field {
                    Field::Cache => Depth::Inner,
                    _ => path.context.depth(),
                };
                is(depth) || keys_any_depth(&path.keys, is)
            }
            Operand::List(values) | Operand::Coalesce(values) => any(values),
            Operand::Map(entries) => entries.iter().any(|(_, value)| value.any_depth(is)),
            Operand::Call(call) => {
                let mut arguments = call.arguments.iter().flatten();
                // Without a context, a function that is not pure has another result for each item.
                let depth = match call.function.reads {
                    Some(context) => Some(context.depth()),
                    None => (!call.function.is_pure).then_some(Depth::Inner),
                };
                depth.is_some_and(is)
                    || arguments.any(|argument| argument.any_depth(is))
                    || keys_any_depth(&call.keys, is)
            }
            Operand::Math(first, rest) => {
                first.any_depth(is) || rest.iter().any(|(_, operand)| operand.any_depth(is))
            }
            Operand::Nil
            | Operand::Undecided(_)
            | Operand::Bool(_)
            | Operand::Int(_)
            | Operand::Double(_)
            | Operand::Text(_)
            | Operand::Bytes(_)
            | Operand::Id(_)
            | Operand::Time(_)
            | Operand::Duration(_)
            | Operand::Encoded(_)
            | Operand::Pattern(_)
            | Operand::Function(_) => false,
        }
    }

    /// Returns the operand for the parts inside the current part.
    pub(super) fn within(&self, depth: Depth, here: &EvaluationTarget<'_>) -> Operand {
        let all = |operands: &[Operand]| {
            let operands = operands.iter();
            operands
                .map(|operand| operand.within(depth, here))
                .collect()
        };
        match self {
            _ if !self.depends_on(depth) => self.clone(),
            _ if !self.depends_below(depth) => Operand::of(self.value(here)),
            Operand::Math(first, rest) => {
                let rest = rest.iter();
                let rest = rest.map(|(operator, operand)| (*operator, operand.within(depth, here)));
                Operand::Math(Box::new(first.within(depth, here)), rest.collect())
            }
            Operand::List(values) => Operand::List(all(values)),
            Operand::Coalesce(values) => Operand::Coalesce(all(values)),
            Operand::Map(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|(key, value)| (key.clone(), value.within(depth, here)));
                Operand::Map(entries.collect())
            }
            Operand::Call(call) => {
                let arguments = call.arguments.iter();
                let arguments = arguments
                    .map(|argument| argument.as_ref().map(|value| value.within(depth, here)));
                Operand::Call(Box::new(Call {
                    function: call.function,
                    arguments: arguments.collect(),
                    keys: keys_within(&call.keys, depth, here),
                }))
            }
            Operand::Path(path) => Operand::Path(Path {
                keys: keys_within(&path.keys, depth, here),
                ..path.clone()
            }),
            other => other.clone(),
        }
    }

    /// Converts a final value to an operand.
    pub(super) fn of(value: Result<Value<'_>, Undecided>) -> Operand {
        match value {
            Err(why) => Operand::Undecided(why),
            Ok(Value::Nil) => Operand::Nil,
            Ok(Value::Bool(value)) => Operand::Bool(value),
            Ok(Value::Int(value)) => Operand::Int(value),
            Ok(Value::Double(value)) => Operand::Double(value),
            Ok(Value::Time(time)) => Operand::Time(time),
            Ok(Value::Duration(duration)) => Operand::Duration(duration),
            Ok(Value::Text(text)) => Operand::Text(text.into()),
            Ok(Value::Bytes(bytes)) => Operand::Bytes(bytes.into()),
            Ok(Value::Id(id)) => Operand::Id(id.into()),
            Ok(Value::Pattern(_) | Value::Messages(_)) => Operand::Undecided(Undecided::WrongType),
            // Elements such as times have no encoding.
            Ok(Value::List(values)) => {
                let values = values.into_iter();
                Operand::List(values.map(|value| Operand::of(Ok(value))).collect())
            }
            Ok(Value::Map(entries)) => {
                let entries = entries.into_iter();
                let entries = entries.map(|(key, value)| (key.into(), Operand::of(Ok(value))));
                Operand::Map(entries.collect())
            }
            Ok(value @ Value::Encoded(_)) => {
                let mut encoded = Vec::new();
                match put_value(&value, &mut encoded) {
                    Ok(()) => Operand::Encoded(encoded.into()),
                    Err(why) => Operand::Undecided(why),
                }
            }
        }
    }
}

fn keys_any_depth(keys: &[Key], is: &dyn Fn(Depth) -> bool) -> bool {
    keys.iter().any(|key| match key {
        Key::Computed(operand) => operand.any_depth(is),
        Key::Name(_) | Key::Position(_) => false,
    })
}

fn keys_within(keys: &[Key], depth: Depth, here: &EvaluationTarget<'_>) -> Vec<Key> {
    let keys = keys.iter().map(|key| match key {
        Key::Computed(operand) => Key::Computed(Box::new(operand.within(depth, here))),
        key => key.clone(),
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    use opentelemetry_proto::tonic::common::v1::{
        AnyValue, ArrayValue, InstrumentationScope, KeyValue,
    };
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::span::Event;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message as _;

    use super::super::parse;
    use super::*;
    use tributary_otlp::Signal;
    use tributary_otlp::view::Message;

    fn attribute(key: &str, value: Any) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            key_strindex: 0,
        }
    }

    fn text(key: &str, value: &str) -> KeyValue {
        attribute(key, Any::StringValue(value.to_owned()))
    }

    fn list(key: &str) -> KeyValue {
        let value = |number| AnyValue {
            value: Some(Any::IntValue(number)),
        };
        let values = vec![value(1), value(2)];
        attribute(key, Any::ArrayValue(ArrayValue { values }))
    }

    /// Conditions that are true, false and undecided about all parts around a span event.
    const CONDITIONS: [&str; 28] = [
        r#"resource.attributes["service.name"] == "a" and spanevent.name == "retry""#,
        r#"resource.attributes["service.name"] == "b" or spanevent.name == "retry""#,
        r#"spanevent.name == "other" and resource.attributes["list"][7] == 1"#,
        r#"spanevent.name == "retry" and resource.attributes["list"][7] == 1"#,
        r#"resource.attributes["list"][7] == 1 or spanevent.name == "retry""#,
        r#"not (resource.attributes["list"] == spanevent.attributes["list"])"#,
        r#"resource.attributes["list"] == scope.attributes["list"] and spanevent.name == "retry""#,
        r#"span.attributes["list"] == spanevent.attributes["list"]"#,
        r#"resource.attributes["service.name"] == spanevent.attributes["service"]"#,
        r#"resource.attributes["none"] == spanevent.attributes["none"]"#,
        r#"HasPrefix(spanevent.name, resource.attributes["prefix"])"#,
        r#"HasSuffix(spanevent.name, scope.name)"#,
        r#"HasPrefix(resource.attributes["list"], spanevent.name)"#,
        r#"IsMatch(scope.version, "^1") and IsMatch(spanevent.name, "^re")"#,
        r#"Len(resource.attributes["list"]) == 2 and spanevent.name == "retry""#,
        r#"Len(resource.attributes["list"]) + spanevent.attributes["n"] == 5"#,
        r#"resource.attributes["n"] / (spanevent.attributes["n"] - 3) == 1"#,
        r#"span.kind == SPAN_KIND_SERVER and spanevent.name == "retry""#,
        r#"spanevent.time - span.start_time >= Duration("1ns")"#,
        r#"span.trace_id == TraceID(0x00000000000000000000000000000001) and spanevent.name == "x""#,
        r#"span.span_id != spanevent.attributes["list"]"#,
        r#"scope.dropped_attributes_count < spanevent.attributes["n"]"#,
        r#"ContainsValue(resource.attributes["list"], spanevent.attributes["n"] - 1)"#,
        r#"ContainsValue(resource.attributes["n"], spanevent.name)"#,
        r#"IsList(resource.attributes["list"]) and spanevent.name == "retry""#,
        r#"IsMatch(scope.version, "^1") == IsString(spanevent.name)"#,
        r#"Concat([resource.attributes["prefix"], scope.name], "") == spanevent.name"#,
        r#"Concat([resource.attributes["list"], spanevent.name], "-") == "[1,2]-retry""#,
    ];

    #[test]
    fn enclosing_levels_are_evaluated_once() {
        let event = Event {
            time_unix_nano: 9,
            name: "retry".to_owned(),
            attributes: vec![
                text("service", "a"),
                list("list"),
                attribute("n", Any::IntValue(3)),
            ],
            ..Event::default()
        };
        let span = Span {
            trace_id: 1_u128.to_be_bytes().into(),
            start_time_unix_nano: 4,
            kind: 2,
            attributes: vec![list("list")],
            ..Span::default()
        };
        let resource = ResourceSpans {
            resource: Some(Resource {
                attributes: vec![
                    text("service.name", "a"),
                    text("prefix", "re"),
                    list("list"),
                    attribute("n", Any::IntValue(3)),
                ],
                ..Resource::default()
            }),
            ..ResourceSpans::default()
        };
        let scope = ScopeSpans {
            scope: Some(InstrumentationScope {
                name: "try".to_owned(),
                version: "1.2".to_owned(),
                attributes: vec![list("list")],
                ..InstrumentationScope::default()
            }),
            ..ScopeSpans::default()
        };
        let (resource, scope) = (resource.encode_to_vec(), scope.encode_to_vec());
        let (span, event) = (span.encode_to_vec(), event.encode_to_vec());
        let around = EvaluationTarget {
            resource: Message::new(&resource),
            scope: Message::new(&scope),
            item: Message::new(&span),
            ..EvaluationTarget::default()
        };
        // Without enclosing levels, no test can be evaluated in advance.
        let event = EvaluationTarget {
            inner: Message::new(&event),
            ..EvaluationTarget::default()
        };
        let mut outcomes = Vec::new();
        for text in CONDITIONS {
            let condition = parse(text, Signal::Traces, None).unwrap();
            let whole = EvaluationTarget {
                inner: event.inner,
                ..around
            };
            let expected = condition.is_true(&whole);
            let mut known = condition;
            for depth in [Depth::Resource, Depth::Scope, Depth::Item] {
                known = known.within(depth, &around).unwrap_or(known);
                assert!(!known.test.depends_on(depth), "{text}: {known:?}");
                assert!(known.within(depth, &around).is_none(), "{text}");
            }
            assert_eq!(known.is_true(&event), expected, "{text}");
            outcomes.push(expected);
        }
        assert!(outcomes.contains(&Ok(true)) && outcomes.contains(&Ok(false)));
        assert!(outcomes.iter().any(Result::is_err));
    }

    #[test]
    fn impure_functions_are_evaluated_for_each_item() {
        for call in [
            "UUID()",
            "UUIDv7()",
            "Concat([resource.schema_url, UUID()], \"\")",
        ] {
            let text = format!("set(span.name, {call})");
            let statement = crate::parse_statement(&text, Signal::Traces, None).unwrap();
            let here = EvaluationTarget::default();
            let known = statement.within(Depth::Resource, &here);
            let known = known.unwrap_or(statement);
            let (first, second) = (known.execute(&here), known.execute(&here));
            assert_ne!(first, second, "{call}");
        }
    }
}
