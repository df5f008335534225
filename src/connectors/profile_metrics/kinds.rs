//! Quantities that profiles measure, by the names and units that profilers use, and the metrics
//! derived from them.

use tributary_profiles::names::is_cumulative;

/// Quantity that a profile measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// CPU time.
    CpuTime,
    /// Elapsed time, on a CPU or not.
    WallTime,
    /// Time off the CPU.
    OffCpuTime,
    /// Bytes allocated.
    MemoryAllocated,
    /// Objects allocated.
    MemoryAllocations,
    /// Bytes in use.
    MemoryUsed,
    /// Objects in use.
    MemoryObjects,
    /// Time spent waiting for locks.
    LockWaitTime,
    /// Number of waits for a lock.
    LockContentions,
    /// Existing goroutines.
    Goroutines,
    /// Existing threads.
    Threads,
}

/// A metric of a resource, and of its functions.
#[derive(Debug)]
pub struct QuantityMetric {
    /// Measured quantity.
    pub kind: Quantity,
    /// Name after `profile.`, `profile.function.self.` and `profile.function.inclusive.`.
    pub name: &'static str,
    /// Unit in UCUM, as in OpenTelemetry's semantic conventions.
    pub unit: &'static str,
    /// Description of the metric.
    pub description: &'static str,
    /// Whether the metric is a gauge; otherwise it is a sum.
    pub is_level: bool,
    /// Whether there is a metric per function, too.
    pub of_functions: bool,
    /// Whether there is a metric per request, too.
    pub per_request: bool,
}

/// Metrics of all quantities.
pub const METRICS: [QuantityMetric; 11] = [
    metric(Quantity::CpuTime, "cpu.time", "s", "Time on a processor.")
        .functions()
        .requests(),
    metric(
        Quantity::WallTime,
        "wall.time",
        "s",
        "Time that passed, running or waiting.",
    )
    .functions(),
    metric(
        Quantity::OffCpuTime,
        "off_cpu.time",
        "s",
        "Time off the processors.",
    )
    .functions(),
    metric(
        Quantity::MemoryAllocated,
        "memory.allocated",
        "By",
        "Memory that was allocated.",
    )
    .functions()
    .requests(),
    metric(
        Quantity::MemoryAllocations,
        "memory.allocations",
        "{allocation}",
        "Allocations of memory.",
    )
    .requests(),
    metric(Quantity::MemoryUsed, "memory.used", "By", "Memory in use.")
        .level()
        .functions(),
    metric(
        Quantity::MemoryObjects,
        "memory.object.count",
        "{object}",
        "Objects in use.",
    )
    .level(),
    metric(
        Quantity::LockWaitTime,
        "lock.wait.time",
        "s",
        "Time spent waiting for locks.",
    )
    .functions(),
    metric(
        Quantity::LockContentions,
        "lock.contentions",
        "{contention}",
        "Waits for locks.",
    ),
    metric(
        Quantity::Goroutines,
        "goroutine.count",
        "{goroutine}",
        "Goroutines.",
    )
    .level()
    .functions(),
    metric(Quantity::Threads, "thread.count", "{thread}", "Threads.").level(),
];

/// Names and units of the other metrics.
pub const OTHERS: [(&str, &str); 5] = [
    (super::write::HOTNESS, "1"),
    (super::write::PROFILES, "{profile}"),
    (super::write::SAMPLES, "{sample}"),
    (super::write::FRAMES, "{frame}"),
    (super::write::REQUESTS, "{request}"),
];

const fn metric(
    kind: Quantity,
    name: &'static str,
    unit: &'static str,
    description: &'static str,
) -> QuantityMetric {
    QuantityMetric {
        kind,
        name,
        unit,
        description,
        is_level: false,
        of_functions: false,
        per_request: false,
    }
}

impl QuantityMetric {
    const fn level(self) -> Self {
        QuantityMetric {
            is_level: true,
            ..self
        }
    }

    const fn functions(self) -> Self {
        QuantityMetric {
            of_functions: true,
            ..self
        }
    }

    const fn requests(self) -> Self {
        QuantityMetric {
            per_request: true,
            ..self
        }
    }

    /// Whether the values are nanoseconds.
    pub(super) fn is_time(&self) -> bool {
        self.unit == "s"
    }
}

