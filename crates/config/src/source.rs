//! Positions of values in sources.

/// A range in one line of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index of the source in the report.
    pub source: u32,
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length in characters. Clipped to the line for display.
    pub length: u32,
}

/// A text from which configuration was read.
#[derive(Debug, Clone)]
pub struct SourceText {
    /// Name that the operator used: the path, `--set a.b=c`, `env:NAME`.
    pub name: String,
    /// Content of the source.
    pub text: String,
    /// Whether the source is an argument of the command line. Only the column is meaningful then, and the line is
    /// shown.
    pub inline: bool,
    /// Whether the text is from outside the files (an environment variable) and must not be shown.
    pub hidden: bool,
}

impl SourceText {
    /// Returns a line without its line end, counted from 1.
    pub fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index)
    }
}
