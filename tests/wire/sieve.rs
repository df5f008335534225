//! Properties of the filter and the sampler for every request: they keep the same items as a filter of the decoded
//! request, and keep them unchanged.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tributary::component::{BuildContext, ProcessorConfig, Stage};
use tributary::pipeline::Processor;
use tributary::pipeline::batch::Batch;
use tributary::processors::{filter, probabilistic_sampler};
use tributary_config::{Problems, Validate as _};
use tributary_memory::Budget;
use tributary_otlp::{Decoded, Signal};

use crate::oracle::items;

pub(crate) fn processor(config: &dyn ProcessorConfig, signal: Signal) -> Box<dyn Processor> {
    let context = BuildContext {
        id: "processor".parse().unwrap(),
        budget: Budget::new(1 << 30),
        listeners: Default::default(),
        stored_queues: Default::default(),
        profile_stores: Default::default(),
        introspection: Default::default(),
        health: Arc::default(),
        extensions: Default::default(),
        pipeline: String::new(),
    };
    match config.build(&context, signal).unwrap() {
        Stage::Pure(processor) => processor,
        Stage::Buffering(_) => panic!("it holds nothing"),
    }
}

/// A condition that can be judged from the outside too.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    /// `resource.attributes["key"] == number`, or of the scope, or of items.
    Attribute(Level, &'static str, Literal),
    /// Items by name (records by severity text).
    Name(&'static str),
    /// `attributes["key"] + number == number` of the resource, which cannot be evaluated for values that are not
    /// numbers.
    Sum(&'static str, i64, i64),
    /// Items by the beginning of their name.
    Prefix(&'static str),
    Not(Box<Condition>),
    Both(Box<Condition>, Box<Condition>),
    Either(Box<Condition>, Box<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Resource,
    Scope,
    Item,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Literal {
    Nil,
    Int(i64),
    Text(&'static str),
}

impl Condition {
    fn text(&self, signal: Signal) -> String {
        let item = match signal {
            Signal::Traces => "span",
            Signal::Metrics => "metric",
            _ => "log",
        };
        match self {
            Condition::Attribute(level, key, literal) => {
                let level = match level {
                    Level::Resource => "resource",
                    Level::Scope => "scope",
                    Level::Item => item,
                };
                let literal = match literal {
                    Literal::Nil => "nil".to_owned(),
                    Literal::Int(number) => number.to_string(),
                    Literal::Text(text) => format!("\"{text}\""),
                };
                format!("{level}.attributes[\"{key}\"] == {literal}")
            }
            Condition::Name(_) | Condition::Prefix(_) => {
                let field = if signal == Signal::Logs {
                    "severity_text"
                } else {
                    "name"
                };
                match self {
                    Condition::Prefix(prefix) => format!("HasPrefix({item}.{field}, \"{prefix}\")"),
                    Condition::Name(name) => format!("{item}.{field} == \"{name}\""),
                    _ => unreachable!(),
                }
            }
            Condition::Sum(key, plus, sum) => {
                format!("resource.attributes[\"{key}\"] + {plus} == {sum}")
            }
            Condition::Not(condition) => format!("not ({})", condition.text(signal)),
            Condition::Both(a, b) => format!("({}) and ({})", a.text(signal), b.text(signal)),
            Condition::Either(a, b) => format!("({}) or ({})", a.text(signal), b.text(signal)),
        }
    }

    /// The same condition for this signal. Metrics have no attributes.
    fn about(self, signal: Signal) -> Self {
        match self {
            Condition::Attribute(Level::Item, key, _) if signal == Signal::Metrics => {
                Condition::Name(key)
            }
            Condition::Not(condition) => Condition::Not(Box::new(condition.about(signal))),
            Condition::Both(a, b) => {
                Condition::Both(Box::new(a.about(signal)), Box::new(b.about(signal)))
            }
            Condition::Either(a, b) => {
                Condition::Either(Box::new(a.about(signal)), Box::new(b.about(signal)))
            }
            plain => plain,
        }
    }

    /// Returns the level at which the condition is evaluated: the deepest level that the condition refers to.
    fn level(&self) -> Level {
        match self {
            Condition::Attribute(level, ..) => *level,
            Condition::Sum(..) => Level::Resource,
            Condition::Name(_) | Condition::Prefix(_) => Level::Item,
            Condition::Not(condition) => condition.level(),
            Condition::Both(a, b) | Condition::Either(a, b) => a.level().max(b.level()),
        }
    }

    fn is_true(&self, about: &About<'_>) -> bool {
        self.decided(about) == Some(true)
    }

    /// Returns `None` for a condition that cannot be evaluated. The filter then keeps the item and its enclosing
    /// levels.
    fn decided(&self, about: &About<'_>) -> Option<bool> {
        Some(match self {
            Condition::Attribute(level, key, literal) => {
                let attributes = match level {
                    Level::Resource => about.resource,
                    Level::Scope => about.scope,
                    Level::Item => about.item,
                };
                literal.equals(attributes, key)
            }
            Condition::Name(name) => about.name == *name,
            Condition::Prefix(prefix) => about.name.starts_with(prefix),
            Condition::Sum(key, plus, sum) => {
                let found = about
                    .resource
                    .iter()
                    .find(|attribute| attribute.key == *key)?;
                match found.value.as_ref()?.value.as_ref()? {
                    Value::IntValue(value) => value.wrapping_add(*plus) == *sum,
                    Value::DoubleValue(value) => value + *plus as f64 == *sum as f64,
                    _ => return None,
                }
            }
            Condition::Not(condition) => !condition.decided(about)?,
            Condition::Both(a, b) => a.decided(about)? && b.decided(about)?,
            Condition::Either(a, b) => a.decided(about)? || b.decided(about)?,
        })
    }
}

impl Literal {
    fn equals(self, attributes: &[KeyValue], key: &str) -> bool {
        let found = attributes.iter().find(|attribute| attribute.key == key);
        let value = found.and_then(|found| found.value.as_ref());
        match (
            self,
            value.and_then(|value: &AnyValue| value.value.as_ref()),
        ) {
            // References to a dictionary have a meaning only in profiles.
            (Literal::Nil, None | Some(Value::StringValueStrindex(_))) => true,
            (Literal::Int(number), Some(Value::IntValue(value))) => number == *value,
            (Literal::Int(number), Some(Value::DoubleValue(value))) => number as f64 == *value,
            (Literal::Text(text), Some(Value::StringValue(value))) => text == value,
            _ => false,
        }
    }
}

/// Values that conditions refer to.
#[derive(Clone, Copy, Default)]
struct About<'a> {
    resource: &'a [KeyValue],
    scope: &'a [KeyValue],
    item: &'a [KeyValue],
    name: &'a str,
}

/// Removes items from a decoded request, and then the scopes and resources that become empty.
macro_rules! retain {
    ($entries:expr, $scopes:ident, $items:ident, $above:expr, $item:expr) => {
        $entries.retain_mut(|entry| {
            let resource = of_resource(&entry.resource);
            let about = About {
                resource,
                ..About::default()
            };
            if !$above(Level::Resource, &about) {
                return false;
            }
            let any = !entry.$scopes.is_empty();
            entry.$scopes.retain_mut(|scope| {
                let about = About {
                    scope: of_scope(&scope.scope),
                    ..about
                };
                if !$above(Level::Scope, &about) {
                    return false;
                }
                let any = !scope.$items.is_empty();
                scope.$items.retain_mut(|item| $item(about, item));
                !any || !scope.$items.is_empty()
            });
            !any || !entry.$scopes.is_empty()
        })
    };
}

fn of_resource(resource: &Option<Resource>) -> &[KeyValue] {
    resource
        .as_ref()
        .map_or(&[], |resource| &resource.attributes)
}

fn of_scope(scope: &Option<InstrumentationScope>) -> &[KeyValue] {
    scope.as_ref().map_or(&[], |scope| &scope.attributes)
}

fn filter_decoded(request: &mut Decoded, condition: &Condition) {
    let level = condition.level();
    let above = |at, about: &About<'_>| at != level || !condition.is_true(about);
    let stays = |about: &About<'_>| above(Level::Item, about);
    match request {
        Decoded::Traces(request) => retain!(
            request.resource_spans,
            scope_spans,
            spans,
            above,
            |about, span: &mut Span| stays(&About {
                item: &span.attributes,
                name: &span.name,
                ..about
            })
        ),
        Decoded::Metrics(request) => retain!(
            request.resource_metrics,
            scope_metrics,
            metrics,
            above,
            |about, metric: &mut Metric| stays(&About {
                name: &metric.name,
                ..about
            })
        ),
        Decoded::Logs(request) => retain!(
            request.resource_logs,
            scope_logs,
            log_records,
            above,
            |about, record: &mut LogRecord| stays(&About {
                item: &record.attributes,
                name: &record.severity_text,
                ..about
            })
        ),
        Decoded::Profiles(_) => {}
    }
}

/// Creates the filter with one condition; returns the error of an invalid condition.
pub(crate) fn filter(condition: &str, signal: Signal) -> Result<Box<dyn Processor>, Problems> {
    let conditions = vec![filter::ConditionEntry::Text(condition.to_owned())];
    let mut config = filter::Config {
        error_mode: filter::ErrorMode::Silent,
        ..filter::Config::default()
    };
    *match signal {
        Signal::Traces => &mut config.trace_conditions,
        Signal::Metrics => &mut config.metric_conditions,
        Signal::Logs => &mut config.log_conditions,
        Signal::Profiles => &mut config.profile_conditions,
    } = conditions;
    let mut problems = Problems::default();
    config.validate(&mut problems);
    match problems.found() {
        [] => Ok(processor(&config, signal)),
        _ => Err(problems),
    }
}

/// Processes a request in the form in which receivers pass it on: repeated singular messages are merged.
fn process(processor: &dyn Processor, signal: Signal, request: &[u8]) -> Option<Batch> {
    let items = tributary_otlp::count(signal, request);
    let request = tributary_otlp::merge_repeated(signal, request).unwrap();
    let batch = Batch::new(signal, items, request);
    processor.process(batch).unwrap()
}

/// Asserts that the filter keeps the same items as a filter of the decoded request. Not for profiles.
pub(crate) fn filters_like_prost(signal: Signal, request: &[u8], condition: Condition) {
    let condition = condition.about(signal);
    let mut expected = Decoded::decode(signal, request).unwrap();
    filter_decoded(&mut expected, &condition);
    let filter = filter(&condition.text(signal), signal).unwrap();
    is_left(process(&*filter, signal, request), signal, &expected);
}

/// Asserts that each item is sampled as if it were alone, and that sampling again changes nothing. For spans and log
/// records.
pub(crate) fn samples_each_alike(
    signal: Signal,
    request: &[u8],
    config: &probabilistic_sampler::Config,
) {
    let sampler = processor(config, signal);
    let mut expected = Decoded::decode(signal, request).unwrap();
    sample_decoded(&mut expected, &*sampler);
    let once = process(&*sampler, signal, request);
    is_left(once.clone(), signal, &expected);
    if let Some(once) = once {
        let once = once.into_wire().to_bytes();
        let twice = process(&*sampler, signal, &once);
        // Decoded, because the order of fields may change.
        is_left(twice, signal, &Decoded::decode(signal, &once).unwrap());
    }
}

/// Asserts that no item is dropped both by a condition and by its opposite, and that both are valid or neither is.
pub(crate) fn opposites_do_not_meet(condition: &str, signal: Signal, request: &[u8]) {
    let Ok(one) = filter(condition, signal) else {
        return;
    };
    let Ok(other) = filter(&format!("not ({condition})"), signal) else {
        return;
    };
    let total = tributary_otlp::count(signal, request);
    let left = |filter: &dyn Processor| {
        process(filter, signal, request).map_or(0, |left| {
            let count = left.items();
            assert_eq!(
                tributary_otlp::validate(signal, &left.into_wire().to_bytes()),
                Ok(count)
            );
            count
        })
    };
    assert!(left(&*one) + left(&*other) >= total, "{condition}");
}

/// Asserts that the rest of the request is valid, has the right count, and equals the expected request.
fn is_left(left: Option<Batch>, signal: Signal, expected: &Decoded) {
    let Some(left) = left else {
        // An empty request may be dropped.
        assert_eq!(items(expected), 0, "nothing is left of {expected:?}");
        return;
    };
    let count = left.items();
    let left = left.into_wire().to_bytes();
    assert_eq!(tributary_otlp::validate(signal, &left), Ok(count));
    assert_eq!(count, items(expected));
    let left = Decoded::decode(signal, &left).unwrap();
    // Debug output, because NaN is not equal to itself.
    assert_eq!(format!("{left:?}"), format!("{expected:?}"));
}

/// The sampler on one span, or one record.
macro_rules! sample_one {
    ($sampler:expr, $item:expr, $signal:ident, $request:ident, $entries:ident, $entry:ident, $scopes:ident,
     $scope:ident, $items:ident) => {{
        let scope = $scope {
            $items: vec![$item.clone()],
            ..$scope::default()
        };
        let entry = $entry {
            $scopes: vec![scope],
            ..$entry::default()
        };
        let request = $request {
            $entries: vec![entry],
        };
        let bytes = Bytes::from(request.encode_to_vec());
        let left = $sampler.process(Batch::new(Signal::$signal, 1, bytes));
        left.unwrap().map(|left| {
            let left = $request::decode(left.into_wire().to_bytes()).unwrap();
            left.$entries[0].$scopes[0].$items[0].clone()
        })
    }};
}

fn sample_decoded(request: &mut Decoded, sampler: &dyn Processor) {
    let above = |_, _: &About<'_>| true;
    match request {
        Decoded::Traces(request) => retain!(
            request.resource_spans,
            scope_spans,
            spans,
            above,
            |_, span: &mut Span| {
                let left = sample_one!(
                    sampler,
                    span,
                    Traces,
                    ExportTraceServiceRequest,
                    resource_spans,
                    ResourceSpans,
                    scope_spans,
                    ScopeSpans,
                    spans
                );
                left.map(|left| *span = left).is_some()
            }
        ),
        Decoded::Logs(request) => retain!(
            request.resource_logs,
            scope_logs,
            log_records,
            above,
            |_, record: &mut LogRecord| {
                let left = sample_one!(
                    sampler,
                    record,
                    Logs,
                    ExportLogsServiceRequest,
                    resource_logs,
                    ResourceLogs,
                    scope_logs,
                    ScopeLogs,
                    log_records
                );
                left.map(|left| *record = left).is_some()
            }
        ),
        _ => {}
    }
}
