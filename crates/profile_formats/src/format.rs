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
}

impl Format {
    /// All formats, in the order of detection.
    pub const ALL: &[Format] = &[Format::Jfr, Format::Speedscope, Format::Folded];

    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Folded => "folded stacks",
            Format::Jfr => "JFR",
            Format::Speedscope => "speedscope",
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
