//! Fuzz target for the crate of profiles.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tributary_profiles::check::{FINDINGS_PER_RULE, Rule, Severity, check};
use tributary_profiles::merge::{MergeCounts, MergeOptions};
use tributary_profiles::reindex::ProfileFault;
use tributary_profiles::relocations::Addresses;
use tributary_profiles::resolve::{ResolvedAttribute, ResolvedFrame, ResolvedProfile, resolve};
use tributary_profiles::{Compactor, Merger, Profiles, layout};

use crate::generator::Entropy;
use crate::samples;

/// The checker reports the violations of any request. An accepted request keeps its content when
/// compacted and its sums when merged, and the output violates no further rule.
pub fn profiles(input: &[u8]) {
    let (decisions, material) = input.split_at(input.len().min(8));
    let mut entropy = Entropy(decisions);
    let request = match entropy.below(4) {
        0 => material.to_vec(),
        how => {
            let bytes = samples::request(material).encode_to_vec();
            // Most requests are slightly damaged.
            damaged(bytes, how - 1, &mut entropy)
        }
    };
    let old = layout::check(&request);
    let Ok(request) = ExportProfilesServiceRequest::decode(request.as_slice()) else {
        return;
    };
    if old.is_ok() {
        // Requests encoded in the layout of 1.10 are recognized.
        assert_eq!(layout::check(&request.encode_to_vec()), Ok(()));
    }
    let before = check(&request);
    for rule in before.counts().keys() {
        let shown = before
            .findings()
            .iter()
            .filter(|found| found.rule == *rule)
            .count();
        assert_eq!(
            shown,
            before.counts()[rule].min(FINDINGS_PER_RULE),
            "{rule:?}"
        );
    }
    let mut compactor = Compactor::new();
    if let Err(fault) = compactor.add(&request) {
        let rule = match fault {
            ProfileFault::Dangling { .. } => Rule::IndexOutOfRange,
            ProfileFault::Unequal { .. } => Rule::UnequalObservations,
            ProfileFault::Expansion => Rule::Expansion,
            ProfileFault::Malformed(place) => panic!("{place} was encoded by the library"),
        };
        assert!(before.counts().contains_key(&rule), "{fault}");
        assert_eq!(compactor.finish().samples(), 0, "all or nothing");
        assert_eq!(merged(&[&request], Addresses::Exact).0, None);
        return;
    }
    let saturated = compactor.saturated() > 0;
    let profiles = compactor.finish();
    let compacted = read(&profiles);
    let after = check(&compacted);
    for rule in after.counts().keys() {
        let new = rule.is_structural() || !before.counts().contains_key(rule);
        let harmful = rule.is_structural() || rule.severity() == Severity::Error;
        assert!(
            !new || !harmful,
            "{rule:?}: {:?}, before: {:?}",
            after.findings(),
            before.findings()
        );
    }
    // Repaired requests keep only a part of their content.
    let mended = [
        Rule::ZeroValue,
        Rule::NullInList,
        Rule::DuplicateKey,
        Rule::KeyAndReference,
        Rule::LinkLength,
    ];
    if !saturated && !mended.iter().any(|rule| before.counts().contains_key(rule)) {
        assert_eq!(meaning(&compacted), meaning(&request));
    }
    let mut again = Compactor::new();
    again.add(&compacted).unwrap();
    assert_eq!(again.finish().encode(), profiles.encode());

    for addresses in [Addresses::Exact, Addresses::Relocated] {
        let (merged, counts) = merged(&[&request, &compacted], addresses);
        let merged = merged.unwrap();
        assert!(
            check(&merged)
                .counts()
                .keys()
                .all(|rule| !rule.is_structural())
        );
        if counts.saturated == 0 && !saturated {
            let twice: BTreeMap<_, _> = sums(&request)
                .into_iter()
                .map(|(key, sum)| (key, 2 * sum))
                .collect();
            assert_eq!(sums(&merged), twice);
        }
    }
}

