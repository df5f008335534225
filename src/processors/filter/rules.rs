//! The rules of a configuration, by the part of a request that they apply to.

use super::config::{ConditionEntry, Config, ErrorMode};
use crate::component::BuildError;
use crate::processors::matching::{Choice, MatchConfig, Matcher};
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

    /// Whether there are conditions at `depth`.
    pub(super) fn asks(&self, depth: Depth) -> bool {
        !self.at(depth).is_empty()
    }
}

impl Rules {
    /// Returns the rules for a signal.
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

    /// Whether a condition of `depth` is true. `conditions` are the rules' own conditions, partially evaluated.
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
pub(super) struct Written<'c> {
    pub(super) path: Vec<String>,
    signal: Signal,
    context: Option<Context>,
    error_mode: ErrorMode,
    pub(super) text: &'c str,
}

impl Written<'_> {
    pub(super) fn parse(&self) -> Result<Condition, ParseError> {
        parse(self.text, self.signal, self.context)
    }
}

fn strings(path: &[&str]) -> Vec<String> {
    path.iter().map(|step| (*step).to_owned()).collect()
}

pub(super) fn written(config: &Config) -> Vec<Written<'_>> {
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

pub(super) fn entries(config: &Config) -> [(&'static str, Signal, &[ConditionEntry]); 4] {
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
pub(super) struct Key {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    pub(super) signal: Signal,
}

pub(super) fn properties(config: &Config) -> Vec<(Key, MatchConfig)> {
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
        // One of the two keys is enough, as in the Collector.
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
