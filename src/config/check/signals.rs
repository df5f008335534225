//! What processors are told has a meaning in the pipelines that they are in.

use crate::component::ProcessorConfig;
use crate::config::Problems;
use crate::config::assemble::{Facts, Kind};
use crate::config::id::ComponentId;
use crate::config::model::Configured;
use crate::config::node::Node;
use crate::config::report::{Diagnostic, Report};

pub(in crate::config) fn check(
    facts: &Facts,
    processors: &[(ComponentId, Configured<dyn ProcessorConfig>)],
    section: Option<&Node>,
    report: &mut Report,
) {
    for draft in &facts.pipelines {
        for reference in &draft.processors {
            let Some((id, processor)) = processors.iter().find(|(id, _)| *id == reference.id)
            else {
                continue;
            };
            let mut problems = Problems::default();
            processor
                .config
                .check_signal(draft.id.signal, &mut problems);
            let id = id.to_string();
            let body = section.and_then(|section| section.child(&id));
            for problem in problems.found() {
                let span = body.map_or(reference.span, |body| body.locate(&problem.path));
                let path = [Kind::Processor.section(), &id].map(str::to_owned);
                let path = path.into_iter().chain(problem.path.iter().cloned());
                report.push(
                    Diagnostic::error(problem.message.clone(), span)
                        .path(path)
                        .related(reference.span, format!("used in `{}`", draft.id)),
                );
            }
        }
    }
}
