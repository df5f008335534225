//! Resource usage of the process, under the Collector's names.

use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use crate::metric::Metric;
use crate::metric::shared::PROCESS;

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Notes the start of the process; the uptime counts from the first call.
pub(super) fn started() {
    LazyLock::force(&STARTED);
}

/// Appends the process's metrics to a page. Values that the system does not provide are left out.
pub(super) fn render(page: &mut String) {
    let uptime = STARTED.elapsed().as_secs_f64();
    let descriptors = open_descriptors().map(|open| open as f64);
    let most = getrlimit(Resource::Nofile).current;
    for (name, value) in [
        ("otelcol_process_uptime", Some(uptime)),
        ("otelcol_process_cpu_seconds", cpu_seconds()),
        (
            "otelcol_process_runtime_heap_alloc_bytes",
            status_bytes("RssAnon:").map(|bytes| bytes as f64),
        ),
        (
            "otelcol_process_runtime_total_sys_memory_bytes",
            status_bytes("VmData:").map(|bytes| bytes as f64),
        ),
        (
            "otelcol_process_memory_rss",
            status_bytes("VmRSS:").map(|bytes| bytes as f64),
        ),
        ("tributary_process_open_fds", descriptors),
        ("tributary_process_max_fds", most.map(|most| most as f64)),
    ] {
        if let Some(value) = value {
            line(page, name, value);
        }
    }
}

fn open_descriptors() -> Option<usize> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(entries.count().saturating_sub(1))
}

/// Appends one metric of [`PROCESS`] without labels.
pub(super) fn line(page: &mut String, name: &str, value: f64) {
    head(page, name);
    let _ = writeln!(page, "{name} {value}");
}

/// Appends the comments of one metric of [`PROCESS`].
pub(super) fn head(page: &mut String, name: &str) {
    if let Some(Metric { kind, help, .. }) = PROCESS.iter().find(|metric| metric.name == name) {
        let kind = kind.name();
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
}

/// proc(5): fields 14 and 15 of `stat`, in ticks of 1/100 s on every Linux that Rust supports.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().ok())
        .sum::<Option<u64>>()?;
    Some(ticks as f64 / 100.0)
}

/// proc(5): a field of `status` that is in KiB.
fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_tells_everything() {
        assert!(cpu_seconds().is_some());
        let _file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(open_descriptors().is_some_and(|open| open > 3));
        let mut page = String::new();
        render(&mut page);
        assert!(page.contains("\ntributary_process_max_fds "), "{page}");
        for field in ["VmRSS:", "RssAnon:", "VmData:"] {
            assert!(status_bytes(field).is_some_and(|bytes| bytes > 100_000));
        }
    }
}
