//! The compiled configuration.

use super::config::{Config, OriginalPayload, RedactionMode, SummaryDetail, UnknownFields};
use super::rules::Rules;
use crate::component::BuildError;
use tributary_otlp::Signal;
use tributary_otlp::strings::{StringLocation, StringLocations, Tables};
use tributary_redaction::{Detector, DetectorId, Scanner};

/// Settings and tables shared by all requests of a processor.
pub(super) struct Policy {
    pub(super) tables: Tables,
    pub(super) places: StringLocations,
    pub(super) scanner: Scanner,
    /// The active detectors, with their names.
    pub(super) detectors: Vec<(DetectorId, String)>,
    pub(super) rules: Option<Rules>,
    /// Whether the rules apply to all locations, and not only to the Collector's locations.
    pub(super) everywhere: bool,
    pub(super) looks_at_keys: bool,
    pub(super) report: bool,
    pub(super) redacts_originals: bool,
    /// Keys of values that are requests, with the signal of the requests. No key means the body.
    embedded: Vec<(Option<String>, Signal)>,
}

impl Policy {
    pub(super) fn new(config: &Config) -> Result<Self, BuildError> {
        let scanner = config
            .scanner()
            .map_err(|error| BuildError(error.to_string()))?;
        let places = config.places();
        let drop_unknown =
            config.unknown_fields == UnknownFields::Drop && config.mode == RedactionMode::Redact;
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
            looks_at_keys: places.has(StringLocation::AttributeKeys),
            report: config.mode == RedactionMode::Report,
            redacts_originals: config.original_payload == OriginalPayload::Redact,
            embedded: config
                .embedded_otlp
                .iter()
                .map(|entry| (entry.key.clone(), entry.signal.into()))
                .collect(),
        })
    }

    /// Returns the signals of embedded requests, and the signal of the requests that contain them.
    pub(super) fn signals(&self, around: Signal) -> Vec<Signal> {
        let mut signals = vec![around];
        signals.extend(self.embedded.iter().map(|(_, signal)| *signal));
        signals
    }

    pub(super) fn has_embedded_requests(&self) -> bool {
        !self.embedded.is_empty()
    }

    /// Returns the signal whose request a bytes value is configured to be, under this key or as a body.
    pub(super) fn embedded_signal(
        &self,
        place: StringLocation,
        key: Option<&[u8]>,
    ) -> Option<Signal> {
        if key.is_none() && place != StringLocation::LogBodies {
            return None;
        }
        let mut embedded = self.embedded.iter();
        let found = embedded.find(|(known, _)| known.as_deref().map(str::as_bytes) == key);
        found.map(|(_, signal)| *signal)
    }

    /// Whether the rules apply to the location.
    pub(super) fn acts_on(&self, place: StringLocation) -> bool {
        self.places.has(place)
            && (self.everywhere
                || matches!(
                    place,
                    StringLocation::ResourceAttributes
                        | StringLocation::ScopeAttributes
                        | StringLocation::SpanAttributes
                        | StringLocation::EventAttributes
                        | StringLocation::LogAttributes
                        | StringLocation::DatapointAttributes
                        | StringLocation::LogBodies
                        | StringLocation::SpanNames
                        | StringLocation::ProfileAttributes
                ))
    }

    /// Whether summaries are written.
    pub(super) fn sums_up(&self) -> bool {
        let silent = |rules: &Rules| rules.verbosity == SummaryDetail::Silent;
        !self.rules.as_ref().is_none_or(silent)
    }
}
