//! A day of many series, and the time of a query over a million samples.

use std::time::Instant;

use opentelemetry_proto::tonic::resource::v1::Resource;
use tributary_profiles::model::{Profile, ResourceProfiles, Samples};
use tributary_profiles::{Profiles, folded as folded_stacks};

use super::*;
use crate::testing::attributes;
use crate::view::Zoom;

/// A request with the same profile for many services.
fn of_services(services: u64, seconds: u64) -> Bytes {
    let mut profiles = folded_stacks::read("main;work 3\nmain 1\n").unwrap();
    let mut scopes = profiles.resources.remove(0).scopes;
    scopes[0].profiles[0].header.time = seconds * NANOS;
    profiles.resources = (0..services)
        .map(|service| ResourceProfiles {
            resource: Some(Resource {
                attributes: attributes(&[("service.name", &format!("service-{service}"))]),
                ..Resource::default()
            }),
            scopes: scopes.clone(),
            ..ResourceProfiles::default()
        })
        .collect();
    profiles.encode()
}

#[test]
fn thousand_series_of_a_day_stay_within_the_bounds() {
    const SERIES: u64 = 1000;
    const EVERY: u64 = 3600;
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    let mut requests: i64 = 0;
    for seconds in (0..DAY).step_by(EVERY as usize) {
        let now = START + seconds;
        append(&store, of_services(SERIES, now), now);
        requests += 1;
        store.maintain((now + 10) * NANOS).unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.series, SERIES as usize);
    assert_eq!(
        (stats.dropped_blocks, stats.early_compactions),
        (0, 0),
        "{stats:?}"
    );
    assert_eq!(stats.blocks.iter().sum::<usize>() as i64, requests);
    assert!(
        stats.blocks[2] > 15 && stats.blocks[1] > 3 && stats.blocks[0] > 0,
        "{stats:?}"
    );
    assert!(stats.memory < 256 << 20, "{stats:?}");
    let one = folded(&store, &query("{service_name=\"service-77\"}"));
    assert_eq!(
        one,
        format!("main {requests}\nmain;work {}\n", 3 * requests)
    );
    let (again, recovered) = open(&disk.after_kill());
    assert_eq!(recovered.damaged, 0);
    assert_eq!(again.series(&query("{}")).len(), SERIES as usize);
    assert_eq!(folded(&again, &query("{service_name=\"service-77\"}")), one);
}

/// A request with samples of random paths through a program of `functions` functions.
fn samples(random: &mut fastrand::Rng, functions: u64, samples: u64, seconds: u64) -> Bytes {
    let mut stacks = String::new();
    for _ in 0..samples {
        stacks.push_str("main");
        let mut function = random.u64(0..8);
        for depth in 0..random.u64(8..24) {
            stacks.push_str(&format!(";package/of/module.(*Type).function{function}"));
            // A function near the root calls three other functions, deeper functions call one.
            let branch = if depth < 6 { random.u64(0..3) } else { 0 };
            function = (function * 3 + branch) % functions;
        }
        stacks.push_str(" 10000000\n");
    }
    let mut profiles: Profiles = folded_stacks::read(&stacks).unwrap();
    let profile: &mut Profile = &mut profiles.resources[0].scopes[0].profiles[0];
    profile.header.time = seconds * NANOS;
    // Equal stacks were added up; each stack becomes a separate sample again.
    let mut all = Samples::default();
    for sample in profile.samples.iter() {
        for _ in 0..sample.values[0] / 10_000_000 {
            all.push(sample.key, &[10_000_000], &[]);
        }
    }
    profile.samples = all;
    let resource = profiles.resources[0].resource.as_mut().unwrap();
    resource.attributes = attributes(&[("service.name", "cart")]);
    profiles.encode()
}

/// Measures a query over a million samples: 100 requests of 10,000. In release builds the result must be complete
/// within 500 ms: `cargo test --release -p tributary-profile-store million -- --nocapture`.
#[test]
fn million_samples_become_a_flame_graph_in_half_a_second() {
    let count = if cfg!(debug_assertions) { 100 } else { 10_000 };
    let mut random = fastrand::Rng::with_seed(7);
    let disk = MemoryDisk::default();
    // The result has more stacks than the default limit allows.
    let large = ProfileStoreOptions {
        max_memory: 2 << 30,
        ..options()
    };
    let (store, _) = open_with(&disk, large);
    let whole = Query {
        limits: crate::QueryLimits {
            bytes: 512 << 20,
            ..crate::QueryLimits::default()
        },
        ..query("{service_name=\"cart\"}")
    };
    let mut requests = Vec::new();
    for request in 0..100 {
        let now = START + 3 * request;
        requests.push((now, samples(&mut random, 300, count, now)));
    }
    let (mut appending, mut flushing) = (Duration::ZERO, Duration::ZERO);
    for (now, request) in requests {
        let began = Instant::now();
        append(&store, request, now);
        appending += began.elapsed();
        let began = Instant::now();
        store.maintain(now * NANOS).unwrap();
        flushing += began.elapsed();
    }
    let mut best = Duration::MAX;
    let mut lines = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let mut answer = store.merge(&whole).unwrap().unwrap();
        let merged = began.elapsed();
        let tree = answer.tree().unwrap();
        let built = began.elapsed();
        let view = tree.view(&Zoom::default(), 10_000, [1.0; 2]).unwrap();
        let viewed = began.elapsed();
        let json = serde_json::to_string(&view).unwrap();
        let all = began.elapsed();
        let zoom = Zoom {
            path: vec!["main".to_owned()],
            skip: 0,
        };
        let zooming = Instant::now();
        tree.view(&zoom, 10_000, [1.0; 2]).unwrap();
        assert_eq!(
            tree.totals()[0],
            100 * i64::try_from(count).unwrap() * 10_000_000
        );
        lines.push(format!(
            "merged {merged:?}, tree of {} nodes {built:?}, view {viewed:?}, JSON of {} bytes {all:?}, zoom {:?}",
            tree.len(),
            json.len(),
            zooming.elapsed(),
        ));
        best = best.min(all);
    }
    println!(
        "{} samples: append {appending:?}, flush {flushing:?}",
        100 * count
    );
    println!("{}\n{:?}", lines.join("\n"), store.stats());
    assert!(
        cfg!(debug_assertions) || best < Duration::from_millis(500),
        "{best:?}"
    );
}
