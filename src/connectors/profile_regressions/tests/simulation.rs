//! Simulated services: recall and precision for injected changes, and days without any.
//!
//! A simulated service has 24 functions behind six handlers. Each minute has Poisson-distributed
//! samples of each function. The load varies by half over the day, the mix of handlers by 3 % over
//! the day and with a memory of some minutes, and the cost of each function from minute to minute.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::compare::{Part, Thresholds, compare};
use super::super::finding::{Comparison, Finding, SeriesKey};
use super::super::history::{ClosedWindow, History, Settings};
use super::super::shares::{FunctionSum, Share, Shares, Sums};
use super::super::versions::Schedule;
use tributary_memory::Budget;

const HANDLERS: usize = 6;
const FUNCTIONS: usize = 24;
const MINUTE: u64 = 60_000;
const MINUTES_PER_DAY: u64 = 24 * 60;

pub(super) fn settings() -> Settings {
    let schedule = Schedule {
        first: 10,
        last: 30,
    };
    Settings {
        schedule,
        thresholds: Thresholds {
            error_rate: 0.001,
            min_change: 0.03,
            min_share: 0.01,
            looks: schedule.looks(),
        },
        versions: true,
        hours: Some(2),
        max_functions: 200,
        max_series: 10,
        max_bytes: 64 << 20,
    }
}

/// A service under a varying load.
struct Service {
    random: fastrand::Rng,
    /// Mean samples of a minute.
    samples: f64,
    shares: Vec<f64>,
    mix: [f64; HANDLERS],
    minute: u64,
    history: History,
}

impl Service {
    fn new(seed: u64, samples: f64) -> Self {
        // Few functions have most of the cost: from 18 % down to 0.9 %.
        let weights = (0..FUNCTIONS).map(|at| 1.0 / (at as f64 + 4.0));
        let total: f64 = weights.clone().sum();
        Service {
            random: fastrand::Rng::with_seed(seed),
            samples,
            shares: weights.map(|weight| weight / total).collect(),
            mix: [0.0; HANDLERS],
            minute: 0,
            history: History::new(settings(), &Budget::new(1 << 30)),
        }
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (self.random.f64(), self.random.f64());
        (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.random.f64(), 0.0);
        while product > limit {
            product *= self.random.f64();
            count += 1.0;
        }
        count
    }

    /// Runs a minute of a version in which one function costs `factor` times as much.
    fn minute(&mut self, version: &str, (changed, factor): (usize, f64)) -> Vec<Finding> {
        let day = self.minute as f64 / MINUTES_PER_DAY as f64 * std::f64::consts::TAU;
        let load = self.samples * (1.0 + 0.5 * day.sin());
        for at in 0..HANDLERS {
            self.mix[at] = 0.5 * self.mix[at] + 0.01 * self.normal();
        }
        let mut sums = Sums::default();
        for function in 0..FUNCTIONS {
            let handler = function % HANDLERS;
            let of_day = 0.03 * (day + handler as f64).sin();
            let of_minute = 0.01 * self.normal();
            let mut cost = self.shares[function] * (1.0 + of_day + self.mix[handler] + of_minute);
            if function == changed {
                cost *= factor;
            }
            let samples = self.poisson(cost * load);
            sums.total += samples;
            let add = |sums: &mut Sums, name: &str, own: f64| {
                let sum = FunctionSum {
                    own,
                    total: samples,
                };
                sums.add(name, sum);
            };
            add(&mut sums, &name(function), samples);
            add(&mut sums, &format!("handler{handler}"), 0.0);
            add(&mut sums, "main", 0.0);
        }
        let key = Arc::new(SeriesKey {
            service: "shop".to_owned(),
            sample_type: "cpu".to_owned(),
            profile_type: "cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(),
        });
        let versions = BTreeMap::from([(Arc::from(version), sums)]);
        let mut window = ClosedWindow {
            times: (self.minute * MINUTE, (self.minute + 1) * MINUTE),
            ..ClosedWindow::default()
        };
        window.series.insert(key, versions);
        self.minute += 1;
        let outcome = self.history.add(&window);
        assert_eq!((outcome.no_room, outcome.too_many), (0, 0));
        outcome.findings
    }
}

fn name(function: usize) -> String {
    format!("function{function}")
}

const UNCHANGED: (usize, f64) = (0, 1.0);

/// Findings of two days: each hour has a new version that changes nothing, and is compared with the
/// same hour of the day before.
fn unchanged_days(seed: u64) -> Vec<Finding> {
    let mut service = Service::new(seed, 6000.0);
    let mut findings = Vec::new();
    for minute in 0..2 * MINUTES_PER_DAY {
        let version = format!("1.{}", minute / 60);
        findings.extend(service.minute(&version, UNCHANGED));
    }
    findings
}

