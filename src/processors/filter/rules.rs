//! The rules of a configuration, by the part of a request that they apply to.

use super::config::{ConditionEntry, Config, ErrorMode, MetricProperties};
use crate::component::BuildError;
use crate::processors::matching::{Choice, MatchConfig, Matcher};
use tributary_config::Problems;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;
use tributary_ottl::path::{Context, Depth};
use tributary_ottl::{Condition, EvaluationTarget, ParseError, parse};

/// Compiled conditions and property filters of a `filter` processor.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) conditions: Conditions,
    /// Property filters; an item must satisfy them to pass.
    pub(super) choice: Choice,
    log: SampledLog,
}

/// Conditions by depth.
#[derive(Debug, Default)]
pub(super) struct Conditions([Vec<(Condition, ErrorMode)>; 4]);

impl Conditions {
    /// Returns the conditions for the items inside this part of a request, partially evaluated. `None` if no
    /// condition uses this part.
    pub(super) fn within(&self, depth: Depth, here: &EvaluationTarget<'_>) -> Option<Conditions> {
        let mut any = false;
        let within = self.0.each_ref().map(|conditions| {
            let mut within = Vec::new();
            // Conditions on this depth and above have been evaluated.
            let deeper =
                |(condition, _): &&(Condition, ErrorMode)| condition.context.depth() > depth;
            for (condition, error_mode) in conditions.iter().filter(deeper) {
                let known = condition.within(depth, here);
                any |= known.is_some();
                within.push((known.unwrap_or_else(|| condition.clone()), *error_mode));
            }
            within
        });
        any.then_some(Conditions(within))
    }

    fn at(&self, depth: Depth) -> &[(Condition, ErrorMode)] {
        self.0.get(depth as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether there are conditions at that depth.
    pub(super) fn asks(&self, depth: Depth) -> bool {
        !self.at(depth).is_empty()
    }
}

impl Rules {
    /// The rules for a signal.
    pub(super) fn new(config: &Config, signal: Signal) -> Result<Self, BuildError> {
        let mut rules = Rules::default();
        for written in written(config)
            .iter()
            .filter(|written| written.signal == signal)
        {
            let condition = written.parse();
            let condition =
                condition.map_err(|mistake| BuildError(mistake.in_text(written.text)))?;
            let depth = condition.context.depth() as usize;
            if let Some(conditions) = rules.conditions.0.get_mut(depth) {
                conditions.push((condition, written.error_mode));
            }
        }
        for (key, properties) in properties(config)
            .into_iter()
            .filter(|(key, _)| key.signal == signal)
        {
            properties.check_signal(key.name, signal)?;
            if key.name == "include" {
                rules.choice.include = Some(Matcher::new(&properties)?);
            } else {
                rules.choice.exclude.push(Matcher::new(&properties)?);
            }
        }
        Ok(rules)
    }

    /// Whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.choice.is_everything() && self.conditions.0.iter().all(Vec::is_empty)
    }

    /// Whether a condition of that depth is true. `conditions` are the rules' own conditions, partially evaluated.
    ///
    /// # Errors
    ///
    /// The reason, if a condition cannot be evaluated and its error mode is `propagate`.
    pub(super) fn any_is_true(
        &self,
        conditions: &Conditions,
        depth: Depth,
        here: &EvaluationTarget<'_>,
    ) -> Result<bool, String> {
        for (condition, error_mode) in conditions.at(depth) {
            match (condition.is_true(here), error_mode) {
                (Ok(true), _) => return Ok(true),
                (Ok(false), _) | (Err(_), ErrorMode::Silent) => {}
                (Err(undecided), ErrorMode::Ignore) => {
                    if let Some(suppressed) = self.log.admit() {
                        tracing::warn!(
                            condition = &*condition.text,
                            suppressed,
                            "a condition {undecided}"
                        );
                    }
                }
                (Err(undecided), ErrorMode::Propagate) => {
                    return Err(format!("the condition `{}` {undecided}", condition.text));
                }
            }
        }
        Ok(false)
    }
}

/// A condition in the configuration.
struct Written<'c> {
    path: Vec<String>,
    signal: Signal,
    context: Option<Context>,
    error_mode: ErrorMode,
    text: &'c str,
}

impl Written<'_> {
    fn parse(&self) -> Result<Condition, ParseError> {
        parse(self.text, self.signal, self.context)
    }
}

