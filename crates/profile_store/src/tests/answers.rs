//! Query results equal the merge of the same requests, before and after compaction.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use proptest::prelude::*;
use prost::Message as _;
use tributary_profiles::merge::{MergeOptions, Merger};
use tributary_profiles::testing_requests::requests;
use tributary_profiles::{folded as folded_stacks, pprof};

use super::*;
use crate::QueryError;
use crate::query::SpanSelection;
use crate::series::{NAME, PROFILE_TYPE, TYPE, UNIT};
use crate::testing::profile;

/// Folded stacks by type and unit, of the merge by `tributary_profiles` on whole requests.
fn reference(requests: &[ExportProfilesServiceRequest]) -> BTreeMap<(String, String), String> {
    let mut merger = Merger::new(MergeOptions::default());
    for request in requests {
        merger.add(request).unwrap();
    }
    let merged = merger.finish();
    let kinds = merged.iter().map(|profile| profile.header.sample_type);
    let by_kind = kinds.map(|kind| {
        let names = [kind.kind, kind.unit].map(|id| merged.dictionary.text(id).to_owned());
        (names.into(), folded_stacks::write(&merged, kind))
    });
    by_kind.filter(|(_, stacks)| !stacks.is_empty()).collect()
}

/// Folded stacks by type and unit, of a store.
fn answers(store: &ProfileStore) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for series in store.series(&query("{}")) {
        let [kind, unit] = [TYPE, UNIT].map(|label| series.get(label).to_owned());
        let selector = Selector::default().and_equal(PROFILE_TYPE, series.get(PROFILE_TYPE));
        let query = Query {
            selector,
            ..query("{}")
        };
        let stacks = folded(store, &query);
        if !stacks.is_empty() {
            all.insert((kind, unit), stacks);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn query_equals_merge_of_the_same_requests(
        requests in proptest::collection::vec((requests(), 0..40_u64, 0..4_u8), 1..8),
    ) {
        let disk = MemoryDisk::default();
        let (store, _) = open(&disk);
        let mut now = START;
        let mut added = Vec::new();
        for (request, wait, work) in requests {
            now += wait;
            append(&store, request.encode_to_vec().into(), now);
            added.push(request);
            match work {
                0 => store.flush(now * NANOS).unwrap(),
                1 => store.maintain(now * NANOS).unwrap(),
                _ => {}
            }
        }
        let expected = reference(&added);
        prop_assert_eq!(&answers(&store), &expected);
        for later in [400, 2 * 3600, 9 * 3600] {
            store.maintain((START + later) * NANOS).unwrap();
            prop_assert_eq!(&answers(&store), &expected);
        }
        prop_assert_eq!(store.stats().blocks[..2].iter().sum::<usize>(), 0);
        prop_assert_eq!(&answers(&open(&disk.after_kill()).0), &expected);
    }
}

/// Appends a profile of one of two services every second, for 20 minutes.
fn twenty_minutes(store: &ProfileStore) {
    for second in 0..1200 {
        let now = START + second;
        let service = ["cart", "shop"][(second % 2) as usize];
        let version = ["1.4.1", "1.5.0"][(second / 600) as usize];
        let stacks = format!("main;f{} {}\nmain 1\n", second % 7, second + 1);
        append(store, profile(service, version, now, &stacks), now);
        store.maintain(now * NANOS).unwrap();
    }
    store.maintain((START + 1210) * NANOS).unwrap();
}

#[test]
fn compaction_keeps_results_within_its_resolution() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    twenty_minutes(&store);
    let selectors = [
        "{}",
        "{service_name=\"cart\"}",
        "{service_version=~\"1\\\\.4.*\"}",
        "{service_name!=\"cart\", service_version=\"1.5.0\"}",
    ];
    let ranges = [(0, 600), (600, 1200), (0, 1200)];
    let ask = |store: &ProfileStore| {
        let mut all = Vec::new();
        for selector in selectors {
            for (from, to) in ranges {
                let query = within(selector, START + from, START + to);
                let totals = store
                    .totals(&query, Duration::from_secs(600), None)
                    .unwrap();
                all.push((folded(store, &query), totals));
            }
        }
        all
    };
    let before = ask(&store);
    assert!(
        before
            .iter()
            .all(|(stacks, totals)| stacks.is_empty() == totals.is_empty())
    );
    let levels = [(1300 + 3600, 1), (1300 + 7 * 3600, 2)];
    for (later, level) in levels {
        store.maintain((START + later) * NANOS).unwrap();
        assert_eq!(ask(&store), before, "level {level}");
        let blocks = store.stats().blocks;
        assert!(blocks[level] > 0 && blocks[level - 1] == 0, "{blocks:?}");
        assert_eq!(ask(&open(&disk.after_kill()).0), before);
    }
}

