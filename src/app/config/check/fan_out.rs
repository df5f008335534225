//! Finds exporters of one pipeline that block each other. The Collector does not report them.

use crate::app::config::facts::{Facts, Kind};
use tributary_config::ComponentId;
use tributary_config::report::{Diagnostic, Level, Report};

/// Reports each set of such exporters once, at the first pipeline with it.
pub(super) fn check(facts: &Facts, report: &mut Report) {
    let mut reported: Vec<Vec<&ComponentId>> = Vec::new();
    for draft in facts.pipelines.iter().filter(|draft| !draft.broken) {
        let mut exporters: Vec<&ComponentId> = Vec::new();
        for reference in &draft.exporters {
            let id = &reference.id;
            let holds_up =
                |(kind, other): &(Kind, ComponentId)| *kind == Kind::Exporter && other == id;
            if facts.holding_up.iter().any(holds_up) && !exporters.contains(&id) {
                exporters.push(id);
            }
        }
        let mut sorted = exporters.clone();
        sorted.sort_unstable_by_key(|id| id.to_string());
        if exporters.len() < 2 || reported.contains(&sorted) {
            continue;
        }
        reported.push(sorted);
        let names: Vec<String> = exporters.iter().map(|id| format!("`{id}`")).collect();
        let message = format!(
            "the pipeline `{}` has {} exporters without a queue on disk: {}. If one of these exporters refuses \
             data, the pipeline delivers to none of them",
            draft.id,
            exporters.len(),
            names.join(", ")
        );
        let help = "set `sending_queue::storage`, or `sending_queue::drop_on_overflow: true`, for each exporter \
                    that must not block the rest";
        let id = draft.id.to_string();
        report.push(
            Diagnostic::new(Level::Notice, message, Some(draft.span))
                .path(["service", "pipelines", &id])
                .help(help),
        );
    }
}
