//! Reasons why a file cannot be read.

use std::fmt;

use tributary_compression::decompress::DecompressError;
use tributary_memory::NoRoom;

use crate::Format;

/// Position of a fault in a file, after decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Offset in bytes.
    Byte(usize),
    /// Line number, from 1.
    Line(usize),
    /// Line and column of JSON, both from 1.
    LineColumn(usize, usize),
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Byte(at) => write!(formatter, "byte {at}"),
            Position::Line(line) => write!(formatter, "line {line}"),
            Position::LineColumn(line, column) => write!(formatter, "line {line}, column {column}"),
        }
    }
}

/// The reason why a file cannot be read. The same file fails again, except for [`FormatError::NoRoom`], and
/// [`FormatError::Compressed`] if memory was short.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// The file cannot be decompressed.
    #[error("cannot decompress the file: {0}")]
    Compressed(#[from] DecompressError),
    /// There is not enough memory to read the file.
    #[error("no memory to read the file: {0}")]
    NoRoom(#[from] NoRoom),
    /// The file has no known format.
    #[error(
        "the format of the file is unknown; known formats: {}",
        Format::names()
    )]
    Unknown,
    /// The file breaks the rules of its format.
    #[error("not a valid {format} file: {at}: {problem}")]
    Malformed {
        /// Format of the file.
        format: Format,
        /// Position of the fault.
        at: Position,
        /// Description of the fault.
        problem: String,
    },
    /// The file as a whole cannot be used.
    #[error("not a usable {format} file: {problem}")]
    Unusable {
        /// Format of the file.
        format: Format,
        /// Description of the fault, and advice.
        problem: String,
    },
    /// The file, or what it expands to, exceeds a limit.
    #[error("the file has more than {limit} {what}")]
    TooLarge {
        /// Subject of the limit, with its unit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// A fault in a parser, before the format is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    At(Position, String),
    Whole(String),
    Other(FormatError),
}

impl Fault {
    pub(crate) fn byte(at: usize, problem: impl Into<String>) -> Self {
        Fault::At(Position::Byte(at), problem.into())
    }

    pub(crate) fn line(line: usize, problem: impl Into<String>) -> Self {
        Fault::At(Position::Line(line), problem.into())
    }

    pub(crate) fn whole(problem: impl Into<String>) -> Self {
        Fault::Whole(problem.into())
    }

    /// Adds the format, and cuts off a description of the size of the file.
    pub(crate) fn of(self, format: Format) -> FormatError {
        match self {
            Fault::At(at, problem) => FormatError::Malformed {
                format,
                at,
                problem: shortened(problem),
            },
            Fault::Whole(problem) => FormatError::Unusable {
                format,
                problem: shortened(problem),
            },
            Fault::Other(error) => error,
        }
    }
}

/// Maximum size of a description in bytes. A description may quote a word of the file.
const SHOWN: usize = 256;

fn shortened(mut problem: String) -> String {
    if problem.len() > SHOWN {
        problem.truncate(problem.floor_char_boundary(SHOWN));
        problem.push_str("...");
        problem.shrink_to_fit();
    }
    problem
}

impl From<NoRoom> for Fault {
    fn from(no_room: NoRoom) -> Self {
        Fault::Other(FormatError::NoRoom(no_room))
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        // The position has its own place in the message.
        let problem = text
            .rsplit_once(" at line ")
            .map_or(text.as_str(), |(problem, _)| problem);
        match line {
            0 => Fault::whole(problem),
            _ => Fault::At(Position::LineColumn(line, column), problem.to_owned()),
        }
    }
}
