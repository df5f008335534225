//! Properties of generated requests.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use prost::Message as _;

use super::check::{Rule, Severity, check};
use super::compact::Compactor;
use super::cut::{halve, split};
use super::dictionary::Dictionary;
use super::fault::ProfileFault;
use super::ingest::ingest;
use super::join::join;
use super::merge::{MergeOptions, Merger};
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::reindex::CopiedEntries;
use super::relocations::Addresses;
use super::resolve::{self, resolve};
use super::testing_requests::requests;
use super::testing_subjects::about;
use crate::entry::{Function, Line, Location, Mapping, SampleKey, ValueType};
use tributary_otlp::{Limit, Signal};

fn compact(requests: &[&ExportProfilesServiceRequest]) -> Profiles {
    let mut compactor = Compactor::new();
    for request in requests {
        compactor.add(request).unwrap();
    }
    compactor.finish()
}

fn merge(requests: &[&ExportProfilesServiceRequest]) -> Profiles {
    let mut merger = Merger::new(MergeOptions::default());
    for request in requests {
        merger.add(request).unwrap();
    }
    merger.finish()
}

fn request(profiles: &Profiles) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest::decode(profiles.encode()).unwrap()
}

fn encoded(request: &ExportProfilesServiceRequest) -> Bytes {
    request.encode_to_vec().into()
}

fn decoded(request: &Bytes) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest::decode(request.clone()).unwrap()
}

/// Returns every sample with its profile, without the profile id.
fn all_samples(request: &ExportProfilesServiceRequest) -> Vec<resolve::ResolvedProfile<'_>> {
    let mut all = Vec::new();
    for mut profile in resolve(request).unwrap() {
        profile.profile_id = &[];
        for mut sample in std::mem::take(&mut profile.samples) {
            if let (trace, span) = sample.link
                && trace.iter().chain(span).all(|byte| *byte == 0)
            {
                sample.link = (&[], &[]);
            }
            let samples = vec![sample];
            all.push(resolve::ResolvedProfile {
                samples,
                ..profile.clone()
            });
        }
    }
    all
}

/// Subject of a sample: stack, attributes, link, and kinds of observations.
type Subject<'r> = (
    Vec<resolve::ResolvedFrame<'r>>,
    Vec<resolve::ResolvedAttribute<'r>>,
    (&'r [u8], &'r [u8]),
    (bool, bool),
);
/// Total, and values with their times.
type Observations = (i64, Vec<(u64, Option<i64>)>);

/// Content of profiles, in an order independent of the encoding.
fn meaning(
    request: &ExportProfilesServiceRequest,
) -> Vec<(
    resolve::ResolvedProfile<'_>,
    BTreeMap<Subject<'_>, Observations>,
)> {
    let mut meaning: Vec<_> = resolve(request)
        .unwrap()
        .into_iter()
        .map(|mut profile| {
            let mut samples = BTreeMap::<Subject<'_>, Observations>::new();
            for sample in std::mem::take(&mut profile.samples) {
                let none = |id: &[u8]| id.iter().all(|byte| *byte == 0);
                let link = match sample.link {
                    (trace, span) if none(trace) && none(span) => (&[][..], &[][..]),
                    link => link,
                };
                let shape = (sample.values.is_empty(), sample.timestamps.is_empty());
                let subject = (sample.stack, sample.attributes, link, shape);
                let (total, times) = samples.entry(subject).or_default();
                if sample.timestamps.is_empty() {
                    *total += sample.values.iter().sum::<i64>();
                }
                let value = |at: usize| sample.values.get(at).copied();
                let observed = sample.timestamps.iter().enumerate();
                times.extend(observed.map(|(at, time)| (*time, value(at))));
                times.sort_unstable();
            }
            (profile, samples)
        })
        .collect();
    meaning.sort();
    meaning
}

/// Totals of all samples, by resource, type, subject and so on.
type Totals = BTreeMap<(Vec<u8>, String, [String; 4]), BTreeMap<String, i64>>;

