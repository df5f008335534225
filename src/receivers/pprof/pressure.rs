//! Reduces profiling while the host is busy, so that profiling does not take CPU time from busy
//! services.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use metrics::Gauge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use tributary_config::{ComponentId, Problems, Validate};

/// Lengthens the intervals while the CPU is busy. Present, even empty: on.
///
/// CPU utilization is sampled every 5 seconds: the host's, or that of this process's control group
/// (cgroup v2) relative to its quota, whichever is higher. Each sample above the limit doubles the
/// intervals. Three consecutive samples at least 10 percentage points below the limit halve the
/// intervals again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adaptive {
    /// CPU utilization, in percent, up to which the intervals are as configured. From 20 to 100. Default: 70.
    pub cpu_limit: u8,
    /// Maximum factor by which an interval becomes longer, from 2 to 64. Default: 8.
    pub max_stretch: u32,
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive {
            cpu_limit: 70,
            max_stretch: 8,
        }
    }
}

impl Validate for Adaptive {
    fn validate(&self, problems: &mut Problems) {
        if !(u8::try_from(2 * MARGIN).unwrap_or(u8::MAX)..=100).contains(&self.cpu_limit) {
            problems.error(
                &["cpu_limit"],
                format!("must be between {} and 100 percent", 2 * MARGIN),
            );
        }
        if !(2..=64).contains(&self.max_stretch) {
            problems.error(&["max_stretch"], "must be between 2 and 64");
        }
    }
}

/// Current factor by which intervals are longer, computed from samples of the CPU utilization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    limit: u32,
    most: u32,
    factor: u32,
    /// Number of consecutive samples clearly below the limit.
    calm: u32,
}

impl Stretch {
    /// Creates the factor 1, for the configured intervals.
    pub(super) fn new(config: &Adaptive) -> Self {
        Stretch {
            limit: u32::from(config.cpu_limit) * 10,
            most: config.max_stretch,
            factor: 1,
            calm: 0,
        }
    }

    /// Returns the factor after one more sample of the CPU utilization, in thousandths.
    pub(super) fn add_sample(&mut self, permille: u32) -> u32 {
        if permille > self.limit {
            self.calm = 0;
            self.factor = (self.factor * 2).min(self.most);
        } else if permille <= self.limit.saturating_sub(MARGIN * 10) {
            self.calm += 1;
            if self.calm >= SAMPLES_BELOW_MARGIN {
                self.calm = 0;
                self.factor = (self.factor / 2).max(1);
            }
        } else {
            // Between the two bounds the factor does not change, to prevent oscillation.
            self.calm = 0;
        }
        self.factor
    }
}

/// Samples the CPU utilization until the future is dropped, and publishes the factor. If the
/// utilization cannot be read, the factor stays 1.
pub(super) async fn watch_cpu(config: Adaptive, receiver: ComponentId, factor: watch::Sender<u32>) {
    let gauge = metrics::gauge!(
        "tributary_receiver_pprof_interval_stretch",
        "receiver" => receiver.to_string()
    );
    let mut cpu = Cpu::of_this_process();
    adapt(&config, SAMPLE_INTERVAL, || cpu.sample(), &gauge, &factor).await;
}

async fn adapt(
    config: &Adaptive,
    every: Duration,
    mut look: impl FnMut() -> Option<u32>,
    gauge: &Gauge,
    factor: &watch::Sender<u32>,
) {
    let mut stretch = Stretch::new(config);
    gauge.set(1);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(permille) = look() else {
            continue;
        };
        let now = stretch.add_sample(permille);
        let changed = factor.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            gauge.set(now);
            tracing::info!(
                cpu_percent = permille / 10,
                stretch = now,
                "Changed the scrape intervals, because the CPU utilization changed"
            );
        }
    }
}

