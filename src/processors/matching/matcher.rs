//! Matches encoded telemetry against properties.

use std::borrow::Cow;

use regex::RegexSet;

use super::config::{KINDS, LibraryConfig, MatchAttribute, MatchConfig, MatchType};
use super::literal::Literal;
use crate::component::BuildError;
use tributary_config::re2;
use tributary_otlp::Signal;
use tributary_otlp::attributes::AttributeSelector;
use tributary_otlp::view::{
    AnyValue, Attributes, LogRecord, Message, Metric, ResourceEntry, ScopeEntry, Span, View as _,
};

/// Stands for a missing `service.name`, as in the Collector.
const NO_SERVICE: &str = "<nil-service-name>";

/// Texts of which at least one must match.
#[derive(Debug, Clone)]
enum Texts {
    Strict(Vec<String>),
    Regexp(RegexSet),
}

impl Texts {
    fn new<T: AsRef<str>>(how: MatchType, texts: &[T]) -> Result<Self, BuildError> {
        Ok(match how {
            MatchType::Strict => {
                Texts::Strict(texts.iter().map(|text| text.as_ref().to_owned()).collect())
            }
            MatchType::Regexp => Texts::Regexp(
                re2::compile_all(texts).map_err(|wrong| BuildError(wrong.to_string()))?,
            ),
        })
    }

    /// Returns `None` for an empty list.
    fn some(how: MatchType, texts: &[String]) -> Result<Option<Self>, BuildError> {
        (!texts.is_empty())
            .then(|| Texts::new(how, texts))
            .transpose()
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Texts::Strict(texts) => texts.iter().any(|known| known == text),
            Texts::Regexp(patterns) => patterns.is_match(text),
        }
    }
}

/// An absent list matches everything.
fn matches<'t>(texts: Option<&Texts>, text: impl FnOnce() -> Cow<'t, str>) -> bool {
    texts.is_none_or(|texts| texts.matches(&text()))
}

/// An attribute that must exist.
#[derive(Debug, Clone)]
struct Expected {
    key: String,
    value: Wanted,
}

#[derive(Debug, Clone)]
enum Wanted {
    Any,
    Text(Texts),
    Bool(bool),
    Int(i64),
    Double(f64),
}

impl Expected {
    fn new(how: MatchType, config: &MatchAttribute) -> Result<Self, BuildError> {
        let value = match &config.value {
            None => Wanted::Any,
            Some(Literal::Text(text)) => Wanted::Text(Texts::new(how, &[text])?),
            Some(Literal::Bool(value)) => Wanted::Bool(*value),
            Some(Literal::Int(value)) => Wanted::Int(*value),
            Some(Literal::Double(value)) => Wanted::Double(*value),
            Some(Literal::List(_) | Literal::Map(_)) => {
                return Err(BuildError(format!(
                    "{}: the value must be a string, a number or a boolean",
                    config.key
                )));
            }
        };
        Ok(Expected {
            key: config.key.clone(),
            value,
        })
    }

    fn all(how: MatchType, configs: &[MatchAttribute]) -> Result<Vec<Self>, BuildError> {
        configs
            .iter()
            .map(|config| Expected::new(how, config))
            .collect()
    }

    fn is_in(&self, mut attributes: Attributes<'_>) -> bool {
        let found = attributes.find(|attribute| attribute.key_bytes() == self.key.as_bytes());
        let Some(found) = found else {
            return false;
        };
        let value = found.value().unwrap_or(AnyValue::Empty);
        match (&self.value, value) {
            (Wanted::Any, _) => true,
            (Wanted::Text(texts), AnyValue::String(text)) => texts.matches(text),
            (Wanted::Text(texts @ Texts::Regexp(_)), value) => match value {
                AnyValue::Bool(_) | AnyValue::Int(_) => texts.matches(&value.to_text()),
                AnyValue::Double(value) => texts.matches(&value.to_string()),
                _ => false,
            },
            (Wanted::Bool(wanted), AnyValue::Bool(value)) => *wanted == value,
            (Wanted::Int(wanted), AnyValue::Int(value)) => *wanted == value,
            (Wanted::Double(wanted), AnyValue::Double(value)) => *wanted == value,
            _ => false,
        }
    }
}