fn totals(profiles: &Profiles) -> Totals {
    let text = |id| profiles.dictionary.text(id).to_owned();
    let mut totals = Totals::new();
    for resource in &profiles.resources {
        let key = resource.resource.as_ref().unwrap().encode_to_vec();
        for scope in &resource.scopes {
            let name = &scope.scope.as_ref().unwrap().name;
            for profile in &scope.profiles {
                let (sample, period) = (profile.header.sample_type, profile.header.period_type);
                let kinds = [sample.kind, sample.unit, period.kind, period.unit].map(text);
                let entry = totals
                    .entry((key.clone(), name.clone(), kinds))
                    .or_default();
                for sample in profile.samples.iter() {
                    let about = about(&profiles.dictionary, sample.key);
                    *entry.entry(about).or_default() += sample.total().0;
                }
            }
        }
    }
    for samples in totals.values_mut() {
        samples.retain(|_, total| *total != 0);
    }
    totals
}

fn assert_well_formed(request: &ExportProfilesServiceRequest) {
    let report = check(request);
    let broken = report
        .findings()
        .iter()
        .find(|found| found.rule.is_structural() || found.rule.severity() == Severity::Error);
    assert_eq!(broken, None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn generated_requests_break_no_must_rule(request in requests()) {
        let report = check(&request);
        prop_assert_eq!(report.count(Severity::Error), 0, "{:?}", report.findings());
    }

    #[test]
    fn compaction_keeps_meaning_without_duplicates_or_orphans(
        requests in proptest::collection::vec(requests(), 1..4),
    ) {
        let all: Vec<_> = requests.iter().collect();
        let compacted = request(&compact(&all));
        let mut expected: Vec<_> = all.iter().flat_map(|request| meaning(request)).collect();
        expected.sort();
        prop_assert_eq!(meaning(&compacted), expected);
        assert_well_formed(&compacted);
        let report = check(&compacted);
        prop_assert_eq!(report.counts().get(&Rule::DuplicateSample), None);
    }

    #[test]
    fn join_keeps_every_sample_in_one_dictionary(
        requests in proptest::collection::vec(requests(), 1..5),
    ) {
        let parts: Vec<Bytes> = requests.iter().map(encoded).collect();
        let joined = join(&parts, usize::MAX);
        prop_assert_eq!(joined.len(), 1);
        prop_assert_eq!(&joined[0].parts, &(0..parts.len()).collect::<Vec<_>>());
        let joined = decoded(&joined[0].request);
        let mut expected: Vec<_> = requests.iter().flat_map(all_samples).collect();
        expected.sort();
        let mut found = all_samples(&joined);
        found.sort();
        prop_assert_eq!(found, expected);
        if parts.len() > 1 {
            assert_well_formed(&joined);
        }
    }

    #[test]
    fn oversized_join_stays_several_requests(
        requests in proptest::collection::vec(requests(), 2..6),
    ) {
        let parts: Vec<Bytes> = requests.iter().map(encoded).collect();
        let joined = join(&parts, 1500);
        for joined in &joined {
            prop_assert!(joined.parts.len() == 1 || joined.request.len() <= 1500);
        }
        let mut seen: Vec<usize> = joined.iter().flat_map(|joined| joined.parts.clone()).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..parts.len()).collect::<Vec<_>>());
    }

    #[test]
    fn split_keeps_every_sample_in_parts_within_limit(
        request in requests(), items in 1..20usize, bytes in 200..2000usize,
    ) {
        let whole = encoded(&request);
        let limit = Limit { items, bytes };
        let pieces = split(&whole, limit);
        let mut found = Vec::new();
        let fits = whole.len() <= bytes && all_samples(&request).len() <= items;
        let decoded: Vec<_> = pieces.iter().map(|(_, piece)| decoded(piece)).collect();
        for ((count, piece), decoded) in pieces.iter().zip(&decoded) {
            let samples = all_samples(decoded);
            prop_assert_eq!(*count, samples.len());
            prop_assert!(samples.len() <= items);
            prop_assert!(piece.len() <= bytes || samples.len() <= 1, "{} bytes", piece.len());
            if !fits {
                assert_well_formed(decoded);
                let report = check(decoded);
                prop_assert_eq!(report.counts().get(&Rule::Orphan), None);
            }
            found.extend(samples);
        }
        prop_assert_eq!(found, all_samples(&request));
    }

    #[test]
    fn halves_are_split_between_profiles(request in requests()) {
        let whole = resolve(&request).unwrap();
        let Some(halves) = halve(&encoded(&request)) else {
            prop_assert_eq!(whole.len(), 1);
            return Ok(());
        };
        let halves = halves.map(|(_, half)| decoded(&half));
        let found: Vec<_> = halves.iter().map(|half| resolve(half).unwrap().len()).collect();
        prop_assert!(found.iter().all(|count| *count > 0));
        prop_assert_eq!(found.iter().sum::<usize>(), whole.len());
        prop_assert_eq!(halves.iter().flat_map(all_samples).collect::<Vec<_>>(), all_samples(&request));
    }

    #[test]
    fn compact_request_stays_unchanged(requests in proptest::collection::vec(requests(), 1..4)) {
        let once = compact(&requests.iter().collect::<Vec<_>>());
        let twice = compact(&[&request(&once)]);
        prop_assert_eq!(once.encode(), twice.encode());
    }

    #[test]
    fn merge_keeps_sums_in_any_order(
        a in requests(), b in requests(), c in requests(),
    ) {
        let merged = merge(&[&a, &b, &c]);
        assert_well_formed(&request(&merged));
        let expected = totals(&merged);
        let mut dictionary = Dictionary::new();
        let mut resources = Vec::new();
        for request in [&a, &b, &c] {
            let encoded = request.encode_to_vec();
            let ingested = ingest(&encoded, &mut dictionary, &mut CopiedEntries::default(), None).unwrap();
            resources.extend(ingested.resources);
        }
        // Profiles whose samples add up to zero stay.
        prop_assert_eq!(&totals(&Profiles { dictionary, resources }), &expected);
        prop_assert_eq!(&totals(&merge(&[&c, &a, &b])), &expected);
        let first = request(&merge(&[&a, &b]));
        prop_assert_eq!(&totals(&merge(&[&first, &c])), &expected);
        let last = request(&merge(&[&b, &c]));
        prop_assert_eq!(&totals(&merge(&[&a, &last])), &expected);
    }

    #[test]
    fn merge_ignores_load_addresses(
        original in requests(), by in 1_u64..1000,
    ) {
        let mut moved = original.clone();
        let tables = moved.dictionary.as_mut().unwrap();
        for mapping in tables.mapping_table.iter_mut().skip(1) {
            mapping.memory_start += by * 0x1000;
            mapping.memory_limit += by * 0x1000;
        }
        for location in &mut tables.location_table {
            if location.mapping_index != 0 {
                location.address += by * 0x1000;
            }
        }
        let samples = |profiles: &Profiles| profiles.samples();
        let alone = merge(&[&original]);
        let both = merge(&[&original, &moved]);
        prop_assert_eq!(samples(&both), samples(&alone));
        let doubled = merge(&[&original, &original]);
        prop_assert_eq!(totals(&both), totals(&doubled));
    }

    #[test]
    fn damaged_file_is_refused_or_repaired(
        original in requests(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = original.encode_to_vec();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let cut = cut.index(bytes.len() * 8).min(bytes.len());
        let mut from_bytes = Compactor::new();
        let added = from_bytes.add_encoded(&bytes[..cut]);
        let valid = tributary_otlp::validate(Signal::Profiles, &bytes[..cut]).is_ok();
        if let Ok(damaged) = ExportProfilesServiceRequest::decode(&bytes[..cut]) {
            let report = check(&damaged);
            let found = |rule| report.counts().contains_key(&rule);
            let mut compactor = Compactor::new();
            let again = compactor.add(&damaged);
            if valid {
                prop_assert_eq!(added, again, "as it was and encoded anew");
            }
            match again {
                // With debug assertions, writing checks the structure.
                Ok(()) => {
                    let written = compactor.finish().encode();
                    prop_assert!(!valid || written == from_bytes.finish().encode());
                }
                Err(ProfileFault::Dangling { .. }) => prop_assert!(found(Rule::IndexOutOfRange)),
                Err(ProfileFault::Unequal { .. }) => prop_assert!(found(Rule::UnequalObservations)),
                Err(ProfileFault::Expansion) => prop_assert!(found(Rule::Expansion)),
                Err(ProfileFault::Malformed(place)) => prop_assert!(false, "{place}"),
            }
            drop(resolve(&damaged));
        }
    }
}

