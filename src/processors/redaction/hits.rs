//! Counters of hits, by detector or rule and by location.

use metrics::{Counter, counter};

use super::policy::Policy;
use super::refusal::Reason;
use crate::component::BuildContext;
use tributary_otlp::Signal;
use tributary_otlp::strings::StringLocation;
use tributary_redaction::{DetectorId, Hits};

/// A source of hits other than the detectors: one of the Collector's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    AllowedKeys,
    BlockedKeyPatterns,
    BlockedValues,
    Sanitizers,
}

const RULES: [(Rule, &str); 4] = [
    (Rule::AllowedKeys, "allowed_keys"),
    (Rule::BlockedKeyPatterns, "blocked_key_patterns"),
    (Rule::BlockedValues, "blocked_values"),
    (Rule::Sanitizers, "sanitizers"),
];

const COLUMNS: usize = DetectorId::COUNT + RULES.len();

/// `otelcol_processor_redaction_hits`. Every possible series exists from the start, at zero, so that the first hit is an
/// increase. No label contains text of a request.
pub(super) struct Counters {
    handles: Vec<Option<Counter>>,
    /// Number of original files that were removed from profiles.
    originals: Option<Counter>,
    refused: [Counter; Reason::ALL.len()],
}

/// Value of the labels `place` and `detector` for original files of profiles.
const ORIGINALS: &str = "original_payload";

impl Counters {
    /// Creates the counters of a processor, for each location with its active detectors and rules.
    pub(super) fn new(cx: &BuildContext, signal: Signal, policy: &Policy) -> Self {
        let rules = policy.rules.is_some();
        let inside = policy.signals(signal);
        let mut handles = Vec::new();
        handles.resize_with(StringLocation::ALL.len() * COLUMNS, || None);
        for place in StringLocation::ALL {
            let mut signals = inside.iter();
            if !policy.places.has(place) || !signals.any(|signal| place.signals().contains(signal))
            {
                continue;
            }
            let rules = RULES.iter().filter(|_| rules);
            let rules = rules.map(|(rule, name)| (DetectorId::COUNT + *rule as usize, *name));
            let detectors = policy
                .detectors
                .iter()
                .map(|(id, name)| (id.index(), name.as_str()));
            for (column, name) in detectors.chain(rules) {
                if let Some(handle) = handles.get_mut(place as usize * COLUMNS + column) {
                    *handle = Some(series(cx, signal, name, place.name()));
                }
            }
        }
        let originals = inside.contains(&Signal::Profiles);
        Counters {
            handles,
            originals: originals.then(|| series(cx, signal, ORIGINALS, ORIGINALS)),
            refused: Reason::ALL.map(|reason| refused(cx, signal, reason)),
        }
    }

    /// Creates counters that are not exported.
    pub(super) fn silent() -> Self {
        Counters {
            handles: Vec::new(),
            originals: None,
            refused: std::array::from_fn(|_| Counter::noop()),
        }
    }

    /// Counts a request that cannot be scanned.
    #[cold]
    pub(super) fn refused(&self, reason: Reason) {
        if let Some(refused) = self.refused.get(reason as usize) {
            refused.increment(1);
        }
    }

    /// Counts a removed original file of a profile.
    #[cold]
    pub(super) fn dropped_original(&self) {
        if let Some(originals) = &self.originals {
            originals.increment(1);
        }
    }

    /// Counts the hits of a scan, and clears `hits`.
    #[cold]
    pub(super) fn found(&self, place: StringLocation, hits: &mut Hits) {
        for (detector, count) in hits.iter() {
            self.add(place, detector.index(), count.into());
        }
        hits.clear();
    }

    pub(super) fn ruled(&self, place: StringLocation, rule: Rule, count: u64) {
        if count > 0 {
            self.add(place, DetectorId::COUNT + rule as usize, count);
        }
    }

    fn add(&self, place: StringLocation, column: usize, count: u64) {
        let handle = self.handles.get(place as usize * COLUMNS + column);
        if let Some(Some(handle)) = handle {
            handle.increment(count);
        }
    }
}

fn series(cx: &BuildContext, signal: Signal, detector: &str, place: &'static str) -> Counter {
    counter!(
        "otelcol_processor_redaction_hits",
        "processor" => cx.id.to_string(),
        "detector" => detector.to_owned(),
        "otel_signal" => signal.name(),
        "place" => place
    )
}

fn refused(cx: &BuildContext, signal: Signal, reason: Reason) -> Counter {
    counter!(
        "tributary_processor_redaction_refused_requests",
        "processor" => cx.id.to_string(),
        "otel_signal" => signal.name(),
        "reason" => reason.name()
    )
}