/// Flips this number of bits.
pub(crate) fn damaged(mut bytes: Vec<u8>, bits: u8, entropy: &mut Entropy<'_>) -> Vec<u8> {
    for _ in 0..bits {
        let at = usize::from(entropy.byte()) << 8 | usize::from(entropy.byte());
        if let Some(byte) = bytes
            .len()
            .checked_sub(1)
            .and_then(|most| bytes.get_mut(at % (most + 1)))
        {
            *byte ^= 1 << entropy.below(8);
        }
    }
    bytes
}

fn read(profiles: &Profiles) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest::decode(profiles.encode()).unwrap()
}

fn merged(
    requests: &[&ExportProfilesServiceRequest],
    addresses: Addresses,
) -> (Option<ExportProfilesServiceRequest>, MergeCounts) {
    let mut merger = Merger::new(MergeOptions {
        addresses,
        ..MergeOptions::default()
    });
    let added = requests.iter().try_for_each(|request| merger.add(request));
    let counts = merger.counts();
    (added.ok().map(|()| read(&merger.finish())), counts)
}

/// Identity of a sample: stack, attributes, link, and the kinds of its observations.
type Subject<'r> = (
    Vec<ResolvedFrame<'r>>,
    Vec<ResolvedAttribute<'r>>,
    (&'r [u8], &'r [u8]),
    (bool, bool),
);
/// The total, and the values with their times.
type Observations = (i128, Vec<(u64, Option<i64>)>);

/// Content of a profile.
type Meaning<'r> = (ResolvedProfile<'r>, BTreeMap<Subject<'r>, Observations>);

/// Returns the content of profiles, in an order independent of their encoding.
fn meaning(request: &ExportProfilesServiceRequest) -> Vec<Meaning<'_>> {
    let mut meaning: Vec<_> = resolve(request).unwrap().into_iter().map(said).collect();
    meaning.sort();
    meaning
}

fn said(mut profile: ResolvedProfile<'_>) -> Meaning<'_> {
    let mut samples = BTreeMap::<Subject<'_>, Observations>::new();
    for sample in std::mem::take(&mut profile.samples) {
        let shape = (sample.values.is_empty(), sample.timestamps.is_empty());
        // A sample without observations has no content.
        if shape == (true, true) {
            continue;
        }
        let none = |id: &[u8]| id.iter().all(|byte| *byte == 0);
        let link = match sample.link {
            (trace, span) if none(trace) && none(span) => (&[][..], &[][..]),
            link => link,
        };
        let subject = (sample.stack, sample.attributes, link, shape);
        let (total, times) = samples.entry(subject).or_default();
        if sample.timestamps.is_empty() {
            *total += sum(sample.values);
        }
        let value = |at: usize| sample.values.get(at).copied();
        times.extend(
            sample
                .timestamps
                .iter()
                .enumerate()
                .map(|(at, time)| (*time, value(at))),
        );
        times.sort_unstable();
    }
    if profile.profile_id.len() != 16 || profile.profile_id.iter().all(|byte| *byte == 0) {
        profile.profile_id = &[];
    }
    (profile, samples)
}

fn sum(values: &[i64]) -> i128 {
    values.iter().map(|value| i128::from(*value)).sum()
}

/// Returns the sums of all samples by type.
pub(crate) fn sums(request: &ExportProfilesServiceRequest) -> BTreeMap<(String, String), i128> {
    let mut sums = BTreeMap::new();
    for profile in resolve(request).unwrap() {
        let (kind, unit) = profile.sample_type;
        let total = sums.entry((kind.to_owned(), unit.to_owned())).or_insert(0);
        for sample in profile.samples {
            *total += match sample.values {
                [] => sample.timestamps.len() as i128,
                values => sum(values),
            };
        }
    }
    // Zero sums may be left out.
    sums.retain(|_, sum| *sum != 0);
    sums
}