#[test]
fn failed_request_does_not_change_the_sum() {
    let mut merger = Merger::new(MergeOptions {
        addresses: Addresses::Exact,
        ..MergeOptions::default()
    });
    let runner = &mut proptest::test_runner::TestRunner::deterministic();
    let good = requests().new_tree(runner).unwrap().current();
    merger.add(&good).unwrap();
    let (counts, expected) = (merger.counts(), request(&merge(&[&good])));
    let mut bad = good.clone();
    let scope = bad
        .resource_profiles
        .last_mut()
        .unwrap()
        .scope_profiles
        .last_mut()
        .unwrap();
    let samples = &mut scope.profiles.last_mut().unwrap().samples;
    samples.last_mut().unwrap().stack_index = 999;
    assert!(matches!(
        merger.add(&bad),
        Err(ProfileFault::Dangling { index: 999, .. })
    ));
    assert_eq!(merger.counts(), counts);
    assert_eq!(meaning(&request(&merger.finish())), meaning(&expected));
}

#[test]
fn lossy_request_stays_alone_and_unchanged() {
    let good = |value| {
        let sample = proto::Sample {
            values: vec![value],
            ..Default::default()
        };
        profile(vec![sample])
    };
    let mut dangling = good(1);
    dangling.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].stack_index = 9;
    let unobserved = profile(vec![proto::Sample::default(); 2]);
    let mut later = encoded(&good(1)).to_vec();
    later.extend([15 << 3 | 2, 1, b'x']);
    let parts = [
        encoded(&good(1)),
        encoded(&dangling),
        encoded(&good(2)),
        encoded(&unobserved),
        later.into(),
        Bytes::from_static(b"\xff"),
    ];
    let mut joined = join(&parts, usize::MAX);
    joined.sort_by_key(|joined| joined.parts.clone());
    let groups: Vec<_> = joined.iter().map(|joined| joined.parts.clone()).collect();
    assert_eq!(groups, [vec![0, 2], vec![1], vec![3], vec![4], vec![5]]);
    for joined in &joined[1..] {
        assert_eq!(joined.request, parts[joined.parts[0]]);
    }
    let limit = Limit {
        items: 1,
        bytes: usize::MAX,
    };
    let whole = encoded(&unobserved);
    assert_eq!(split(&whole, limit), [(2, whole.clone())]);
}

