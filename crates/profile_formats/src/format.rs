//! Names of the formats.

use std::fmt;

/// Format of a profiler's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Folded stacks: a line for each stack.
    Folded,
    /// A recording of Java Flight Recorder: the JDK, async-profiler.
    Jfr,
    /// speedscope's JSON, sampled or evented: py-spy, dotnet-trace, rbspy.
    Speedscope,
    /// V8's JSON with a call tree: `node --cpu-prof`, Chrome.
    CpuProfile,
    /// Output of `perf script`.
    PerfScript,
    /// A CPU profile of gperftools.
    GperftoolsCpu,
    /// A heap profile as text: gperftools, Go.
    HeapText,
    /// A profile of contention, goroutines or threads as text: Go, gperftools.
    GoText,
    /// A heap profile of jemalloc.
    Jemalloc,
    /// A profile of callgrind.
    Callgrind,
}

impl Format {
    /// All formats, in the order of detection.
    pub const ALL: &[Format] = &[
        Format::Jfr,
        Format::GperftoolsCpu,
        Format::Speedscope,
        Format::CpuProfile,
        Format::HeapText,
        Format::Jemalloc,
        Format::GoText,
        Format::Callgrind,
        Format::PerfScript,
        Format::Folded,
    ];

    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Folded => "folded stacks",
            Format::Jfr => "JFR",
            Format::Speedscope => "speedscope",
            Format::CpuProfile => "cpuprofile",
            Format::PerfScript => "perf script",
            Format::GperftoolsCpu => "gperftools CPU profile",
            Format::HeapText => "text heap profile",
            Format::GoText => "text profile",
            Format::Jemalloc => "jemalloc heap profile",
            Format::Callgrind => "callgrind",
        }
    }

    /// Names of all formats, for messages.
    pub(crate) fn names() -> String {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
