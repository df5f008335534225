use std::collections::BTreeMap;

use proptest::prelude::*;

use prost::Message as _;

use super::*;
use crate::resolve::resolve;
use crate::testing_requests::{named, requests};

fn options(group_by: &[&str]) -> SummaryOptions {
    SummaryOptions {
        group_by: group_by.iter().map(|key| (*key).to_owned()).collect(),
        ..SummaryOptions::default()
    }
}

fn aggregate(
    options: &SummaryOptions,
    requests: &[ExportProfilesServiceRequest],
) -> ExportProfilesServiceRequest {
    let mut aggregator = Aggregator::new(options.clone());
    for request in requests {
        aggregator.add(request).unwrap();
    }
    let Summary {
        request, samples, ..
    } = aggregator.finish();
    assert_eq!(
        tributary_otlp::count(tributary_otlp::Signal::Profiles, &request),
        samples
    );
    ExportProfilesServiceRequest::decode(request).unwrap()
}

/// Totals by scope, type, stack (function names, innermost first) and, if requested, span.
type Totals = BTreeMap<(String, String, Vec<String>, Vec<u8>), i64>;

fn totals(request: &ExportProfilesServiceRequest, with_links: bool) -> Totals {
    let mut totals = Totals::new();
    for profile in resolve(request).unwrap() {
        for sample in &profile.samples {
            let lines = sample.stack.iter().flat_map(|frame| &frame.lines);
            let stack = lines.map(|line| line.name.to_owned()).collect();
            let link = match with_links {
                true => sample.link.0.to_vec(),
                false => Vec::new(),
            };
            let value = match sample.values {
                [] => sample.timestamps.len() as i64,
                values => values.iter().sum(),
            };
            let kind = format!("{:?} {:?}", profile.sample_type, profile.period);
            *totals
                .entry((profile.scope.0.clone(), kind, stack, link))
                .or_default() += value;
        }
    }
    totals.retain(|_, total| *total != 0);
    totals
}

fn sum(all: &[ExportProfilesServiceRequest]) -> Totals {
    let mut sum = Totals::new();
    for (key, total) in all.iter().flat_map(|request| totals(request, false)) {
        *sum.entry(key).or_default() += total;
    }
    sum.retain(|_, total| *total != 0);
    sum
}

/// Returns the time, duration and value of the only sample of the only profile.
fn only(request: &ExportProfilesServiceRequest) -> (u64, u64, i64) {
    let profiles = resolve(request).unwrap();
    let [profile] = profiles.as_slice() else {
        panic!("{} profiles", profiles.len());
    };
    let [sample] = profile.samples.as_slice() else {
        panic!("{} samples", profile.samples.len());
    };
    (profile.time.0, profile.time.1, sample.values.iter().sum())
}

fn count(request: &ExportProfilesServiceRequest) -> i64 {
    let resource = request.resource_profiles[0].resource.as_ref().unwrap();
    let count = resource.attributes.iter().find(|a| a.key == MERGED_COUNT);
    match count.unwrap().value.as_ref().unwrap().value {
        Some(Value::IntValue(count)) => count,
        _ => panic!("not a number"),
    }
}

fn level(instance: &str, time: u64, value: i64) -> ExportProfilesServiceRequest {
    let mut request = named("s", time, ["f"]);
    let resource = &mut request.resource_profiles[0];
    let attributes = &mut resource.resource.as_mut().unwrap().attributes;
    attributes.push(KeyValue {
        key: "service.instance.id".to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(instance.to_owned())),
        }),
        ..KeyValue::default()
    });
    resource.scope_profiles[0].profiles[0].samples[0].values = vec![value];
    request
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn summary_totals_are_exact_with_and_without_exemplars(
        requests in proptest::collection::vec(requests(), 1..4), exemplars in 0..4usize,
    ) {
        let options = SummaryOptions { exemplars, ..options(&[]) };
        let aggregated = aggregate(&options, &requests);
        prop_assert_eq!(totals(&aggregated, false), sum(&requests));
    }

    #[test]
    fn truncated_tree_keeps_total_of_every_type(
        requests in proptest::collection::vec(requests(), 1..4), max_nodes in 1..6usize,
    ) {
        let by_kind = |totals: Totals| {
            let mut sums: BTreeMap<(String, String), i64> = BTreeMap::new();
            for ((scope, kind, ..), total) in totals {
                *sums.entry((scope, kind)).or_default() += total;
            }
            sums.retain(|_, total| *total != 0);
            sums
        };
        let options = SummaryOptions { max_nodes, ..options(&[]) };
        let aggregated = aggregate(&options, &requests);
        prop_assert_eq!(by_kind(totals(&aggregated, false)), by_kind(sum(&requests)));
    }
}