fn strings(path: &[&str]) -> Vec<String> {
    path.iter().map(|step| (*step).to_owned()).collect()
}

fn written(config: &Config) -> Vec<Written<'_>> {
    let mut all = Vec::new();
    let (traces, metrics) = (&config.traces, &config.metrics);
    let (logs, profiles) = (&config.logs, &config.profiles);
    for (section, key, signal, context, texts) in [
        (
            "traces",
            "resource",
            Signal::Traces,
            Context::Resource,
            &traces.resource,
        ),
        (
            "traces",
            "span",
            Signal::Traces,
            Context::Span,
            &traces.span,
        ),
        (
            "traces",
            "spanevent",
            Signal::Traces,
            Context::SpanEvent,
            &traces.spanevent,
        ),
        (
            "metrics",
            "resource",
            Signal::Metrics,
            Context::Resource,
            &metrics.resource,
        ),
        (
            "metrics",
            "metric",
            Signal::Metrics,
            Context::Metric,
            &metrics.metric,
        ),
        (
            "metrics",
            "datapoint",
            Signal::Metrics,
            Context::DataPoint,
            &metrics.datapoint,
        ),
        (
            "logs",
            "resource",
            Signal::Logs,
            Context::Resource,
            &logs.resource,
        ),
        (
            "logs",
            "log_record",
            Signal::Logs,
            Context::Log,
            &logs.log_record,
        ),
        (
            "profiles",
            "resource",
            Signal::Profiles,
            Context::Resource,
            &profiles.resource,
        ),
        (
            "profiles",
            "profile",
            Signal::Profiles,
            Context::Profile,
            &profiles.profile,
        ),
    ] {
        for (at, text) in texts.iter().enumerate() {
            all.push(Written {
                path: strings(&[section, key, &at.to_string()]),
                signal,
                context: Some(context),
                error_mode: config.error_mode,
                text,
            });
        }
    }
    for (key, signal, entries) in entries(config) {
        for (at, entry) in entries.iter().enumerate() {
            let at = at.to_string();
            match entry {
                ConditionEntry::Text(text) => all.push(Written {
                    path: strings(&[key, &at]),
                    signal,
                    context: None,
                    error_mode: config.error_mode,
                    text,
                }),
                ConditionEntry::Group(group) => {
                    let context = group.context.as_deref().and_then(Context::of_name);
                    for (place, text) in group.conditions.iter().enumerate() {
                        all.push(Written {
                            path: strings(&[key, &at, "conditions", &place.to_string()]),
                            signal,
                            context,
                            error_mode: group.error_mode.unwrap_or(config.error_mode),
                            text,
                        });
                    }
                }
            }
        }
    }
    all
}