/// Properties of one `include` or `exclude`.
#[derive(Debug, Clone, Default)]
pub(in crate::processors) struct Matcher {
    services: Option<Texts>,
    resources: Vec<Expected>,
    libraries: Vec<(Texts, Option<Texts>)>,
    span_names: Option<Texts>,
    span_kinds: Option<Texts>,
    log_bodies: Option<Texts>,
    log_severity_texts: Option<Texts>,
    log_severity_number: Option<(i32, bool)>,
    metric_names: Option<Texts>,
    attributes: Vec<Expected>,
}

impl Matcher {
    pub(in crate::processors) fn new(config: &MatchConfig) -> Result<Self, BuildError> {
        let how = config.match_type.unwrap_or(MatchType::Strict);
        let some = |texts: &[String]| Texts::some(how, texts);
        let library = |library: &LibraryConfig| {
            let version = library.version.as_ref();
            Ok((
                Texts::new(how, &[&library.name])?,
                version
                    .map(|version| Texts::new(how, &[version]))
                    .transpose()?,
            ))
        };
        Ok(Matcher {
            services: some(&config.services)?,
            resources: Expected::all(how, &config.resources)?,
            libraries: config
                .libraries
                .iter()
                .map(library)
                .collect::<Result<_, BuildError>>()?,
            span_names: some(&config.span_names)?,
            span_kinds: some(&config.span_kinds)?,
            log_bodies: some(&config.log_bodies)?,
            log_severity_texts: some(&config.log_severity_texts)?,
            log_severity_number: config
                .log_severity_number
                .as_ref()
                .map(|severity| (severity.min, severity.match_undefined)),
            metric_names: some(&config.metric_names)?,
            attributes: Expected::all(how, &config.attributes)?,
        })
    }

    fn resource(&self, entry: ResourceEntry<'_>) -> bool {
        if self.services.is_none() && self.resources.is_empty() {
            return true;
        }
        let none = || Message::default();
        let resource = entry.resource();
        let attributes = || match resource {
            Some(resource) => resource.attributes(),
            None => tributary_otlp::view::Resource::view(none()).attributes(),
        };
        let service = || {
            let mut found = attributes();
            let found = found.find(|attribute| attribute.key_bytes() == b"service.name");
            found.map_or(Cow::Borrowed(NO_SERVICE), |attribute| {
                let value = attribute.value().unwrap_or(AnyValue::Empty);
                value.to_text()
            })
        };
        matches(self.services.as_ref(), service)
            && self
                .resources
                .iter()
                .all(|expected| expected.is_in(attributes()))
    }

    fn scope(&self, entry: ScopeEntry<'_>) -> bool {
        if self.libraries.is_empty() {
            return true;
        }
        let scope = entry.scope();
        let name = scope.map_or("", |scope| scope.name());
        let version = scope.map_or("", |scope| scope.version());
        self.libraries.iter().all(|(names, versions)| {
            names.matches(name) && versions.as_ref().is_none_or(|texts| texts.matches(version))
        })
    }

    fn attributes(&self, attributes: Attributes<'_>) -> bool {
        let mut all = self.attributes.iter();
        all.all(|expected| expected.is_in(attributes.clone()))
    }

    fn item(&self, signal: Signal, item: Message<'_>) -> bool {
        match signal {
            Signal::Traces => self.span(Span::view(item)),
            Signal::Logs => self.log(LogRecord::view(item)),
            Signal::Metrics => self
                .metric_names
                .as_ref()
                .is_none_or(|texts| texts.matches(Metric::view(item).name())),
            Signal::Profiles => true,
        }
    }

    fn span(&self, span: Span<'_>) -> bool {
        let kind = || match usize::try_from(span.kind()) {
            Ok(0) => "SPAN_KIND_UNSPECIFIED",
            Ok(number) => KINDS.get(number - 1).copied().unwrap_or_default(),
            Err(_) => "",
        };
        self.span_names
            .as_ref()
            .is_none_or(|texts| texts.matches(span.name()))
            && self
                .span_kinds
                .as_ref()
                .is_none_or(|texts| texts.matches(kind()))
            && self.attributes(span.attributes())
    }

