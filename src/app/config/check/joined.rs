//! Checks that the settings of connectors make sense for the pipelines that they join.

use crate::app::config::Configured;
use crate::app::config::facts::{Draft, Facts, Kind, Reference};
use crate::component::ConnectorConfig;
use crate::pipeline::id::PipelineId;
use tributary_config::node::Node;
use tributary_config::report::{Diagnostic, Report};
use tributary_config::{ComponentId, Problems};

pub(in crate::app::config) fn check(
    facts: &Facts,
    connectors: &[(ComponentId, Configured<dyn ConnectorConfig>)],
    section: Option<&Node>,
    report: &mut Report,
) {
    if !facts.complete() {
        return;
    }
    for (id, connector) in connectors {
        let with = |list: fn(&Draft) -> &Vec<Reference>| -> Vec<PipelineId> {
            let named = |draft: &&Draft| list(draft).iter().any(|named| named.id == *id);
            let drafts = facts.pipelines.iter().filter(named);
            drafts.map(|draft| draft.id.clone()).collect()
        };
        let ends = with(|draft| &draft.exporters);
        let starts = with(|draft| &draft.receivers);
        if ends.is_empty() || starts.is_empty() {
            // A connector that is used on one side only or not at all is already reported.
            continue;
        }
        let mut problems = Problems::default();
        connector
            .config
            .check_pipelines(&ends, &starts, &mut problems);
        let declared = facts.find(Kind::Connector, id);
        let id = id.to_string();
        let body = section.and_then(|section| section.child(&id));
        for problem in problems.found() {
            let own = declared.map(|declared| declared.span).unwrap_or_default();
            let span = match body {
                Some(body) if !problem.path.is_empty() => body.locate(&problem.path),
                _ => own,
            };
            let path = [Kind::Connector.section(), &id].map(str::to_owned);
            let path = path.into_iter().chain(problem.path.iter().cloned());
            report.push(Diagnostic::error(problem.message.clone(), span).path(path));
        }
    }
}
