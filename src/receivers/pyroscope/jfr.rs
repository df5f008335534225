//! Recordings of Java Flight Recorder: Pyroscope's names of their profiles, and the labels of their samples.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;

use tributary_memory::{NoRoom, Permit};
use tributary_profile_formats::JFR_CONTEXT;
use tributary_profiles::Dictionary;
use tributary_profiles::id::{AttributeId, AttributeSetId};
use tributary_profiles::model::{Profile, Samples, ScopeProfiles};
use tributary_profiles::names::{BLOCK, CPU, MUTEX, WALL, by_sample_types};
use tributary_pyroscope::snapshot::Snapshot;

/// Sample types of recordings with another name, or with a profile that the name does not tell.
const NAMES: [(&str, &str, &str); 9] = [
    ("samples", CPU, "cpu"),
    ("wall_samples", WALL, "wall"),
    ("contentions", MUTEX, "contentions"),
    ("delay", MUTEX, "delay"),
    ("park_contentions", BLOCK, "contentions"),
    ("park_delay", BLOCK, "delay"),
    ("live_objects", "memory", "live"),
    ("live_bytes", "memory", "live_bytes"),
    ("native", "native", "native"),
];

/// Divides a recording into Pyroscope's profiles, with their names. Counted samples become time, because the agent states
/// the sample rate in the request.
pub(super) fn divide(
    scope: ScopeProfiles,
    rate: u32,
    dictionary: &mut Dictionary,
) -> Vec<(String, ScopeProfiles)> {
    let mut divided: Vec<(String, ScopeProfiles)> = Vec::new();
    for mut profile in scope.profiles {
        let kind = dictionary.text(profile.header.sample_type.kind).to_owned();
        let named = NAMES.iter().find(|(from, ..)| *from == kind);
        let name = match named {
            Some((_, name, _)) => *name,
            None => by_sample_types([kind.as_str()].into_iter()),
        };
        if let Some((_, _, to)) = named {
            profile.header.sample_type.kind = dictionary.string(to);
        }
        if kind.ends_with("samples") && matches!(name, CPU | WALL) {
            into_time(&mut profile, rate, dictionary);
        }
        match divided.iter_mut().find(|(known, _)| known == name) {
            Some((_, scope)) => scope.profiles.push(profile),
            None => {
                let scope = ScopeProfiles {
                    profiles: vec![profile],
                    ..ScopeProfiles::default()
                };
                divided.push((name.to_owned(), scope));
            }
        }
    }
    divided
}

/// Multiplies counts of samples by the sampling period.
fn into_time(profile: &mut Profile, rate: u32, dictionary: &mut Dictionary) {
    let Some(period) = NANOS_PER_SECOND.checked_div(i64::from(rate)) else {
        return;
    };
    let period = period.max(1);
    let mut samples = Samples::default();
    samples.reserve(profile.samples.len());
    for sample in profile.samples.iter() {
        let total = sample.total().0.saturating_mul(period);
        samples.push(sample.key, &[total], &[]);
    }
    profile.samples = samples;
    let header = &mut profile.header;
    header.sample_type.unit = dictionary.string("nanoseconds");
    (header.period_type, header.period) = (header.sample_type, period);
}

/// Replaces the contexts of samples by their labels.
///
/// # Errors
/// There is no memory for the samples with labels.
pub(super) fn relabel(
    scope: &mut ScopeProfiles,
    snapshot: &Snapshot,
    dictionary: &mut Dictionary,
    permit: &mut Permit,
) -> Result<(), NoRoom> {
    let mut known = HashMap::new();
    for profile in &mut scope.profiles {
        permit.grow(profile.samples.bytes())?;
        let mut samples = Samples::default();
        samples.reserve(profile.samples.len());
        for sample in profile.samples.iter() {
            let mut key = sample.key;
            let labelled = known.entry(key.attributes);
            key.attributes =
                *labelled.or_insert_with(|| labelled_set(key.attributes, snapshot, dictionary));
            samples.push(key, sample.values, sample.timestamps);
        }
        profile.samples = samples;
    }
    Ok(())
}

/// Returns attributes with the labels of their context in place of the context.
fn labelled_set(
    set: AttributeSetId,
    snapshot: &Snapshot,
    dictionary: &mut Dictionary,
) -> AttributeSetId {
    let mut attributes: Vec<AttributeId> = Vec::new();
    let mut context = None;
    for id in dictionary.attributes(set) {
        let attribute = dictionary.get_attribute(*id);
        match dictionary.text(attribute.key) == JFR_CONTEXT {
            true => context = Some(attribute.value),
            false => attributes.push(*id),
        }
    }
    let Some(context) = context else {
        return set;
    };
    if let Some(Value::IntValue(context)) = dictionary.any_value(context).value {
        for (name, value) in snapshot.labels(context) {
            attributes.push(dictionary.string_attribute(&name, &value));
        }
    }
    dictionary.attribute_set(&attributes)
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;