#[test]
fn instances_are_merged_and_counted_through_summaries() {
    let requests = [level("a", 100, 1), level("b", 50, 2), level("a", 300, 4)];
    let once = aggregate(&options(&["service.name"]), &requests);
    assert_eq!(only(&once), (50, 1_000_000_250, 7));
    assert_eq!(count(&once), 2);
    let twice = aggregate(&options(&["service.name"]), &[once, level("c", 60, 1)]);
    assert_eq!((only(&twice).2, count(&twice)), (8, 3));
    let apart = aggregate(&options(&["service.instance.id"]), &requests);
    assert_eq!(apart.resource_profiles.len(), 2);
}

#[test]
fn gauges_add_over_instances_but_not_over_time() {
    let with = |gauge| SummaryOptions {
        gauges: [("cpu".to_owned(), gauge)].into(),
        ..options(&["service.name"])
    };
    let requests = [
        level("a", 100, 10),
        level("b", 100, 100),
        level("a", 300, 31),
        level("a", 200, 20),
    ];
    assert_eq!(only(&aggregate(&with(Gauge::Last), &requests)).2, 131);
    assert_eq!(only(&aggregate(&with(Gauge::Average), &requests)).2, 120);
}

#[test]
fn gauges_keep_their_position_among_counters() {
    let types = ["first_level", "adds_up", "second_level", "adds_up_too"];
    let gauges = ["first_level", "second_level"];
    let options = SummaryOptions {
        gauges: gauges.map(|name| (name.to_owned(), Gauge::Average)).into(),
        ..options(&["service.name"])
    };
    let mut request = level("a", 100, 10);
    let tables = request.dictionary.as_mut().unwrap();
    let names = tables.string_table.len() as i32;
    tables.string_table.extend(types.map(str::to_owned));
    let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
    *profiles = (names..)
        .zip(types)
        .map(|(name, _)| {
            let mut profile = profiles[0].clone();
            profile.sample_type.as_mut().unwrap().type_strindex = name;
            profile
        })
        .collect();
    // Twenty repetitions find an order that depends on hash seeds.
    for _ in 0..20 {
        let summary = aggregate(&options, &[request.clone(), request.clone()]);
        let strings = &summary.dictionary.as_ref().unwrap().string_table;
        let profiles = &summary.resource_profiles[0].scope_profiles[0].profiles;
        let kinds = profiles.iter().map(|profile| {
            strings[profile.sample_type.as_ref().unwrap().type_strindex as usize].as_str()
        });
        assert_eq!(kinds.collect::<Vec<_>>(), types);
    }
}

#[test]
fn heaviest_samples_keep_their_spans() {
    let mut requests = Vec::new();
    for value in [5, 1, 9, 3] {
        let mut request = level("a", 1, value);
        let tables = request.dictionary.as_mut().unwrap();
        tables
            .link_table
            .push(opentelemetry_proto::tonic::profiles::v1development::Link {
                trace_id: vec![value as u8; 16],
                span_id: vec![1; 8],
            });
        request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].link_index = 1;
        requests.push(request);
    }
    let options = SummaryOptions {
        exemplars: 2,
        ..options(&[])
    };
    let totals = totals(&aggregate(&options, &requests), true);
    let by_link: Vec<_> = totals
        .into_iter()
        .map(|((.., link), total)| (link.first().copied(), total))
        .collect();
    assert_eq!(by_link, [(None, 4), (Some(5), 5), (Some(9), 9)]);
}

/// Returns a heap profile like Go's: always the same stacks, with other values.
fn heap(instance: usize) -> ExportProfilesServiceRequest {
    let names: Vec<String> = (0..400)
        .map(|at| {
            format!(
                "example.com/service/package{}.(*Type).Function{at}",
                at % 20
            )
        })
        .collect();
    let mut request = named("s", 1_000, names.iter().map(String::as_str));
    let tables = request.dictionary.as_mut().unwrap();
    for (at, stack) in tables.stack_table.iter_mut().enumerate().skip(1) {
        stack.location_indices = (0..12)
            .map(|depth| 1 + ((at * (depth + 1)) % 400) as i32)
            .collect();
    }
    let scope = &mut request.resource_profiles[0].scope_profiles[0];
    let samples = &mut scope.profiles[0].samples;
    for (at, sample) in samples.iter_mut().enumerate() {
        sample.values = vec![((at * 7919 + instance * 104_729) % 1_000_003) as i64 * 512];
    }
    request
}

#[test]
fn summary_of_heap_profiles_takes_a_fifth() {
    let requests: Vec<_> = (0..10).map(heap).collect();
    let before: usize = requests.iter().map(|request| request.encoded_len()).sum();
    let summary = aggregate(&options(&["service.name"]), &requests);
    assert!(
        summary.encoded_len() * 5 <= before,
        "{} of {before}",
        summary.encoded_len()
    );
    assert_eq!(totals(&summary, false), sum(&requests));
}