impl Quantity {
    pub(super) fn metric(self) -> &'static QuantityMetric {
        // The test checks that every kind has a metric.
        METRICS.get(self as usize).unwrap_or(&METRICS[0])
    }
}

/// Dimension of a unit, and its size in the base unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds.
    Time(i128),
    /// Bytes.
    Memory(i128),
    Count,
}

impl Unit {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "nanoseconds" | "nanosecond" | "ns" => Unit::Time(1),
            "microseconds" | "microsecond" | "us" => Unit::Time(1_000),
            "milliseconds" | "millisecond" | "ms" => Unit::Time(1_000_000),
            "seconds" | "second" | "s" => Unit::Time(1_000_000_000),
            "bytes" | "byte" | "By" | "B" => Unit::Memory(1),
            "kilobytes" | "kilobyte" | "KiBy" => Unit::Memory(1 << 10),
            "megabytes" | "megabyte" | "MiBy" => Unit::Memory(1 << 20),
            "count" | "objects" | "samples" | "1" | "" => Unit::Count,
            _ => return None,
        })
    }

    fn same(self, other: Unit) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

const TIME: Unit = Unit::Time(1);
const MEMORY: Unit = Unit::Memory(1);
const COUNT: Unit = Unit::Count;

/// Sample types, with underscores between words, of pprof itself and Go (runtime/pprof, and its
/// mutex and block profiles), jemalloc (jemalloc_pprof, jeprof), async-profiler and JFR, Datadog's
/// profilers, and the OpenTelemetry eBPF profiler.
const SAMPLE_TYPES: [(&str, Unit, Quantity); 34] = [
    ("cpu", TIME, Quantity::CpuTime),
    ("cpu_time", TIME, Quantity::CpuTime),
    ("itimer", TIME, Quantity::CpuTime),
    ("on_cpu", TIME, Quantity::CpuTime),
    ("wall", TIME, Quantity::WallTime),
    ("wall_time", TIME, Quantity::WallTime),
    ("off_cpu", TIME, Quantity::OffCpuTime),
    ("alloc_space", MEMORY, Quantity::MemoryAllocated),
    ("alloc_bytes", MEMORY, Quantity::MemoryAllocated),
    ("alloc_size", MEMORY, Quantity::MemoryAllocated),
    ("alloc", MEMORY, Quantity::MemoryAllocated),
    ("alloc_in_new_tlab_bytes", MEMORY, Quantity::MemoryAllocated),
    (
        "alloc_outside_tlab_bytes",
        MEMORY,
        Quantity::MemoryAllocated,
    ),
    ("alloc_sample_bytes", MEMORY, Quantity::MemoryAllocated),
    ("alloc_objects", COUNT, Quantity::MemoryAllocations),
    ("alloc_samples", COUNT, Quantity::MemoryAllocations),
    (
        "alloc_in_new_tlab_objects",
        COUNT,
        Quantity::MemoryAllocations,
    ),
    (
        "alloc_outside_tlab_objects",
        COUNT,
        Quantity::MemoryAllocations,
    ),
    ("alloc_sample_objects", COUNT, Quantity::MemoryAllocations),
    ("inuse_space", MEMORY, Quantity::MemoryUsed),
    ("space", MEMORY, Quantity::MemoryUsed),
    ("heap_space", MEMORY, Quantity::MemoryUsed),
    ("heap_live_size", MEMORY, Quantity::MemoryUsed),
    ("inuse_objects", COUNT, Quantity::MemoryObjects),
    ("objects", COUNT, Quantity::MemoryObjects),
    ("heap_live_samples", COUNT, Quantity::MemoryObjects),
    ("delay", TIME, Quantity::LockWaitTime),
    ("lock", TIME, Quantity::LockWaitTime),
    ("lock_acquire_wait", TIME, Quantity::LockWaitTime),
    ("contentions", COUNT, Quantity::LockContentions),
    ("lock_acquire", COUNT, Quantity::LockContentions),
    ("goroutine", COUNT, Quantity::Goroutines),
    ("goroutines", COUNT, Quantity::Goroutines),
    ("threadcreate", COUNT, Quantity::Threads),
];

