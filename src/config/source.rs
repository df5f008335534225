//! Where a value was written.

/// A place in a source: a position and how much of the line it covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    /// Which source, as an index into the sources of the report.
    pub(crate) source: u32,
    /// From 1.
    pub(crate) line: u32,
    /// In characters, from 1.
    pub(crate) column: u32,
    /// In characters; clipped to the line when it is shown.
    pub(crate) length: u32,
}

/// One text that configuration was read from.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// How the operator named it: the path, `--set a.b=c`, `env:NAME`.
    pub(crate) name: String,
    /// What it says.
    pub(crate) text: String,
    /// It is one line of the command line: only the column means something, and the line is shown.
    pub(crate) inline: bool,
    /// The text came from outside the files (an environment variable) and is not shown.
    pub(crate) hidden: bool,
}

impl Source {
    /// A line without its end, counted from 1.
    pub(crate) fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index)
    }
}
