//! `probabilistic_sampler`: samples a percentage of traces, log records or profiles.
//!
//! Keys, decisions and the data written into spans and records are those of the Collector's processor: with the same
//! settings, both sample the same traces. Profiles, which the Collector does not support, are sampled by their
//! profile id in the way spans are sampled by their trace id. Metrics are not sampled, because a sum or gauge without
//! some of its data points is wrong. The processor `filter` drops whole metrics.

mod carrier;
mod logs;
mod metrics;
mod spans;
#[cfg(test)]
mod tests;
mod threshold;
mod trace_state;

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::carrier::{Carrier, Decision, Policy, Sampler};
use self::logs::Logs;
use self::threshold::{BUCKET_BITS, BUCKETS, DIGITS, LEAST_PROBABILITY, Threshold};
use crate::component::{
    BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stability, Stage,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::Processor;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::OutputMemory;
use crate::processors::decoding;
use crate::processors::probabilistic_sampler::metrics::SamplerMetrics;
use tributary_config::{Problems, Validate};
use tributary_memory::Budget;
use tributary_otlp::count;
use tributary_otlp::edit::Editor;
use tributary_otlp::reader::Field;
use tributary_otlp::sieve::{Sieve, Sieved, sieve};
use tributary_otlp::{Requests, Signal};
use tributary_profiles::drop_unreferenced;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    Config,
    "probabilistic_sampler",
    aliases: &[],
    "Samples a percentage of traces, log records or profiles.",
    &[
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
        (Signal::Profiles, Stability::Alpha),
    ],
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_processor_probabilistic_sampler_count_traces_sampled",
        "Number of spans by sampling decision; older name of count_spans_processed",
    ),
    metric::counter(
        "otelcol_processor_probabilistic_sampler_count_spans_processed",
        "Number of spans by sampling decision",
    ),
    metric::counter(
        "otelcol_processor_probabilistic_sampler_count_logs_sampled",
        "Number of log records by sampling decision",
    ),
    metric::counter(
        "tributary_processor_probabilistic_sampler_count_profiles_sampled",
        "Number of profiles by sampling decision",
    ),
];

/// Configuration of the `probabilistic_sampler` processor.
///
/// Profiles are sampled by profile id, as spans are by trace id. Nothing is written into a profile, so a profile does
/// not record how it was sampled. Metrics cannot be sampled: without some of its data points a metric is wrong.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Percentage of items to sample; 100 or more samples all items. 0, or at least 1.4e-15. Default: 0, which samples
    /// only items with a sampling priority of their own.
    pub sampling_percentage: f32,
    /// With `mode: hash_seed`: seed of the hash. Collectors of one tier need the same seed to sample the same traces.
    /// Of collectors with the same seed, the traces of the smaller percentage are among those of the larger one. A
    /// collector behind one with another seed samples the arriving traces again; the share of the original traffic is
    /// then unknown, so the threshold (`th`) is removed. Default: 0.
    pub hash_seed: u32,
    /// Method of the decision. `hash_seed`: a hash of the trace id. `equalizing` and `proportional`: the randomness in
    /// the trace id, or in `rv` of the trace state (for log records: the attribute `sampling.randomness`). Both take
    /// earlier sampling into account (`th`, `sampling.threshold`). With `equalizing` the percentage is a share of the
    /// original traffic, with `proportional` a share of the arriving traffic. Sampled spans and records get `th` and
    /// `rv`. Default: `hash_seed`.
    pub mode: SamplerMode,
    /// Whether to drop items for which no decision is possible: items without a trace id or with an invalid trace state
    /// and, with `hash_seed`, items that another method has sampled before. Otherwise they pass. Default: true.
    pub fail_closed: bool,
    /// Number of hexadecimal digits of a threshold, not counting leading `f`s and zeros, from 1 to 14. Default: 4.
    pub sampling_precision: u32,
    /// For log records, with `hash_seed`: `traceID` hashes the trace id, or the attribute of `from_attribute` if there
    /// is no trace id. `record` always hashes the attribute. Default: `traceID`.
    pub attribute_source: AttributeSource,
    /// For log records, with `hash_seed`: key of the attribute to hash. Default: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from_attribute: String,
    /// For log records: key of the attribute whose percentage replaces `sampling_percentage` for the record. Spans have
    /// the attribute `sampling.priority` instead: 0 drops the span, a larger value samples it. Default: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sampling_priority: String,
}

