//! A configuration, compiled.

use super::config::{Config, Mode, OriginalPayload, UnknownFields, Verbosity};
use super::rules::Rules;
use crate::component::BuildError;
use crate::redaction::{Detector, DetectorId, Scanner};
use crate::wire::strings::{Place, Places, Tables};

/// What all requests of a processor have in common.
pub(super) struct Policy {
    pub(super) tables: Tables,
    pub(super) places: Places,
    pub(super) scanner: Scanner,
    /// The detectors at work, with their names.
    pub(super) detectors: Vec<(DetectorId, String)>,
    pub(super) rules: Option<Rules>,
    /// Whether the rules act in all places, and not only where the Collector's do.
    pub(super) everywhere: bool,
    pub(super) looks_at_keys: bool,
    pub(super) report: bool,
    pub(super) redacts_originals: bool,
}

impl Policy {
    pub(super) fn new(config: &Config) -> Result<Self, BuildError> {
        let scanner = config
            .scanner()
            .map_err(|error| BuildError(error.to_string()))?;
        let places = config.places();
        let drop_unknown =
            config.unknown_fields == UnknownFields::Drop && config.mode == Mode::Redact;
        let built_in = Detector::ALL.into_iter().filter(|detector| {
            let mut listed = config.detectors.iter();
            listed.any(|config| config.name == *detector)
        });
        let custom = (0..config.custom.len()).filter_map(DetectorId::custom);
        let ids = built_in.map(Detector::id).chain(custom);
        Ok(Policy {
            tables: Tables::new(places, drop_unknown),
            places,
            detectors: ids
                .map(|id| (id, scanner.detector_name(id).to_owned()))
                .collect(),
            scanner,
            rules: Rules::new(config)?,
            everywhere: config.scan.is_some(),
            looks_at_keys: places.has(Place::AttributeKeys),
            report: config.mode == Mode::Report,
            redacts_originals: config.original_payload == OriginalPayload::Redact,
        })
    }

    /// Whether the rules act there.
    pub(super) fn acts_on(&self, place: Place) -> bool {
        self.places.has(place)
            && (self.everywhere
                || matches!(
                    place,
                    Place::ResourceAttributes
                        | Place::ScopeAttributes
                        | Place::SpanAttributes
                        | Place::EventAttributes
                        | Place::LogAttributes
                        | Place::DatapointAttributes
                        | Place::LogBodies
                        | Place::SpanNames
                        | Place::ProfileAttributes
                ))
    }

    /// Whether summaries are written.
    pub(super) fn sums_up(&self) -> bool {
        let silent = |rules: &Rules| rules.verbosity == Verbosity::Silent;
        !self.rules.as_ref().is_none_or(silent)
    }
}
