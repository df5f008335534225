//! Resource usage of the process, under the Collector's names.

use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Notes the start of the process; the uptime counts from the first call.
pub(super) fn started() {
    LazyLock::force(&STARTED);
}

/// Appends the process's metrics to a page. What the system does not tell is left out.
pub(super) fn render(page: &mut String) {
    let uptime = STARTED.elapsed().as_secs_f64();
    line(
        page,
        "otelcol_process_uptime",
        "counter",
        "Uptime of the process in seconds",
        uptime,
    );
    if let Some(seconds) = cpu_seconds() {
        let help = "Total CPU user and system time in seconds";
        line(
            page,
            "otelcol_process_cpu_seconds",
            "counter",
            help,
            seconds,
        );
    }
    for (name, field, help) in [
        (
            "otelcol_process_runtime_heap_alloc_bytes",
            "RssAnon:",
            "Bytes of anonymous memory that are resident: heaps and stacks",
        ),
        (
            "otelcol_process_runtime_total_sys_memory_bytes",
            "VmData:",
            "Bytes of private memory that the process has obtained from the system",
        ),
    ] {
        if let Some(bytes) = status_bytes(field) {
            line(page, name, "gauge", help, bytes as f64);
        }
    }
    if let Some(bytes) = status_bytes("VmRSS:") {
        let help = "Total physical memory (resident set size) in bytes";
        line(
            page,
            "otelcol_process_memory_rss",
            "gauge",
            help,
            bytes as f64,
        );
    }
    descriptors(page);
}

/// Appends the number of open file descriptors, and how many there may be.
fn descriptors(page: &mut String) {
    if let Some(open) = open_descriptors() {
        let help = "Open file descriptors: connections, listeners and files";
        line(
            page,
            "tributary_process_open_fds",
            "gauge",
            help,
            open as f64,
        );
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "The most file descriptors that may be open (RLIMIT_NOFILE)";
        line(
            page,
            "tributary_process_max_fds",
            "gauge",
            help,
            most as f64,
        );
    }
}

/// Without the one that counting takes.
fn open_descriptors() -> Option<usize> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(entries.count().saturating_sub(1))
}

/// Appends one metric without labels.
pub(super) fn line(page: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let _ = writeln!(
        page,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
    );
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