/// Method of the sampling decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplerMode {
    /// A hash of the trace id, with a seed.
    #[default]
    HashSeed,
    /// A percentage of the original traffic.
    Equalizing,
    /// A percentage of the arriving traffic.
    Proportional,
}

/// Part of a log record to hash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AttributeSource {
    /// The trace id.
    #[default]
    #[serde(rename = "traceID")]
    TraceId,
    /// An attribute.
    #[serde(rename = "record")]
    Record,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            sampling_percentage: 0.0,
            hash_seed: 0,
            mode: SamplerMode::HashSeed,
            fail_closed: true,
            sampling_precision: 4,
            attribute_source: AttributeSource::TraceId,
            from_attribute: String::new(),
            sampling_priority: String::new(),
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let percentage = f64::from(self.sampling_percentage);
        let key = "sampling_percentage";
        if !percentage.is_finite() || percentage < 0.0 {
            problems.error(&[key], "must be a number from 0 to 100");
        } else if percentage == 0.0 {
            problems.warning(&[key], "is 0: only items with a sampling priority pass");
        } else if percentage / 100.0 < LEAST_PROBABILITY {
            problems.error(
                &[key],
                "must be 0, or at least 1.4e-15, the smallest probability of 56 bits",
            );
        }
        if !(1..=DIGITS).contains(&self.sampling_precision) {
            problems.error(
                &["sampling_precision"],
                "must be from 1 to 14 hexadecimal digits",
            );
        }
        if self.attribute_source == AttributeSource::Record && self.from_attribute.is_empty() {
            problems.warning(
                &["attribute_source"],
                "is `record`, but `from_attribute` is not set, so no record can be sampled: set `from_attribute`",
            );
        }
    }
}

impl Config {
    fn sampler(&self) -> Sampler {
        // The Collector computes with 32 bits and truncates, and both determine the sampled traces.
        const BUCKETS_PER_PERCENT: f32 = BUCKETS as f32 / 100.0;
        let percentage = self.sampling_percentage.min(100.0);
        let ratio = f64::from(percentage) / 100.0;
        let (precision, seed) = (self.sampling_precision, self.hash_seed);
        if percentage <= 0.0 {
            return Sampler::Never;
        }
        match self.mode {
            SamplerMode::Equalizing => Sampler::Equalizing {
                threshold: Threshold::of_probability(ratio, precision).unwrap_or(Threshold::NEVER),
            },
            SamplerMode::Proportional => Sampler::Proportional { ratio, precision },
            SamplerMode::HashSeed => {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most 2^14.
                let taken = (percentage * BUCKETS_PER_PERCENT) as u64;
                let threshold =
                    Threshold::from_bits((BUCKETS - taken) << (4 * DIGITS - BUCKET_BITS));
                match taken {
                    0 => Sampler::Never,
                    _ => Sampler::Hash { seed, threshold },
                }
            }
        }
    }

    fn logs(&self) -> Logs {
        let some = |key: &String| (!key.is_empty()).then(|| key.clone());
        Logs {
            sampler: self.sampler(),
            fail_closed: self.fail_closed,
            by_trace_id: self.attribute_source == AttributeSource::TraceId,
            attribute: some(&self.from_attribute),
            priority: some(&self.sampling_priority),
            precision: self.sampling_precision,
        }
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        let logs = self.logs();
        Ok(Stage::Pure(Box::new(ProbabilisticSampler {
            metrics: SamplerMetrics::new(
                signal,
                Policy::ALL.map(|policy| match policy {
                    Policy::Attribute => self.from_attribute.clone(),
                    policy if signal == Signal::Profiles => {
                        policy.name().replace("trace_id", "profile_id")
                    }
                    policy => policy.name().to_owned(),
                }),
            ),
            logs,
            budget: cx.budget.clone(),
        })))
    }
}