    fn log(&self, record: LogRecord<'_>) -> bool {
        let body = || record.body().unwrap_or(AnyValue::Empty).to_text();
        let severity = |(least, undefined): &(i32, bool)| match record.severity_number() {
            0 => *undefined,
            number => number >= *least,
        };
        matches(self.log_bodies.as_ref(), body)
            && (self.log_severity_texts.as_ref())
                .is_none_or(|texts| texts.matches(record.severity_text()))
            && self.log_severity_number.as_ref().is_none_or(severity)
            && self.attributes(record.attributes())
    }
}

/// Selection of the items that match `include`, if there is one, and do not match `exclude`.
#[derive(Debug, Clone, Default)]
pub(in crate::processors) struct Choice {
    pub(in crate::processors) include: Option<Matcher>,
    pub(in crate::processors) exclude: Vec<Matcher>,
}

impl Choice {
    pub(in crate::processors) fn new(
        signal: Signal,
        include: Option<&MatchConfig>,
        exclude: Option<&MatchConfig>,
    ) -> Result<Self, BuildError> {
        for (key, config) in [("include", include), ("exclude", exclude)] {
            if let Some(config) = config {
                config.check_signal(key, signal)?;
            }
        }
        Ok(Choice {
            include: include.map(Matcher::new).transpose()?,
            exclude: exclude
                .map(Matcher::new)
                .into_iter()
                .collect::<Result<_, _>>()?,
        })
    }

    pub(in crate::processors) fn selecting(&self, signal: Signal) -> Selecting<'_> {
        Selecting {
            choice: self,
            signal,
            excluded: vec![Excluded::default(); self.exclude.len()],
        }
    }

    /// Whether the selection includes everything.
    pub(in crate::processors) fn is_everything(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty()
    }
}

/// Whether an `exclude` matches the current resource and scope.
#[derive(Debug, Clone, Copy, Default)]
struct Excluded {
    resource: bool,
    scope: bool,
}

/// Traversal of a request, with the results for the current resource and scope.
pub(in crate::processors) struct Selecting<'c> {
    choice: &'c Choice,
    signal: Signal,
    excluded: Vec<Excluded>,
}

impl Selecting<'_> {
    /// Whether items of a resource may be selected.
    pub(in crate::processors) fn of_resource(&mut self, entry: ResourceEntry<'_>) -> bool {
        for (matcher, excluded) in self.choice.exclude.iter().zip(&mut self.excluded) {
            excluded.resource = matcher.resource(entry);
        }
        (self.choice.include.as_ref()).is_none_or(|matcher| matcher.resource(entry))
    }

    /// Whether items of a scope of the current resource may be selected.
    pub(in crate::processors) fn of_scope(&mut self, entry: ScopeEntry<'_>) -> bool {
        for (matcher, excluded) in self.choice.exclude.iter().zip(&mut self.excluded) {
            excluded.scope = excluded.resource && matcher.scope(entry);
        }
        (self.choice.include.as_ref()).is_none_or(|matcher| matcher.scope(entry))
    }

    /// Whether `matches` selects an item of the current scope.
    fn of(&self, matches: impl Fn(&Matcher) -> bool) -> bool {
        let mut excluded = self.choice.exclude.iter().zip(&self.excluded);
        self.choice.include.as_ref().is_none_or(&matches)
            && !excluded.any(|(matcher, known)| known.scope && matches(matcher))
    }

    /// Whether a span, metric or log record of the current scope is selected.
    pub(in crate::processors) fn of_item(&self, item: Message<'_>) -> bool {
        self.of(|matcher| matcher.item(self.signal, item))
    }

    /// Whether a profile with these attributes is selected.
    pub(in crate::processors) fn of_attributes(&self, attributes: Attributes<'_>) -> bool {
        self.of(|matcher| matcher.attributes(attributes.clone()))
    }
}

impl AttributeSelector for Selecting<'_> {
    fn resource(&mut self, resource: ResourceEntry<'_>) -> bool {
        self.of_resource(resource)
    }

    fn scope(&mut self, scope: ScopeEntry<'_>) -> bool {
        self.of_scope(scope)
    }

    fn item(&mut self, item: Message<'_>) -> bool {
        self.of_item(item)
    }
}