#[test]
fn parts_of_a_profile_have_stable_distinct_ids() {
    let sample = proto::Sample {
        values: vec![1],
        ..Default::default()
    };
    let limit = Limit {
        items: 2,
        bytes: usize::MAX,
    };
    let cut = |id: Option<u8>, time| {
        let mut request = profile(vec![sample.clone(); 6]);
        let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
        profile.profile_id = id.map_or(Vec::new(), |id| vec![id; 16]);
        profile.time_unix_nano = time;
        profile.original_payload_format = "pprof".to_owned();
        profile.original_payload = vec![1];
        let pieces = split(&encoded(&request), limit);
        let ids = pieces.iter().map(|(_, piece)| {
            let profile = decoded(piece).resource_profiles[0].scope_profiles[0].profiles[0].clone();
            assert!(profile.original_payload.is_empty());
            profile.profile_id
        });
        ids.collect::<Vec<_>>()
    };
    for (id, time) in [(Some(7), 0), (None, 5)] {
        let ids = cut(id, time);
        assert_eq!(ids, cut(id, time));
        let different: HashSet<_> = ids.iter().collect();
        assert_eq!(different.len(), 3);
        assert!(!ids.contains(&vec![7; 16]));
    }
    assert_ne!(cut(Some(7), 0), cut(Some(8), 0));
    // Without an id and a time, the profile may be another profile with the same content.
    assert!(cut(None, 0).iter().all(Vec::is_empty));
}

