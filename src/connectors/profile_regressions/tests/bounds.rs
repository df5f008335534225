//! Bounds of memory, series and versions, and profiles that are skipped.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::finding::{Comparison, Finding, SeriesKey};
use super::super::history::{ClosedWindow, History, Outcome, Settings};
use super::super::measure::measure;
use super::super::shares::{FunctionSum, Shares, Sums};
use super::super::window::{Skipped, Window, WindowBounds};
use super::profile;
use super::simulation::settings;
use tributary_memory::Budget;
use tributary_profiles::dictionary::ValueType;
use tributary_profiles::folded;
use tributary_profiles::write::encode;

const MINUTE: u64 = 60_000;

fn series(service: &str) -> SeriesKey {
    SeriesKey {
        service: service.to_owned(),
        sample_type: "cpu".to_owned(),
        profile_type: "cpu:cpu:nanoseconds::".to_owned(),
    }
}

fn sums(functions: &[(&str, f64)]) -> Sums {
    let mut sums = Sums {
        samples: 1,
        ..Sums::default()
    };
    for (name, own) in functions {
        let sum = FunctionSum {
            own: *own,
            total: *own,
        };
        sums.total += own;
        sums.add(name, sum);
    }
    sums
}

fn window<'a>(at: u64, all: impl IntoIterator<Item = (&'a str, &'a str, Sums)>) -> ClosedWindow {
    let mut window = ClosedWindow {
        times: (at * MINUTE, (at + 1) * MINUTE),
        ..ClosedWindow::default()
    };
    for (service, version, sums) in all {
        let key = Arc::new(series(service));
        let versions: &mut BTreeMap<_, _> = window.series.entry(key).or_default();
        versions.insert(version.into(), sums);
    }
    window
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}{at}")).collect()
}

#[test]
fn memory_of_windows_is_bounded_and_returned() {
    let budget = Budget::new(1 << 20);
    let settings = Settings {
        max_bytes: 200_000,
        ..settings()
    };
    let mut history = History::new(settings, &budget);
    let mut skipped = 0;
    for at in 0..60 {
        // New names in each window.
        let names = names(&format!("function{at}."), 100);
        let functions: Vec<_> = names.iter().map(|name| (&**name, 1.0)).collect();
        let outcome = history.add(&window(at, [("shop", "1", sums(&functions))]));
        skipped += outcome.no_room;
        assert!(history.bytes() <= 200_000);
        assert_eq!(budget.used(), history.bytes());
    }
    assert!(skipped > 0);
    // After a day and an hour without windows the series is forgotten.
    history.add(&window(60 + 25 * 60, []));
    assert_eq!((history.bytes(), budget.used()), (0, 0));
}

#[test]
fn used_up_budget_skips_windows() {
    let mut history = History::new(settings(), &Budget::new(1));
    let outcome = history.add(&window(0, [("shop", "1", sums(&[("f", 1.0)]))]));
    assert_eq!((outcome.no_room, history.bytes()), (1, 0));
}

#[test]
fn concurrent_versions_of_an_hour_are_added_up() {
    let mut history = History::new(settings(), &Budget::new(1 << 24));
    let mut findings = Vec::new();
    // On the second day, both versions together have other shares, though each has its former ones.
    for at in 0..2 * 24 * 60 + 1 {
        let weight = if at < 24 * 60 { 1.0 } else { 3.0 };
        let first = [("f", 50.0), ("g", 30.0), ("h", 20.0)];
        let second = [
            ("f", 10.0 * weight),
            ("g", 50.0 * weight),
            ("h", 40.0 * weight),
        ];
        let all = [("shop", "1", sums(&first)), ("shop", "2", sums(&second))];
        findings.extend(history.add(&window(at, all)).findings);
    }
    findings.retain(|finding| finding.comparison == Comparison::DayBefore);
    let found: Vec<_> = findings
        .iter()
        .map(|finding| &*finding.change.function)
        .collect();
    // The share of `g` changed as the median does.
    assert_eq!(found, ["f", "h"]);
    assert!((findings[0].change.before - 0.3).abs() < 1e-3);
    assert!((findings[0].change.after - 0.2).abs() < 1e-3);
    assert_eq!(&*findings[0].after.version, "2");
}

#[test]
fn further_series_and_versions_are_skipped() {
    let settings = Settings {
        max_series: 2,
        hours: None,
        ..settings()
    };
    let mut history = History::new(settings, &Budget::new(1 << 20));
    let of = |service, version| (service, version, sums(&[("f", 1.0)]));
    let first = window(0, [of("a", "1"), of("b", "1")]);
    assert_eq!(history.add(&first).too_many, 0);
    let names = names("v", 6);
    let versions = names.iter().map(|version| of("a", version));
    let versions = versions.chain([of("c", "1")]);
    let outcome = history.add(&window(1, versions.collect::<Vec<_>>()));
    // Four versions are kept; the first one is in use, since its last window was the previous one.
    assert_eq!(outcome.too_many, 3 + 1);
    let both = window(9, [of("a", "later"), of("a", "latest")]);
    assert_eq!(history.add(&both).too_many, 1, "three were in use just now");
    let outcome = history.add(&window(10, [of("a", "latest")]));
    assert_eq!(outcome.too_many, 0);
}

