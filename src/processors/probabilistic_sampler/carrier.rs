//! Decides whether an item is sampled, by its randomness and its previous sampling decisions.

use super::threshold::{Randomness, Threshold};

/// Sampling information that an item carries from earlier samplers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Carrier {
    /// Randomness of the item, unless it follows from the trace id.
    pub(super) randomness: Option<Randomness>,
    /// Threshold of the previous samplers.
    pub(super) threshold: Option<Threshold>,
}

/// Source of the randomness behind a decision; the `policy` label of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Missing,
    TraceIdHash,
    TraceIdW3c,
    SamplingRandomness,
    SamplingPriority,
    Attribute,
}

impl Policy {
    pub(super) const ALL: [Policy; 6] = [
        Policy::Missing,
        Policy::TraceIdHash,
        Policy::TraceIdW3c,
        Policy::SamplingRandomness,
        Policy::SamplingPriority,
        Policy::Attribute,
    ];

    /// The label's value; for [`Attribute`](Self::Attribute) it is the attribute's key.
    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::Missing => "missing_randomness",
            Policy::TraceIdHash => "trace_id_hash",
            Policy::TraceIdW3c => "trace_id_w3c",
            Policy::SamplingRandomness => "sampling_randomness",
            Policy::SamplingPriority => "sampling_priority",
            Policy::Attribute => "",
        }
    }
}

/// An item, as far as the decision is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Randomness of the item; `None` if the item has no source of randomness.
    pub(super) randomness: Option<Randomness>,
    pub(super) policy: Policy,
    /// Sampling information of the item; `None` if it must stay unchanged.
    pub(super) carrier: Option<Carrier>,
    /// The sampling information of the item cannot be read, or cannot be used in this mode.
    pub(super) is_unusable: bool,
    /// The item was sampled before by another hash, so no threshold describes the combined probability.
    pub(super) is_independent: bool,
}

/// Method that determines the threshold of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sampler {
    /// Samples only items with a priority.
    Never,
    /// Samples by a hash with a seed.
    Hash { seed: u32, threshold: Threshold },
    /// The resulting probability is the configured one, or the previous one if that is lower.
    Equalizing { threshold: Threshold },
    /// The resulting probability is a fraction of the previous one.
    Proportional { ratio: f64, precision: u32 },
}

impl Sampler {
    fn threshold(self, carrier: Option<Carrier>) -> Threshold {
        let before = carrier.and_then(|carrier| carrier.threshold);
        match self {
            Sampler::Never => Threshold::NEVER,
            Sampler::Hash { threshold, .. } => threshold,
            Sampler::Equalizing { threshold } => {
                before.map_or(threshold, |before| before.max(threshold))
            }
            Sampler::Proportional { ratio, precision } => {
                let before = before.map_or(1.0, Threshold::probability);
                Threshold::of_probability(before * ratio, precision).unwrap_or(Threshold::NEVER)
            }
        }
    }

    /// Decides whether the item is sampled. `prioritize` may replace the threshold.
    pub(super) fn decide(
        self,
        item: Item,
        fail_closed: bool,
        prioritize: impl FnOnce() -> Option<Threshold>,
    ) -> Decision {
        let Item {
            randomness,
            mut policy,
            mut carrier,
            is_unusable,
            is_independent,
        } = item;
        let mut failed = is_unusable || randomness.is_none();
        if let (false, Some(carrier), Some(randomness)) = (failed, &mut carrier, randomness)
            && carrier
                .threshold
                .is_some_and(|before| !before.samples(randomness))
        {
            // An item with this randomness cannot have passed the stated threshold, so the threshold is wrong.
            carrier.threshold = None;
            failed = true;
        }
        let mut threshold = match failed {
            true if fail_closed => Threshold::NEVER,
            true => Threshold::ALWAYS,
            false => self.threshold(carrier),
        };
        if let Some(prioritized) = prioritize() {
            threshold = prioritized;
            policy = Policy::SamplingPriority;
        }
        let sampled = threshold.samples(randomness.unwrap_or(Randomness::ALL));
        if let Some(carrier) = &mut carrier {
            // A probability is never raised again.
            let before = carrier.threshold.unwrap_or(threshold);
            carrier.threshold = (!is_independent).then(|| before.max(threshold));
        }
        Decision {
            sampled,
            policy,
            carrier,
        }
    }
}

/// Outcome of sampling one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) sampled: bool,
    pub(super) policy: Policy,
    /// New sampling information for the item.
    pub(super) carrier: Option<Carrier>,
}