#[test]
fn totals_are_per_step_and_per_group() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    for (second, service, value) in [
        (0, "cart", 1),
        (12, "cart", 2),
        (15, "shop", 4),
        (25, "cart", 8),
    ] {
        let now = START + second;
        append(
            &store,
            profile(service, "1", now, &format!("main {value}\n")),
            now,
        );
    }
    let range = within("{}", START, START + 60);
    let points = |step, by: Option<&[String]>| -> Vec<(String, Vec<(u64, i64)>)> {
        let totals = store.totals(&range, Duration::from_secs(step), by).unwrap();
        let totals = totals.into_iter().map(|totals| {
            let relative = totals
                .points
                .iter()
                .map(|(time, sum)| (time / NANOS - START, *sum));
            (
                totals.labels.get("service_name").to_owned(),
                relative.collect(),
            )
        });
        totals.collect()
    };
    let all = points(20, Some(&[]));
    assert_eq!(all, [(String::new(), vec![(0, 7), (20, 8)])]);
    let by_service = points(10, Some(&["service_name".to_owned()]));
    let expected = [
        ("cart", vec![(0, 1), (10, 2), (20, 8)]),
        ("shop", vec![(10, 4)]),
    ];
    assert_eq!(
        by_service,
        expected.map(|(name, points)| (name.to_owned(), points))
    );
    assert_eq!(points(10, None), by_service);
}

#[test]
fn labels_belong_to_selected_series() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main 1\n"), START);
    store.flush(START * NANOS).unwrap();
    append(
        &store,
        profile("shop", "2", START + 60, "main 1\n"),
        START + 60,
    );
    assert_eq!(
        store.label_values("service_name", &query("{}")),
        ["cart", "shop"]
    );
    let version = query("{service.version=\"2\"}");
    assert_eq!(store.label_values("service_name", &version), ["shop"]);
    let early = within("{}", START, START + 10);
    assert_eq!(store.label_values("service_version", &early), ["1"]);
    assert_eq!(store.series(&query("{}")).len(), 2);
    let names = store.label_names(&query("{}"));
    assert!(names.contains(&NAME.to_owned()) && names.contains(&"service_version".to_owned()));
    let whole = store.label_values(PROFILE_TYPE, &query("{}"));
    assert_eq!(whole, ["samples:samples:count:samples:count"]);
    assert!(
        store
            .label_names(&query("{service_name=\"other\"}"))
            .is_empty()
    );
}

#[test]
fn profiles_of_several_types_are_not_added() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main 1\n"), START);
    let other = tributary_profiles::testing_requests::named("cart", START * NANOS, ["f"]);
    append(&store, other.encode_to_vec().into(), START);
    let refused = store.merge(&query("{}")).unwrap_err();
    assert!(
        matches!(&refused, QueryError::SeveralTypes(types) if types.len() == 2),
        "{refused}"
    );
    assert_eq!(folded(&store, &query("{__type__=\"cpu\"}")), "f 1\n");
}

#[test]
fn malformed_request_is_refused_and_stores_nothing() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    let mut request = tributary_profiles::testing_requests::named("cart", START * NANOS, ["f"]);
    request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].stack_index = 9;
    let refused = store
        .append(request.encode_to_vec().into(), START * NANOS)
        .unwrap_err();
    assert!(
        matches!(refused, crate::StoreAppendError::Malformed(_)),
        "{refused}"
    );
    assert_eq!(open(&disk.after_kill()).1.requests, 0);
}

/// A request with links to the spans of two traces, and with timestamps.
fn linked(seconds: u64) -> Bytes {
    let mut request =
        tributary_profiles::testing_requests::named("cart", seconds * NANOS, ["a", "b", "c"]);
    let tables = request.dictionary.as_mut().unwrap();
    for (trace, span) in [(1, 1), (1, 2), (2, 3)] {
        let link = opentelemetry_proto::tonic::profiles::v1development::Link {
            trace_id: vec![trace; 16],
            span_id: vec![span; 8],
        };
        tables.link_table.push(link);
    }
    let samples = &mut request.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    for (sample, link) in samples.iter_mut().zip(1..) {
        sample.link_index = link;
        sample.values = vec![10];
        sample.timestamps_unix_nano = vec![seconds * NANOS + 30_000_000 * link as u64];
    }
    request.encode_to_vec().into()
}

