//! Loads and checks a configuration from its sources.

pub(crate) use super::registries::Registries;
use super::{assemble, schema};
use crate::app::config::Config;
use tributary_config::report::Report;
use tributary_config::{Sources, expand, hide_values_of, read};

/// The default configuration, used without `--config`.
const DEFAULT: &str = include_str!("../../../config/otel-collector-config.yaml");

/// Result of [`load`].
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; `None` if there are errors.
    pub config: Option<Config>,
    /// Diagnostics, with or without errors.
    pub report: Report,
}

/// Reads, merges, expands and checks a configuration. Files and environment variables are read
/// again on every call.
///
/// `strict` turns warnings into errors.
pub fn load(sources: &Sources, strict: bool) -> Loaded {
    load_with(&Registries::built_in(), sources, strict)
}

pub(super) fn load_with(registries: &Registries, sources: &Sources, strict: bool) -> Loaded {
    hide_values_of(schema);
    let mut report = Report::default();
    let config = read(sources, DEFAULT, &mut report).and_then(|mut tree| {
        let not_taken = expand(&mut tree, &mut report);
        assemble::assemble(registries, &tree, not_taken, &mut report)
    });
    if strict {
        report.make_strict();
    }
    let config = config.filter(|_| !report.has_errors());
    Loaded { config, report }
}