#[test]
fn only_the_heaviest_functions_are_kept() {
    let functions = [("a", 50.0), ("b", 30.0), ("c", 19.0), ("d", 1.0)];
    let shares = Shares::of(&sums(&functions), (0, 1), 2, 0.05).unwrap();
    let names: Vec<_> = shares.functions.iter().map(|share| &*share.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!((shares.cut - 0.19).abs() < 1e-6);
    assert!(Shares::of(&sums(&[]), (0, 1), 2, 0.05).is_none());
}

#[test]
fn window_takes_a_profile_as_a_whole_or_not_at_all() {
    let budget = Budget::new(1 << 20);
    let due = tokio::time::Instant::now();
    let mut window = Window::new(due, 0, budget.empty_permit());
    let bounds = WindowBounds {
        max_series: 1,
        max_bytes: 2000,
    };
    let batch = |stacks: &str| profile(stacks, ("cpu", "nanoseconds"), 1, "1").into_wire();
    let mut add = |stacks: &str, service: &str| {
        let mut memory = budget.empty_permit();
        let mut content = measure(&batch(stacks).to_bytes(), 1, &mut memory);
        let mut profile = content.profiles.remove(0);
        profile.series.service = service.to_owned();
        window.add(profile, bounds)
    };
    assert_eq!(add("main;f 1\nmain;g 2\n", "shop"), Ok(()));
    assert_eq!(add("main;f 1\nmain;g 2\n", "other"), Err(Skipped::TooMany));
    let many: String = names("f", 100)
        .iter()
        .map(|name| format!("main;{name} 1\n"))
        .collect();
    assert_eq!(add(&many, "shop"), Err(Skipped::NoRoom));
    assert_eq!(add("main;f 1\n", "shop"), Ok(()));
    let versions = window.sums.series.values().next().unwrap();
    assert!((versions["1"].total - 4.0).abs() < 1e-9);
    assert!(budget.used() <= 2000);
}

#[test]
fn levels_process_counters_and_damaged_requests_are_skipped() {
    let budget = Budget::new(1 << 20);
    let skipped = |kind: (&str, &str), duration| {
        let bytes = profile("main;f 1\nmain;g 2\n", kind, duration, "1")
            .into_wire()
            .to_bytes();
        let content = measure(&bytes, 2, &mut budget.empty_permit());
        (content.profiles.len(), content.skipped)
    };
    assert_eq!(skipped(("cpu", "nanoseconds"), 1), (1, vec![]));
    assert_eq!(skipped(("alloc_space", "bytes"), 1), (1, vec![]));
    let cumulative = (0, vec![(Skipped::Cumulative, 2)]);
    assert_eq!(skipped(("alloc_space", "bytes"), 0), cumulative);
    let level = (0, vec![(Skipped::Level, 2)]);
    assert_eq!(skipped(("inuse_space", "bytes"), 1), level);
    let damaged = measure(b"damaged", 2, &mut budget.empty_permit());
    assert_eq!(damaged.skipped, [(Skipped::Unusable, 2)]);
    let bytes = profile("f 1\n", ("cpu", "nanoseconds"), 1, "1")
        .into_wire()
        .to_bytes();
    let full = measure(&bytes, 1, &mut Budget::new(1).empty_permit());
    assert_eq!(full.skipped, [(Skipped::NoRoom, 1)]);
}

#[test]
fn sample_counts_beside_durations_are_skipped() {
    let mut profiles = folded::read("main;f 1\nmain;g 2\n").unwrap();
    let dictionary = &mut profiles.dictionary;
    let mut value_type = |kind, unit| ValueType {
        kind: dictionary.string(kind),
        unit: dictionary.string(unit),
    };
    let (counts, durations) = (
        value_type("samples", "count"),
        value_type("cpu", "nanoseconds"),
    );
    let of_scope = &mut profiles.resources[0].scopes[0].profiles;
    let header = &mut of_scope[0].header;
    header.period_type = durations;
    header.sample_type = counts;
    let mut other = of_scope[0].clone();
    other.header.sample_type = durations;
    of_scope.push(other);
    let request = encode(&profiles.dictionary, &profiles.resources);
    let budget = Budget::new(1 << 20);
    let content = measure(&request, 4, &mut budget.empty_permit());
    assert_eq!(content.skipped, [(Skipped::Redundant, 2)]);
    assert_eq!(content.profiles[0].series.sample_type, "cpu");
    assert_eq!(content.profiles[0].series.service, "unknown_service");
}

/// Runs two versions in turns: five windows of one, then five of the other.
fn flapping(cost: f64, windows: u64) -> Vec<Finding> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut history = History::new(settings(), &Budget::new(1 << 24));
    let mut findings = Vec::new();
    for at in 0..windows {
        let is_newer = (at / 5) % 2 == 1;
        let mut value = |mean: f64| mean * (0.95 + 0.1 * random.f64());
        let functions = [
            ("f", value(if is_newer { 20.0 * cost } else { 20.0 })),
            ("g", value(30.0)),
            ("h", value(40.0)),
            ("i", value(10.0)),
        ];
        let version = if is_newer { "2" } else { "1" };
        let Outcome { findings: more, .. } =
            history.add(&window(at, [("shop", version, sums(&functions))]));
        findings.extend(more);
    }
    findings
}

#[test]
fn flapping_version_is_reported_once() {
    let findings = flapping(1.3, 600);
    let found: Vec<_> = findings
        .iter()
        .map(|finding| {
            (
                &*finding.before.version,
                &*finding.after.version,
                &*finding.change.function,
            )
        })
        .collect();
    assert_eq!(found, [("1", "2", "f")]);
    assert!(flapping(1.0, 600).is_empty());
}