/// The processor of one signal. The settings for logs have no effect on spans.
struct ProbabilisticSampler {
    logs: Logs,
    metrics: SamplerMetrics,
    budget: Arc<Budget>,
}

impl Processor for ProbabilisticSampler {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        let signal = batch.signal();
        let mut sampling = Sampling {
            logs: &self.logs,
            signal,
            counts: [[0; 2]; Policy::ALL.len()],
        };
        let mut left = Requests::default();
        let mut changed = false;
        let mut dropped = 0;
        let mut made = 0;
        let output = OutputMemory::new(&self.budget);
        for part in batch.wire().parts() {
            let sieved = sieve(part, &output, &mut sampling)
                .map_err(|error| decoding::unedited(signal, error, &output))?;
            changed |= sieved != Sieved::Same;
            match sieved {
                Sieved::Same => left.push(part.clone()),
                Sieved::Changed(after) if signal == Signal::Profiles => {
                    // Removes entries that only dropped samples referred to. Items are samples.
                    let after = Bytes::from(after);
                    // Without memory to look for unreferenced entries, they stay.
                    let room = decoding::room(std::slice::from_ref(&after), &self.budget);
                    let collected = room.ok().and_then(|_room| drop_unreferenced(&after));
                    let after = collected.unwrap_or(after);
                    made += after.len();
                    dropped += count(signal, part).saturating_sub(count(signal, &after));
                    left.push(after);
                }
                Sieved::Changed(part) => {
                    made += part.len();
                    left.push(part.into());
                }
                Sieved::Nothing if signal == Signal::Profiles => dropped += count(signal, part),
                Sieved::Nothing => {}
            }
        }
        self.metrics.count(&sampling.counts);
        if signal != Signal::Profiles {
            let counts = sampling.counts.iter().map(|[dropped, _]| dropped);
            dropped = usize::try_from(counts.sum::<u64>()).unwrap_or(usize::MAX);
        }
        let items = batch.items().saturating_sub(dropped);
        Ok(match changed {
            _ if left.parts().is_empty() && changed => None,
            true => Some(batch.with_output(items, left, output.keep(made))),
            false => Some(batch),
        })
    }
}

/// Decides about a profile.
fn profile(sampler: Sampler, fail_closed: bool, profile: &Field<'_>) -> Decision {
    const PROFILE_ID: u32 = 7;
    let fields = profile.fields().map_while(Result::ok);
    let ids = fields.filter(|field| field.number == PROFILE_ID);
    let id = ids.last().and_then(|field| field.value.bytes());
    let item = spans::item(sampler, id.unwrap_or_default(), Some(Carrier::default()));
    sampler.decide(item, fail_closed, || None)
}

struct Sampling<'s> {
    logs: &'s Logs,
    signal: Signal,
    /// Counts of items that were not sampled and that were sampled, by policy.
    counts: [[u64; 2]; Policy::ALL.len()],
}

impl<'a> Sieve<'a> for Sampling<'_> {
    fn item(&mut self, item: &Field<'a>, editor: &mut Editor<'a>) -> bool {
        let Decision {
            sampled, policy, ..
        } = match self.signal {
            Signal::Logs => self.logs.sample(item, editor),
            Signal::Profiles => profile(self.logs.sampler, self.logs.fail_closed, item),
            _ => spans::sample(self.logs.sampler, self.logs.fail_closed, item, editor),
        };
        let counts = self.counts.get_mut(policy as usize);
        if let Some(count) = counts.and_then(|counts| counts.get_mut(usize::from(sampled))) {
            *count += 1;
        }
        sampled
    }
}
