//! Recordings of Java Flight Recorder: Pyroscope's names of their profiles, and the labels of their samples.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
    profile.samples = profile.samples.scaled(period);
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
            key.attributes = match labelled {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    *new.insert(labelled_set(key.attributes, snapshot, dictionary, permit)?)
                }
            };
            samples.push(key, sample.values, sample.timestamps);
        }
        profile.samples = samples;
    }
    Ok(())
}

/// Memory of a label as an attribute, in addition to its text.
const LABEL_BYTES: usize = 128;

/// Returns attributes with the labels of their context in place of the context.
fn labelled_set(
    set: AttributeSetId,
    snapshot: &Snapshot,
    dictionary: &mut Dictionary,
    permit: &mut Permit,
) -> Result<AttributeSetId, NoRoom> {
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
        return Ok(set);
    };
    if let Some(Value::IntValue(context)) = dictionary.any_value(context).value {
        for (name, value) in snapshot.labels(context) {
            permit.grow(LABEL_BYTES + name.len() + value.len())?;
            attributes.push(dictionary.string_attribute(name, value));
        }
    }
    Ok(dictionary.attribute_set(&attributes))
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::AnyValue;
    use tributary_memory::Budget;
    use tributary_profiles::dictionary::SampleKey;

    use super::*;

    /// A profile of one sample with this value, in the context 7.
    fn profile(kind: &str, unit: &str, value: i64, dictionary: &mut Dictionary) -> Profile {
        let context = AnyValue {
            value: Some(Value::IntValue(7)),
        };
        let attributes = [
            dictionary.string_attribute("thread.name", "main"),
            dictionary.any_attribute(JFR_CONTEXT, &context),
        ];
        let key = SampleKey {
            attributes: dictionary.attribute_set(&attributes),
            ..SampleKey::default()
        };
        let mut profile = Profile::default();
        profile.header.sample_type.kind = dictionary.string(kind);
        profile.header.sample_type.unit = dictionary.string(unit);
        profile.samples.push(key, &[value], &[]);
        profile
    }

    #[test]
    fn recording_is_divided_into_pyroscopes_profiles() {
        let mut dictionary = Dictionary::new();
        let scope = ScopeProfiles {
            profiles: [
                ("samples", "count"),
                ("alloc_in_new_tlab_bytes", "bytes"),
                ("live_objects", "count"),
                ("delay", "nanoseconds"),
                ("park_delay", "nanoseconds"),
            ]
            .map(|(kind, unit)| profile(kind, unit, 3, &mut dictionary))
            .into(),
            ..ScopeProfiles::default()
        };
        let divided = divide(scope, 100, &mut dictionary);
        let text = |id| dictionary.text(id);
        let told = divided.iter().flat_map(|(name, scope)| {
            scope.profiles.iter().map(move |profile| {
                let kind = profile.header.sample_type;
                let total = profile
                    .samples
                    .iter()
                    .map(|sample| sample.total().0)
                    .sum::<i64>();
                format!("{name}:{}:{} {total}", text(kind.kind), text(kind.unit))
            })
        });
        let expected = [
            "process_cpu:cpu:nanoseconds 30000000",
            "memory:alloc_in_new_tlab_bytes:bytes 3",
            "memory:live:count 3",
            "mutex:delay:nanoseconds 3",
            "block:delay:nanoseconds 3",
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn context_is_replaced_by_its_labels() {
        // Context 7 has the label `a=b`.
        let message = b"\x0a\x0a\x08\x07\x12\x06\x0a\x04\x08\x01\x10\x02\x12\x05\x08\x01\x12\x01a\x12\x05\x08\x02\x12\x01b";
        let mut permit = Budget::new(1 << 20).empty_permit();
        let snapshot = Snapshot::parse(message, &mut permit).unwrap();
        for (snapshot, expected) in [
            (snapshot, vec!["thread.name", "a"]),
            (Snapshot::default(), vec!["thread.name"]),
        ] {
            let mut dictionary = Dictionary::new();
            let mut scope = ScopeProfiles {
                profiles: vec![profile("cpu", "nanoseconds", 3, &mut dictionary)],
                ..ScopeProfiles::default()
            };
            relabel(&mut scope, &snapshot, &mut dictionary, &mut permit).unwrap();
            let sample = scope.profiles[0].samples.iter().next().unwrap();
            let attributes = dictionary.attributes(sample.key.attributes).iter();
            let keys = attributes.map(|id| dictionary.text(dictionary.get_attribute(*id).key));
            assert_eq!(keys.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn labels_take_memory_before_they_are_interned() {
        let message = b"\x0a\x0a\x08\x07\x12\x06\x0a\x04\x08\x01\x10\x02\x12\x05\x08\x01\x12\x01a\x12\x05\x08\x02\x12\x01b";
        let snapshot = Snapshot::parse(message, &mut Budget::new(1 << 20).empty_permit()).unwrap();
        let mut dictionary = Dictionary::new();
        let mut scope = ScopeProfiles {
            profiles: vec![profile("cpu", "nanoseconds", 3, &mut dictionary)],
            ..ScopeProfiles::default()
        };
        // There is room for the samples alone.
        let mut permit =
            Budget::new(scope.profiles[0].samples.bytes() + LABEL_BYTES).empty_permit();
        let before = dictionary.bytes();
        assert!(relabel(&mut scope, &snapshot, &mut dictionary, &mut permit).is_err());
        assert_eq!(dictionary.bytes(), before);
    }
}