#[test]
fn samples_of_a_trace_or_span_are_found_at_every_age() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, linked(START), START);
    append(&store, linked(START + 1), START + 1);
    append(&store, profile("cart", "1", START, "main 1\n"), START);
    let of = |store: &ProfileStore, spans| {
        let spans = Some(spans);
        let query = Query {
            spans,
            ..query("{__type__=\"cpu\"}")
        };
        folded(store, &query)
    };
    for later in [0, 60, 2 * 3600, 8 * 3600] {
        store.maintain((START + later) * NANOS).unwrap();
        assert_eq!(of(&store, SpanSelection::Trace([1; 16])), "a 20\nb 20\n");
        assert_eq!(of(&store, SpanSelection::Ids([[3; 8]].into())), "c 20\n");
        assert_eq!(
            of(&store, SpanSelection::Ids([[1; 8], [3; 8]].into())),
            "a 20\nc 20\n"
        );
        assert_eq!(of(&store, SpanSelection::Trace([9; 16])), "");
    }
}

#[test]
fn heat_map_shows_parts_of_seconds_until_blocks_have_10_minutes() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, linked(START), START);
    append(&store, linked(START + 1), START + 1);
    let expected: Vec<_> = [0, 1]
        .iter()
        .flat_map(|second| [1, 3, 4].map(|row| (START + second, row, 10)))
        .collect();
    let all = within("{}", START, START + 60);
    for later in [0, 60, 2 * 3600] {
        store.maintain((START + later) * NANOS).unwrap();
        assert_eq!(
            store.heat_map(&all).unwrap().cells,
            expected,
            "after {later} s"
        );
        let second = within("{}", START + 1, START + 2);
        assert_eq!(store.heat_map(&second).unwrap().cells, expected[3..]);
    }
    store.maintain((START + 8 * 3600) * NANOS).unwrap();
    assert!(store.heat_map(&all).unwrap().cells.is_empty());
}

#[test]
fn late_profiles_belong_to_their_own_window() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main 1\n"), START);
    store.maintain((START + 100) * NANOS).unwrap();
    append(&store, profile("cart", "1", START, "main 2\n"), START + 100);
    let window = within("{}", START, START + 10);
    for later in [100, 200, 2 * 3600] {
        store.maintain((START + later) * NANOS).unwrap();
        assert_eq!(folded(&store, &window), "main 3\n");
    }
}

#[test]
fn exported_pprof_has_the_same_stacks() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    twenty_minutes(&store);
    let answer = store
        .merge(&query("{service_name=\"cart\"}"))
        .unwrap()
        .unwrap();
    let mut dictionary = tributary_profiles::Dictionary::new();
    let budget = tributary_memory::Budget::new(usize::MAX / 2);
    let mut permit = budget.empty_permit();
    let read = pprof::PprofReader::new().read(
        &answer.pprof(),
        &pprof::ReadOptions::default(),
        &mut permit,
        &mut dictionary,
        None,
    );
    let profiles = tributary_profiles::Profiles {
        dictionary,
        resources: vec![tributary_profiles::model::ResourceProfiles {
            scopes: vec![read.unwrap().profiles],
            ..Default::default()
        }],
    };
    let kind = tributary_profiles::top::sample_type(&profiles, None).unwrap();
    assert_eq!(folded_stacks::write(&profiles, kind), answer.folded());
    assert_eq!(answer.covered, START * NANOS..(START + 1200) * NANOS);
}

#[test]
fn two_answers_are_compared_in_one_tree() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(
        &store,
        profile("cart", "1", START, "main;a 6\nmain;b 2\n"),
        START,
    );
    append(
        &store,
        profile("cart", "2", START, "main;a 9\nmain;c 7\n"),
        START,
    );
    let answer = |version: &str| {
        let query = query(&format!("{{service_version=\"{version}\"}}"));
        store.merge(&query).unwrap().unwrap()
    };
    let tree = answer("1").tree_with(&mut answer("2")).unwrap();
    assert_eq!(tree.totals(), [8, 16]);
    let view = tree
        .view(&crate::Zoom::default(), 100, crate::view::normalized(&tree))
        .unwrap();
    let frames = view
        .frames
        .iter()
        .map(|frame| (view.name(frame), frame.total, frame.weight));
    let expected = [
        ("", [8, 16], 32.0),
        ("main", [8, 16], 32.0),
        ("a", [6, 9], 21.0),
        ("b", [2, 0], 4.0),
        ("c", [0, 7], 7.0),
    ];
    assert_eq!(frames.collect::<Vec<_>>(), expected);
}