#[test]
fn lightest_subtrees_become_other_frames() {
    let request = heap(0);
    let options = SummaryOptions {
        max_nodes: 50,
        ..options(&[])
    };
    let truncated = aggregate(&options, std::slice::from_ref(&request));
    let found = totals(&truncated, false);
    let mut nodes = std::collections::BTreeSet::new();
    for (_, _, stack, _) in found.keys() {
        let kept = stack.iter().filter(|name| *name != truncate::OTHER).count();
        for depth in 1..=kept {
            nodes.insert(stack[stack.len() - depth..].to_vec());
        }
    }
    assert!(!nodes.is_empty() && nodes.len() <= 50, "{}", nodes.len());
    let total = |all: &Totals, node: &[String]| -> i64 {
        let under = all
            .iter()
            .filter(|((_, _, stack, _), _)| stack.ends_with(node));
        under.map(|(_, total)| total).sum()
    };
    let before = totals(&request, false);
    for node in &nodes {
        assert_eq!(total(&found, node), total(&before, node));
    }
}

#[test]
fn series_hash_covers_group_keys_and_type() {
    let hashes = foldhash::fast::RandomState::default();
    let of = |request: &ExportProfilesServiceRequest, keys: &[&str]| {
        series(&request.encode_to_vec(), &options(keys).group_by, &hashes)
    };
    let (a, b) = (level("a", 1, 1), level("b", 2, 2));
    assert_eq!(of(&a, &["service.name"]), of(&b, &["service.name"]));
    assert_ne!(
        of(&a, &["service.instance.id"]),
        of(&b, &["service.instance.id"])
    );
    let mut other_type = a.clone();
    let strings = &mut other_type.dictionary.as_mut().unwrap().string_table;
    strings[1] = "wall".to_owned();
    assert_ne!(
        of(&a, &["service.name"]),
        of(&other_type, &["service.name"])
    );
}

/// Like [`named`], with a sample type and a duration in nanoseconds.
fn of_type(
    mut request: ExportProfilesServiceRequest,
    (kind, unit): (&str, &str),
    duration: u64,
) -> ExportProfilesServiceRequest {
    let strings = &mut request.dictionary.as_mut().unwrap().string_table;
    strings[1] = kind.to_owned();
    strings[2] = unit.to_owned();
    request.resource_profiles[0].scope_profiles[0].profiles[0].duration_nano = duration;
    request
}

#[test]
fn cumulative_values_are_gauges_and_deltas_are_added() {
    let sum = |options: &SummaryOptions, name, duration| {
        let requests = [level("a", 1, 10), level("a", 2, 15), level("b", 2, 100)];
        let requests = requests.map(|request| of_type(request, name, duration));
        only(&aggregate(options, &requests)).2
    };
    let default = options(&["service.name"]);
    let go = [
        ("alloc_space", "bytes"),
        ("alloc_objects", "count"),
        ("contentions", "count"),
        ("delay", "nanoseconds"),
    ];
    for name in go {
        assert_eq!(sum(&default, name, 0), 115, "{name:?}");
        assert_eq!(sum(&default, name, 10), 125, "{name:?}");
        let summed = SummaryOptions {
            gauges: [(name.0.to_owned(), Gauge::Sum)].into(),
            ..default.clone()
        };
        assert_eq!(sum(&summed, name, 0), 125, "{name:?}");
    }
    assert_eq!(sum(&default, ("samples", "count"), 0), 125);
}

#[test]
fn truncation_breaks_ties_within_the_limit() {
    let names: Vec<String> = (0..200).map(|at| at.to_string()).collect();
    let request = named("s", 1, names.iter().map(String::as_str));
    let options = SummaryOptions {
        max_nodes: 50,
        ..options(&[])
    };
    let found = totals(&aggregate(&options, &[request]), false);
    let is_other = |stack: &Vec<String>| *stack == [truncate::OTHER];
    let kept = found.keys().filter(|(_, _, stack, _)| !is_other(stack));
    assert_eq!(kept.count(), 50);
    assert_eq!(found.values().sum::<i64>(), 200);
}

#[test]
fn saturated_sums_are_counted() {
    let finish = |options: &SummaryOptions, values: &[i64]| {
        let mut aggregator = Aggregator::new(options.clone());
        for value in values {
            aggregator.add(&level("a", 1, *value)).unwrap();
        }
        aggregator.finish().saturated
    };
    let plain = options(&[]);
    assert_eq!(finish(&plain, &[1, 2]), 0);
    assert_eq!(finish(&plain, &[i64::MAX, 2]), 1);
    let mut wide = named("s", 1, ["a", "b", "c"]);
    for sample in &mut wide.resource_profiles[0].scope_profiles[0].profiles[0].samples {
        sample.values = vec![i64::MAX];
    }
    let mut aggregator = Aggregator::new(SummaryOptions {
        max_nodes: 1,
        ..plain
    });
    aggregator.add(&wide).unwrap();
    assert_eq!(aggregator.finish().saturated, 1);
}
