//! The `service` section.

use std::str::FromStr as _;

use serde::{Deserialize, Serialize};

use super::unknown;
use crate::app::config::ServiceConfig;
use crate::app::config::facts::{Draft, Facts, Listening, Need, Reference};
use crate::pipeline::id::{PipelineConfig, PipelineId};
use crate::telemetry::config::TelemetryConfig;
use tributary_config::node::{Content, Node, Pair};
use tributary_config::report::{Diagnostic, Report};
use tributary_config::{ComponentId, Validate, decode};
use tributary_otlp::Signal;

/// The keys of `service`.
const KEYS: [&str; 3] = ["extensions", "pipelines", "telemetry"];

/// The lists of a pipeline, as configured.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lists {
    receivers: Vec<String>,
    processors: Vec<String>,
    exporters: Vec<String>,
}

impl Validate for Lists {}

/// `service.extensions`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Ids(Vec<String>);

impl Validate for Ids {}

pub(super) fn read(tree: &Node, facts: &mut Facts, report: &mut Report) -> ServiceConfig {
    let mut config = ServiceConfig::default();
    facts.pipelines_span = tree.span;
    let service = tree.child("service").filter(|service| !service.is_null());
    let Some(service) = service else {
        telemetry(None, &mut config, facts, report);
        return config;
    };
    facts.pipelines_span = service.key.unwrap_or(service.span);
    let Content::Mapping(pairs) = &service.content else {
        let message = format!("expected a mapping, found {}", service.kind());
        report.push(Diagnostic::error(message, service.place()).path(["service"]));
        facts.service_broken = true;
        return config;
    };
    report.within(&["service"], |report| {
        for pair in pairs {
            if !KEYS.contains(&pair.name.as_str()) {
                let span = pair.value.key.unwrap_or(pair.value.span);
                report.push(unknown("field", &pair.name, &KEYS, span));
            }
        }
        if let Some(node) = service.child("extensions") {
            report.within(&["extensions"], |report| {
                match decode::<Ids>(node, report) {
                    Some(ids) => {
                        facts.extensions =
                            references(node, &ids.0, &["service", "extensions"], report)
                    }
                    None => facts.service_broken = true,
                }
            });
        }
        config.extensions = ids(&facts.extensions);
        telemetry(service.child("telemetry"), &mut config, facts, report);
        if let Some(node) = service.child("pipelines") {
            facts.pipelines_span = node.key.unwrap_or(node.span);
            report.within(&["pipelines"], |report| pipelines(node, facts, report));
        }
    });
    config.pipelines = facts
        .pipelines
        .iter()
        .map(|draft| {
            let lists = PipelineConfig {
                receivers: ids(&draft.receivers),
                processors: ids(&draft.processors),
                exporters: ids(&draft.exporters),
            };
            (draft.id.clone(), lists)
        })
        .collect();
    config
}

fn telemetry(
    node: Option<&Node>,
    config: &mut ServiceConfig,
    facts: &mut Facts,
    report: &mut Report,
) {
    if let Some(node) = node {
        let read = report.within(&["telemetry"], |report| {
            decode::<TelemetryConfig>(node, report)
        });
        match read {
            Some(telemetry) => config.telemetry = telemetry,
            None => return,
        }
    }
    for (path, endpoint) in config.telemetry.listens_on() {
        let span = match node {
            Some(node) => node.locate(&path),
            None => facts.pipelines_span,
        };
        let full = ["service", "telemetry"].into_iter().chain(path);
        facts.listening.push(Listening {
            owner: "the collector's own metrics".to_owned(),
            endpoint,
            span,
            path: full.map(str::to_owned).collect(),
            written: node.is_some_and(|node| node.child("metrics").is_some()),
            component: None,
        });
    }
    for needed in config.telemetry.uses_extensions() {
        let span = match node {
            Some(node) => node.locate(&needed.path),
            None => facts.pipelines_span,
        };
        facts.needs.push(Need::new(
            "the collector's metrics endpoint".to_owned(),
            None,
            &["service", "telemetry"],
            span,
            needed,
        ));
    }
}

fn pipelines(node: &Node, facts: &mut Facts, report: &mut Report) {
    if node.is_null() {
        return;
    }
    let Content::Mapping(pairs) = &node.content else {
        let message = format!("expected a mapping of pipelines, found {}", node.kind());
        report.push(Diagnostic::error(message, node.place()));
        facts.service_broken = true;
        return;
    };
    for pair in pairs {
        report.within(&[&pair.name], |report| {
            match pipeline(pair, facts, report) {
                Some(draft) => facts.pipelines.push(draft),
                None => facts.service_broken = true,
            }
        });
    }
}

fn pipeline(pair: &Pair, facts: &Facts, report: &mut Report) -> Option<Draft> {
    let span = pair.value.key.unwrap_or(pair.value.span);
    let id = match pipeline_id(&pair.name) {
        Ok(id) => Some(id),
        Err(diagnostic) => {
            report.push(diagnostic(span));
            None
        }
    };
    let before = report.errors();
    let lists = decode::<Lists>(&pair.value, report);
    let id = id?;
    if let Some(earlier) = facts.pipelines.iter().find(|draft| draft.id == id) {
        let message = format!("the pipeline `{id}` is defined twice");
        report.push(Diagnostic::error(message, span).related(earlier.span, "the first one"));
        return None;
    }
    let broken = lists.is_none();
    let lists = lists.unwrap_or_default();
    let mut list = |key: &str, texts: &[String]| match pair.value.child(key) {
        Some(node) => report.within(&[key], |report| {
            references(
                node,
                texts,
                &["service", "pipelines", &pair.name, key],
                report,
            )
        }),
        None => Vec::new(),
    };
    let receivers = list("receivers", &lists.receivers);
    let processors = list("processors", &lists.processors);
    let exporters = list("exporters", &lists.exporters);
    Some(Draft {
        id,
        span,
        receivers,
        processors,
        exporters,
        broken: broken || report.errors() > before,
    })
}

type Explain = Box<dyn FnOnce(tributary_config::source::Span) -> Diagnostic>;

fn pipeline_id(text: &str) -> Result<PipelineId, Explain> {
    // Pipeline names follow the rules of component ids.
    let id = ComponentId::from_str(text).map_err(|error| -> Explain {
        Box::new(move |span| Diagnostic::error(format!("{error}"), span))
    })?;
    let Some(signal) = Signal::from_name(id.kind()) else {
        let kind = id.kind().to_owned();
        return Err(Box::new(move |span| {
            unknown("signal", &kind, &Signal::ALL.map(Signal::name), span)
        }));
    };
    Ok(PipelineId {
        signal,
        name: id.name().map(str::to_owned),
    })
}

/// Returns the ids of a list with their positions. The ids in `a,b` share one position.
fn references(node: &Node, texts: &[String], path: &[&str], report: &mut Report) -> Vec<Reference> {
    let mut found = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let index = index.to_string();
        let span = match &node.content {
            Content::Sequence(_) => node.locate(&[&index]),
            _ => node.place(),
        };
        match text.parse() {
            Ok(id) => {
                let path = path.iter().map(|part| (*part).to_owned()).chain([index]);
                found.push(Reference {
                    id,
                    span,
                    path: path.collect(),
                });
            }
            Err(error) => {
                let error: tributary_config::InvalidId = error;
                report.push(Diagnostic::error(format!("{error}"), span).path([index]));
            }
        }
    }
    found
}

fn ids(references: &[Reference]) -> Vec<ComponentId> {
    references
        .iter()
        .map(|reference| reference.id.clone())
        .collect()
}