/// CPU utilization since the previous sample, as the system reports it.
#[derive(Debug)]
pub(super) struct Cpu {
    stat: PathBuf,
    /// Directory of the control group, if it exists.
    group: PathBuf,
    host: Option<Host>,
    used: Option<(Instant, u64)>,
}

/// Counters of `/proc/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Host {
    busy: u64,
    all: u64,
}

impl Cpu {
    /// Reads the utilization of the host and of this process's control group.
    pub(super) fn of_this_process() -> Self {
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = group.lines().find_map(|line| line.strip_prefix("0::/"));
        Cpu {
            stat: PathBuf::from("/proc/stat"),
            group: Path::new("/sys/fs/cgroup").join(path.unwrap_or_default()),
            host: None,
            used: None,
        }
    }

    /// Returns the utilization since the previous sample in thousandths, or `None` for the first
    /// sample or if no file can be read. The kernel generates these files on reading, so the reads do
    /// not block.
    pub(super) fn sample(&mut self) -> Option<u32> {
        let host = fs::read_to_string(&self.stat)
            .ok()
            .and_then(|text| host(&text));
        let of_host = match (self.host, host) {
            (Some(before), Some(now)) => permille(
                now.busy.saturating_sub(before.busy),
                now.all.saturating_sub(before.all),
            ),
            _ => None,
        };
        self.host = host;
        let of_group = self.sample_group(Instant::now());
        of_host.max(of_group)
    }

    fn sample_group(&mut self, now: Instant) -> Option<u32> {
        let read = |name: &str| fs::read_to_string(self.group.join(name)).ok();
        let used = read("cpu.stat").and_then(|text| used(&text))?;
        let before = self.used.replace((now, used));
        let (then, before) = before?;
        let allowed = allowed(&read("cpu.max")?, now.duration_since(then))?;
        permille(used.saturating_sub(before), allowed)
    }
}

fn permille(part: u64, of: u64) -> Option<u32> {
    let permille = part.saturating_mul(1000).checked_div(of)?;
    u32::try_from(permille).ok()
}

/// Parses the first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq,
/// steal; the remaining values are part of user and nice. I/O wait is not busy time. Steal time, in
/// which the hypervisor ran other guests, is busy time.
fn host(text: &str) -> Option<Host> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let mut times = [0u64; 8];
    let mut words = line.split_ascii_whitespace();
    for time in &mut times {
        *time = words.next()?.parse().ok()?;
    }
    let all = times.iter().sum();
    let [_, _, _, idle, waiting, ..] = times;
    Some(Host {
        busy: all - idle - waiting,
        all,
    })
}

/// Returns the microseconds of CPU time in `cpu.stat` of a control group.
fn used(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix("usage_usec "))?
        .trim()
        .parse()
        .ok()
}

/// Returns the microseconds of CPU time that `cpu.max` of a control group allows in `time`: a quota
/// and a period, or `max`.
fn allowed(text: &str, time: Duration) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u128, u128) = (quota.parse().ok()?, period.parse().ok()?);
    let allowed = time.as_micros().saturating_mul(quota).checked_div(period)?;
    u64::try_from(allowed).ok()
}