fn entries(config: &Config) -> [(&'static str, Signal, &[ConditionEntry]); 4] {
    [
        ("trace_conditions", Signal::Traces, &config.trace_conditions),
        (
            "metric_conditions",
            Signal::Metrics,
            &config.metric_conditions,
        ),
        ("log_conditions", Signal::Logs, &config.log_conditions),
        (
            "profile_conditions",
            Signal::Profiles,
            &config.profile_conditions,
        ),
    ]
}

/// Position of a property filter in the configuration.
struct Key {
    section: &'static str,
    name: &'static str,
    signal: Signal,
}

fn properties(config: &Config) -> Vec<(Key, MatchConfig)> {
    let mut all = Vec::new();
    let mut add = |section, name, signal, properties| {
        let key = Key {
            section,
            name,
            signal,
        };
        all.push((key, properties));
    };
    for (name, given) in [
        ("include", &config.spans.include),
        ("exclude", &config.spans.exclude),
    ] {
        if let Some(given) = given {
            add("spans", name, Signal::Traces, given.clone());
        }
    }
    for (name, given) in [
        ("include", &config.logs.include),
        ("exclude", &config.logs.exclude),
    ] {
        if let Some(given) = given.as_ref().filter(|given| !given.is_empty()) {
            add("logs", name, Signal::Logs, given.properties());
        }
    }
    if let Some(given) = config
        .metrics
        .include
        .as_ref()
        .filter(|given| !given.is_expression())
    {
        add("metrics", "include", Signal::Metrics, given.properties());
    }
    if let Some(given) = config
        .metrics
        .exclude
        .as_ref()
        .filter(|given| !given.is_expression())
    {
        // Either of the two is enough, as in the Collector.
        let both = given.properties();
        let (mut names, mut resources) = (both.clone(), both.clone());
        names.resources.clear();
        resources.metric_names.clear();
        match (both.metric_names.is_empty(), both.resources.is_empty()) {
            (false, false) => {
                add("metrics", "exclude", Signal::Metrics, names);
                add("metrics", "exclude", Signal::Metrics, resources);
            }
            _ => add("metrics", "exclude", Signal::Metrics, both),
        }
    }
    all
}

/// Reports everything that is wrong.
pub(super) fn validate(config: &Config, problems: &mut Problems) {
    for written in written(config) {
        if let Err(mistake) = written.parse() {
            let path: Vec<&str> = written.path.iter().map(String::as_str).collect();
            let character = mistake.characters(written.text);
            problems.error_within(&path, character, mistake.in_text(written.text));
        }
    }
    for (key, properties) in properties(config) {
        let path = [key.section, key.name];
        properties.validate_at(&path, problems);
        properties.validate_for(&path, key.signal, problems);
    }
    for (key, signal, entries) in entries(config) {
        for (at, entry) in entries.iter().enumerate() {
            if let ConditionEntry::Group(group) = entry {
                let at = at.to_string();
                let context = group.context.as_deref();
                let is_known =
                    |name| Context::of_name(name).is_some_and(|context| context.is_of(signal));
                if context.is_some_and(|name| !is_known(name)) {
                    let names = Context::NAMES
                        .iter()
                        .filter(|(_, context)| context.is_of(signal));
                    let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                    let message = format!(
                        "is not a context of {signal}; use one of: {}",
                        names.join(", ")
                    );
                    problems.error(&[key, &at, "context"], message);
                }
                if group.conditions.is_empty() {
                    problems.error(
                        &[key, &at, "conditions"],
                        "is required: list at least one condition",
                    );
                }
            }
        }
    }
    for (name, given) in [
        ("include", &config.metrics.include),
        ("exclude", &config.metrics.exclude),
    ] {
        if given.as_ref().is_some_and(MetricProperties::is_expression) {
            problems.error(
                &["metrics", name, "expressions"],
                "expressions are not supported: write conditions in metric_conditions, such as \
                 `metric.name == \"a\" and datapoint.attributes[\"b\"] == \"c\"`",
            );
        }
    }
    for (name, given) in [
        ("include", &config.logs.include),
        ("exclude", &config.logs.exclude),
    ] {
        let severity = given
            .as_ref()
            .and_then(|given| given.severity_number.as_ref());
        if severity.is_some_and(|severity| severity.number().is_none()) {
            problems.error(
                &["logs", name, "severity_number", "min"],
                "is not a severity: use TRACE, DEBUG, INFO, WARN, ERROR or FATAL, optionally with the suffix 2, 3 \
                 or 4",
            );
        }
    }
    combinations(config, problems);
}

/// Refuses forms that the Collector does not combine either.
fn combinations(config: &Config, problems: &mut Problems) {
    let (traces, metrics) = (&config.traces, &config.metrics);
    let (logs, profiles) = (&config.logs, &config.profiles);
    let old = [
        !(traces.resource.is_empty() && traces.span.is_empty() && traces.spanevent.is_empty()),
        !(metrics.resource.is_empty() && metrics.metric.is_empty() && metrics.datapoint.is_empty()),
        !(logs.resource.is_empty() && logs.log_record.is_empty()),
        !(profiles.resource.is_empty() && profiles.profile.is_empty()),
    ];
    let properties = [
        config.spans.include.is_some() || config.spans.exclude.is_some(),
        metrics.include.is_some() || metrics.exclude.is_some(),
        logs.include.is_some() || logs.exclude.is_some(),
        false,
    ];
    let sections = ["traces", "metrics", "logs", "profiles"];
    for (at, (key, _, entries)) in entries(config).into_iter().enumerate() {
        let is = |of: &[bool]| of.get(at).copied().unwrap_or_default();
        let section = sections.get(at).copied().unwrap_or_default();
        if !entries.is_empty() && (is(&old) || is(&properties)) {
            let message =
                format!("cannot be combined with conditions or properties in `{section}`");
            problems.error(&[key], message);
        } else if is(&old) && is(&properties) {
            problems.error(
                &[section],
                "cannot have both conditions and `include` or `exclude`: remove one of the two",
            );
        }
    }
}
