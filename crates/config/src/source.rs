//! Where a value was written.

/// A place in a source: a position and how much of the line it covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Which source, as an index into the sources of the report.
    pub source: u32,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// In characters; clipped to the line when it is shown.
    pub length: u32,
}

/// One text that configuration was read from.
#[derive(Debug, Clone)]
pub struct Source {
    /// How the operator named it: the path, `--set a.b=c`, `env:NAME`.
    pub name: String,
    /// What it says.
    pub text: String,
    /// It is one line of the command line: only the column means something, and the line is shown.
    pub inline: bool,
    /// The text came from outside the files (an environment variable) and is not shown.
    pub hidden: bool,
}

impl Source {
    /// A line without its end, counted from 1.
    pub fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index)
    }
}