#[test]
fn unchanged_service_raises_no_finding_in_a_day() {
    const SEEDS: u64 = 20;
    let findings: Vec<_> = (0..SEEDS).flat_map(unchanged_days).collect();
    println!(
        "unchanged: {} findings in {SEEDS} x 2 days with 47 releases and 23 comparisons by the hour",
        findings.len()
    );
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Returns the fraction of comparisons with a finding, of two versions that do not differ. Shares of
/// 20 functions vary by 5 %; `memory` is the correlation of successive windows.
fn errors(memory: f64, comparisons: usize, error_rate: f64) -> f64 {
    let schedule = settings().schedule;
    let thresholds = Thresholds {
        error_rate,
        min_change: 0.0,
        ..settings().thresholds
    };
    let mut random = fastrand::Rng::with_seed(11);
    let mut levels = [0.0; 20];
    let mut window = || {
        let functions = levels.iter_mut().enumerate().map(|(at, level)| {
            let noise = (0..3).map(|_| random.f64() - 0.5).sum::<f64>();
            *level = memory * *level + (1.0 - memory * memory).sqrt() * noise;
            let share = (0.05 * (1.0 + 0.1 * *level)) as f32;
            Share {
                name: name(at).into(),
                own: share,
                total: share,
            }
        });
        Shares {
            start: 0,
            end: 0,
            cut: 0.0,
            functions: functions.collect(),
        }
    };
    let has_finding = |_: &usize| {
        let before: Vec<_> = (0..schedule.last).map(|_| window()).collect();
        let after: Vec<_> = (0..schedule.last).map(|_| window()).collect();
        let before: Vec<_> = before.iter().collect();
        let after: Vec<_> = after.iter().collect();
        let mut looks = (schedule.first..=schedule.last).step_by(schedule.first / 2);
        looks.any(|windows| !compare(&before, &after[..windows], &thresholds).is_empty())
    };
    (0..comparisons).filter(has_finding).count() as f64 / comparisons as f64
}

#[test]
fn error_rate_holds_over_all_functions_and_looks() {
    for (memory, most) in [(0.0, 0.1), (0.5, 0.2)] {
        let found = errors(memory, 500, 0.1);
        println!("error rate with a correlation of {memory} and `error_rate: 0.1`: {found}");
        assert!(found <= most, "{found}");
    }
}

/// Results of injected changes of one size.
#[derive(Debug, Default)]
struct Score {
    injected: usize,
    found: usize,
    findings: usize,
    right: usize,
    minutes: u64,
}

/// Injects a change into a random function with 3 % or more of the total, at a random time of the
/// day, once for each seed.
fn score(samples: f64, factor: f64, seeds: u64) -> Score {
    let mut score = Score::default();
    for seed in 0..seeds {
        let mut service = Service::new(1000 + seed, samples);
        service.minute = service.random.u64(..MINUTES_PER_DAY);
        let heavy = service
            .shares
            .iter()
            .filter(|share| **share >= 0.03)
            .count();
        let changed = service.random.usize(..heavy);
        for _ in 0..45 {
            assert!(service.minute("1.4", UNCHANGED).is_empty());
        }
        let mut first = None;
        for minute in 1..=60 {
            for finding in service.minute("1.5", (changed, factor)) {
                let change = &finding.change;
                let is_function = *change.function == *name(changed);
                let is_caller = change.part == Part::Total
                    && *change.function == *format!("handler{}", changed % HANDLERS);
                let is_right = (change.relative() > 0.0) == (factor > 1.0);
                score.findings += 1;
                score.right += usize::from((is_function || is_caller) && is_right);
                if is_function && is_right {
                    first = first.or(Some(minute));
                }
            }
        }
        score.injected += 1;
        score.found += usize::from(first.is_some());
        score.minutes += first.unwrap_or_default();
    }
    let share = |of: usize, all: usize| 100.0 * of as f64 / all.max(1) as f64;
    println!(
        "{:+.0} % at {samples:>6} samples a minute: recall {:5.1} % ({} of {}), precision {:5.1} % ({} of {}), found after {:.0} minutes",
        100.0 * (factor - 1.0),
        share(score.found, score.injected),
        score.found,
        score.injected,
        share(score.right, score.findings),
        score.right,
        score.findings,
        score.minutes as f64 / score.found.max(1) as f64,
    );
    score
}

#[test]
fn injected_changes_are_found_by_size() {
    const SEEDS: u64 = 50;
    // The smallest functions have 180 samples of 6000 a minute, which vary by 7.5 % by chance alone:
    // a change of 5 % or 10 % of such a function is beyond the reach of any test in 30 windows.
    for (samples, factor, least) in [
        (6_000.0, 1.05, 0),
        (60_000.0, 1.05, 35),
        (240_000.0, 1.05, 45),
        (6_000.0, 1.10, 25),
        (60_000.0, 1.10, 50),
        (240_000.0, 1.10, 50),
        (6_000.0, 1.30, 50),
        (60_000.0, 1.30, 50),
        (6_000.0, 0.70, 50),
    ] {
        let score = score(samples, factor, SEEDS);
        assert_eq!(score.right, score.findings, "precision");
        assert!(score.found >= least, "recall: {score:?}");
    }
}

#[test]
fn change_since_the_day_before_is_found_once() {
    let mut service = Service::new(5, 60_000.0);
    let mut findings = Vec::new();
    for minute in 0..2 * MINUTES_PER_DAY {
        let is_changed = minute > MINUTES_PER_DAY + 600;
        let change = if is_changed { (1, 1.3) } else { UNCHANGED };
        findings.extend(service.minute("1.4", change));
    }
    let found: Vec<_> = findings
        .iter()
        .map(|finding| {
            (
                finding.comparison,
                &*finding.change.function,
                finding.change.part,
            )
        })
        .collect();
    let day = Comparison::DayBefore;
    assert_eq!(
        found,
        [
            (day, "function1", Part::Own),
            (day, "handler1", Part::Total)
        ]
    );
    let hours = (findings[0].after.from - findings[0].before.from) / (60 * MINUTE);
    assert_eq!(hours, 24);
}