/// Sampling interval: short enough to react to a burst, and thousands of kernel ticks long.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Margin below the limit, in percentage points, for the intervals to become shorter again.
const MARGIN: u32 = 10;
/// Number of consecutive samples below the margin.
const SAMPLES_BELOW_MARGIN: u32 = 3;

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn config(limit: u8, most: u32) -> Adaptive {
        Adaptive {
            cpu_limit: limit,
            max_stretch: most,
        }
    }

    #[test]
    fn busy_cpu_doubles_the_interval() {
        let mut stretch = Stretch::new(&config(70, 8));
        let seen = |stretch: &mut Stretch, looks: &[u32]| -> Vec<u32> {
            looks.iter().map(|look| stretch.add_sample(*look)).collect()
        };
        assert_eq!(seen(&mut stretch, &[0, 700, 701]), [1, 1, 2]);
        assert_eq!(seen(&mut stretch, &[1000, 900, 2000]), [4, 8, 8]);
        // The factor does not change between 60 and 70 percent.
        assert_eq!(seen(&mut stretch, &[601, 650, 700, 690]), [8; 4]);
        assert_eq!(seen(&mut stretch, &[600, 0, 10]), [8, 8, 4]);
        // One sample in between restarts the count of three.
        assert_eq!(
            seen(&mut stretch, &[10, 10, 650, 10, 10, 10]),
            [4, 4, 4, 4, 4, 2]
        );
        assert_eq!(seen(&mut stretch, &[0; 9]), [2, 2, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn the_stretch_never_exceeds_its_limit() {
        let mut stretch = Stretch::new(&config(70, 6));
        let factors: Vec<u32> = (0..5).map(|_| stretch.add_sample(1000)).collect();
        assert_eq!(factors, [2, 4, 6, 6, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn factor_changes_are_reported_and_unknown_cpu_is_ignored() {
        let (sender, mut receiver) = watch::channel(1);
        let mut looks = [None, Some(900), None, Some(990), Some(650)].into_iter();
        let look = move || looks.next().flatten();
        let config = config(70, 8);
        let gauge = Gauge::noop();
        let told = async {
            let mut told = Vec::new();
            while told.len() < 2 && receiver.changed().await.is_ok() {
                told.push(*receiver.borrow_and_update());
            }
            let more = tokio::time::timeout(Duration::from_secs(60), receiver.changed()).await;
            assert!(more.is_err());
            told
        };
        tokio::select! {
            () = adapt(&config, SAMPLE_INTERVAL, look, &gauge, &sender) => {}
            told = told => assert_eq!(told, [2, 4]),
        }
    }

    #[test]
    fn cpu_use_is_the_higher_of_host_and_quota() {
        let directory = TempDir::new().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let mut cpu = Cpu {
            stat: directory.path().join("stat"),
            group: directory.path().to_owned(),
            host: None,
            used: None,
        };
        assert_eq!(cpu.sample(), None, "nothing can be read");
        write("stat", "cpu  100 0 100 700 100 0 0 0 9 9\ncpu0 1 1 1\n");
        assert_eq!(cpu.sample(), None, "nothing to compare with");
        write("stat", "cpu  150 10 120 750 150 5 5 10 9 9\ncpu0 1 1 1\n");
        assert_eq!(cpu.sample(), Some(500));
        assert_eq!(cpu.sample(), None, "no time has passed");

        write("cpu.stat", "usage_usec 1000000\nuser_usec 1\n");
        write("cpu.max", "50000 100000\n");
        let start = Instant::now();
        assert_eq!(cpu.sample_group(start), None);
        write("cpu.stat", "usage_usec 2000000\nuser_usec 1\n");
        let later = start + Duration::from_secs(4);
        assert_eq!(cpu.sample_group(later), Some(500));
        write("cpu.max", "max 100000\n");
        assert_eq!(cpu.sample_group(later + Duration::from_secs(1)), None);
    }

    #[test]
    fn malformed_kernel_file_is_rejected() {
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x", "intr 5"] {
            assert_eq!(host(text), None, "{text}");
        }
        for text in ["", "max 100000", "5", "5 0", "-5 100", "x y"] {
            assert_eq!(allowed(text, SAMPLE_INTERVAL), None, "{text}");
        }
        assert_eq!(used("user_usec 5\n"), None);
    }

    #[test]
    fn invalid_limits_are_refused() {
        let problems = |limit, most| {
            let mut problems = Problems::default();
            config(limit, most).validate(&mut problems);
            problems.found().len()
        };
        assert_eq!(problems(70, 8), 0);
        assert_eq!(problems(20, 2), 0);
        assert_eq!(problems(100, 64), 0);
        assert_eq!(problems(19, 1), 2);
        assert_eq!(problems(101, 65), 2);
    }
}