#[test]
fn shared_dictionary_bounds_the_size_of_parts() {
    let sample = proto::Sample {
        stack_index: 1,
        values: vec![1],
        ..Default::default()
    };
    let mut request = profile(vec![sample; 1000]);
    let tables = request.dictionary.get_or_insert_default();
    tables.location_table.push(Default::default());
    tables.stack_table.push(Default::default());
    for address in 1..1000 {
        tables.location_table.push(proto::Location {
            address,
            ..Default::default()
        });
    }
    tables.stack_table.push(proto::Stack {
        location_indices: (1..1000).collect(),
    });
    let whole = encoded(&request);
    let limit = Limit {
        items: usize::MAX,
        bytes: 100,
    };
    let pieces = split(&whole, limit);
    let bytes: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
    assert!(
        pieces.len() > 1 && bytes < 6 * whole.len().max(64 << 10),
        "{bytes}"
    );
    assert_eq!(pieces.iter().map(|(items, _)| items).sum::<usize>(), 1000);
}

fn profile(samples: Vec<proto::Sample>) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![proto::Profile {
                    samples,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }],
        dictionary: Some(proto::ProfilesDictionary::default()),
    }
}

/// Returns a heap profile of a service of this age: with each step, the service allocates from a few more stacks.
fn heap(age: u64) -> Bytes {
    let mut profiles = Profiles::default();
    let dictionary = &mut profiles.dictionary;
    let filename = dictionary.string("/usr/local/bin/service");
    let mapping = dictionary.mapping(Mapping {
        start: 0x40_0000,
        limit: 0xc0_0000,
        filename,
        ..Mapping::default()
    });
    let locations: Vec<_> = (0..350 + 10 * age)
        .map(|at| {
            let name = format!(
                "example.com/service/internal/package{}.(*Type{at}).Method",
                at % 40
            );
            let file = format!("/build/service/internal/package{}/type{at}.go", at % 40);
            let function = Function {
                name: dictionary.string(&name),
                system_name: dictionary.string(&name),
                filename: dictionary.string(&file),
                start_line: 0,
            };
            let line = Line {
                function: dictionary.function(function),
                line: 10 + at.cast_signed(),
                column: 0,
            };
            let lines = dictionary.lines(&[line]);
            dictionary.location(Location {
                mapping,
                address: 0x40_0000 + 64 * at,
                lines,
                ..Location::default()
            })
        })
        .collect();
    let keys: Vec<SampleKey> = (0..80 + 2 * age)
        .map(|at| {
            let places = locations.iter().cycle().skip(at as usize * 3);
            let stack: Vec<_> = places.step_by(7).take(12).copied().collect();
            SampleKey {
                stack: dictionary.stack(&stack),
                ..SampleKey::default()
            }
        })
        .collect();
    let types = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    let of_type = types.map(|(kind, unit)| {
        let mut samples = Samples::default();
        // Most of the allocated memory was freed.
        let step = if kind.starts_with("inuse") { 4 } else { 1 };
        for (key, at) in keys.iter().zip(1_u64..).step_by(step) {
            samples.push(*key, &[(at * 500 + age).cast_signed()], &[]);
        }
        let sample_type = ValueType {
            kind: dictionary.string(kind),
            unit: dictionary.string(unit),
        };
        let header = Header {
            sample_type,
            time: 1_700_000_000_000_000_000 + age * 10_000_000_000,
            ..Header::default()
        };
        Profile { header, samples }
    });
    profiles.resources = vec![ResourceProfiles {
        scopes: vec![ScopeProfiles {
            profiles: of_type.into(),
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }];
    profiles.encode()
}

#[test]
fn joined_heap_profiles_take_a_fifth() {
    let parts: Vec<Bytes> = (0..10).map(heap).collect();
    let before: usize = parts.iter().map(Bytes::len).sum();
    let joined = join(&parts, usize::MAX);
    assert_eq!(joined.len(), 1);
    let after = joined[0].request.len();
    assert!(after * 5 <= before, "{before} bytes became {after}");
    let mut merger = Merger::new(MergeOptions::default());
    for part in &parts {
        merger.add_encoded(part).unwrap();
    }
    let merged = merger.finish().encode();
    assert!(
        merged.len() < after,
        "{after} bytes became {}",
        merged.len()
    );
}

#[test]
fn merge_memory_follows_the_result() {
    let parts: Vec<Bytes> = (0..10).map(heap).collect();
    let bytes = |times: usize| {
        let mut merger = Merger::new(MergeOptions::default());
        for part in parts.iter().cycle().take(parts.len() * times) {
            merger.add_encoded(part).unwrap();
        }
        merger.bytes()
    };
    assert_eq!(bytes(1), bytes(20));
}