/// Meaning of the values of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) kind: Quantity,
    /// Nanoseconds, bytes or objects per unit of the values.
    pub(super) scale: i128,
    /// Whether the values count from the start of the process.
    pub(super) cumulative: bool,
}

/// Returns the meaning of a sample type, if there is a metric for it. `duration` is the duration of
/// the profile.
pub(super) fn recognize((name, unit): (&str, &str), duration: u64) -> Option<Meaning> {
    let cumulative = is_cumulative(name, unit, duration);
    let name = name.replace('-', "_");
    let unit = Unit::of(unit)?;
    let mut all = SAMPLE_TYPES.iter();
    let (_, _, kind) = all.find(|(known, measure, _)| *known == name && measure.same(unit))?;
    Some(Meaning {
        kind: *kind,
        scale: match unit {
            Unit::Time(scale) | Unit::Memory(scale) => scale,
            Unit::Count => 1,
        },
        cumulative,
    })
}

/// Whether the values of a sample type are levels, such as memory in use.
pub(in crate::connectors) fn is_level(sample_type: &str, unit: &str) -> bool {
    let meaning = recognize((sample_type, unit), 0);
    meaning.is_some_and(|meaning| meaning.kind.metric().is_level)
}

/// Returns the meaning of a profile that only counts samples: each sample stands for a period of
/// time.
pub(super) fn recognize_by_period(
    (name, unit): (&str, &str),
    (period_name, period_unit): (&str, &str),
    period: i64,
) -> Option<Meaning> {
    if !matches!(name, "samples" | "sample" | "events") || Unit::of(unit) != Some(Unit::Count) {
        return None;
    }
    let of_period = recognize((period_name, period_unit), 0)?;
    let is_time = of_period.kind.metric().is_time();
    (is_time && period > 0).then(|| Meaning {
        scale: of_period.scale.saturating_mul(period.into()),
        ..of_period
    })
}

/// Share of a function's own value in a total.
pub(super) const HOTNESS: &str = "profile.function.hotness";
pub(super) const PROFILES: &str = "profile.received.profiles";
pub(super) const SAMPLES: &str = "profile.received.samples";
/// Frames of the samples, with names or without.
pub(super) const FRAMES: &str = "profile.received.frames";
pub(super) const REQUESTS: &str = "profile.requests";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_kinds_have_metrics() {
        for (at, metric) in METRICS.iter().enumerate() {
            assert_eq!(metric.kind as usize, at);
            assert_eq!(metric.kind.metric().name, metric.name);
        }
    }

    #[test]
    fn sample_type_is_identified_by_name_and_unit() {
        let found = |name, unit| recognize((name, unit), 0).map(|found| (found.kind, found.scale));
        assert_eq!(found("cpu", "nanoseconds"), Some((Quantity::CpuTime, 1)));
        assert_eq!(
            found("cpu-time", "milliseconds"),
            Some((Quantity::CpuTime, 1_000_000))
        );
        assert_eq!(found("cpu", "count"), None);
        assert_eq!(
            found("inuse_space", "bytes"),
            Some((Quantity::MemoryUsed, 1))
        );
        assert_eq!(found("inuse_space", "furlongs"), None);
        assert_eq!(found("sheep", "count"), None);
    }

    #[test]
    fn go_counters_are_cumulative_without_a_duration() {
        let cumulative =
            |name, unit, duration| recognize((name, unit), duration).unwrap().cumulative;
        assert!(cumulative("alloc_space", "bytes", 0));
        assert!(!cumulative("alloc_space", "bytes", 1));
        assert!(!cumulative("inuse_space", "bytes", 0));
        assert!(!cumulative("cpu", "nanoseconds", 0));
    }

    #[test]
    fn sample_counts_as_period_only_for_time() {
        let found =
            |kind, unit, period| recognize_by_period(("samples", "count"), (kind, unit), period);
        let expected = Meaning {
            kind: Quantity::CpuTime,
            scale: 50_000_000,
            cumulative: false,
        };
        assert_eq!(found("cpu", "nanoseconds", 50_000_000), Some(expected));
        assert_eq!(found("cpu", "milliseconds", 50), Some(expected));
        assert_eq!(found("cpu", "nanoseconds", 0), None);
        assert_eq!(found("space", "bytes", 512), None);
    }
}
