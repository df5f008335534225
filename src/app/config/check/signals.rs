//! Checks that the settings of processors and exporters make sense in their pipelines.

use crate::app::config::Configured;
use crate::app::config::facts::{Draft, Facts, Kind, Reference};
use tributary_config::node::Node;
use tributary_config::report::{Diagnostic, Report};
use tributary_config::{ComponentId, Problems};
use tributary_otlp::Signal;

/// Components of one kind for the check.
pub(in crate::app::config) struct Checked<'a, C: ?Sized + 'static> {
    pub(in crate::app::config) kind: Kind,
    /// Returns the list of a pipeline with ids of this kind.
    pub(in crate::app::config) list: fn(&Draft) -> &Vec<Reference>,
    pub(in crate::app::config) components: &'a [(ComponentId, Configured<C>)],
    pub(in crate::app::config) section: Option<&'a Node>,
    pub(in crate::app::config) ask: fn(&C, Signal, &mut Problems),
}

pub(in crate::app::config) fn check<C: ?Sized>(
    facts: &Facts,
    checked: &Checked<'_, C>,
    report: &mut Report,
) {
    for draft in &facts.pipelines {
        for reference in (checked.list)(draft) {
            let mut components = checked.components.iter();
            let Some((id, component)) = components.find(|(id, _)| *id == reference.id) else {
                continue;
            };
            let mut problems = Problems::default();
            (checked.ask)(&component.config, draft.id.signal, &mut problems);
            let id = id.to_string();
            let body = checked.section.and_then(|section| section.child(&id));
            for problem in problems.found() {
                let span = body.map_or(reference.span, |body| body.locate(&problem.path));
                let path = [checked.kind.section(), &id].map(str::to_owned);
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
