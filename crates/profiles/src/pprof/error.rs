//! Reasons why a file cannot be converted.

use tributary_compression::decompress::DecompressError;
use tributary_memory::NoRoom;
use tributary_otlp::reader::WireFault;

/// The tables of a pprof file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileTable {
    /// `mapping`.
    Mapping,
    /// `location`.
    Location,
    /// `function`.
    Function,
    /// `string_table`.
    String,
}

impl FileTable {
    /// Name of an entry in messages.
    pub const fn entry(self) -> &'static str {
        match self {
            FileTable::Mapping => "mapping",
            FileTable::Location => "location",
            FileTable::Function => "function",
            FileTable::String => "string",
        }
    }

    /// Name of the table entry in an error message.
    pub(super) const fn place(self) -> &'static str {
        match self {
            FileTable::Mapping => "a mapping",
            FileTable::Location => "a location",
            FileTable::Function => "a function",
            FileTable::String => "a string",
        }
    }
}

fn hint(place: &str, fault: WireFault) -> &'static str {
    let at_its_end =
        place == "the profile" && matches!(fault, WireFault::Truncated | WireFault::Varint);
    match at_its_end {
        true => "; it may be truncated",
        false => "",
    }
}

/// The reason why a file cannot be converted. The same file fails again, except for [`Error::NoRoom`], and
/// [`Error::Compressed`] if memory was short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file cannot be decompressed.
    #[error("cannot decompress the file: {0}")]
    Compressed(#[from] DecompressError),
    /// There is not enough memory to read the file.
    #[error("no memory to read the file: {0}")]
    NoRoom(#[from] NoRoom),
    /// The file exceeds this number of bytes.
    #[error("the file is larger than {0} bytes")]
    TooLarge(usize),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file has a legacy format from before pprof used protocol buffers, or another format.
    #[error("the file is not in pprof's format, but is {0}")]
    Foreign(&'static str),
    /// The file is not a protocol buffer.
    #[error("the file is not in pprof's format: in {place}: {}{}", fault.text(), hint(place, *fault))]
    Wire {
        /// Name of the damaged message.
        place: &'static str,
        /// Description of the fault.
        fault: WireFault,
    },
    /// A field has another wire type than in pprof's schema.
    #[error("the file is not in pprof's format: field {field} of {place} has the wrong wire type")]
    FieldType {
        /// Name of the message.
        place: &'static str,
        /// Number of the field.
        field: u32,
    },
    /// The first string is not empty.
    #[error("the file is not in pprof's format: the first string is not empty")]
    FirstString,
    /// The file has no sample types.
    #[error("the file has no sample types")]
    NoSampleTypes,
    /// The file has more sample types than this. Each sample type becomes a profile with all metadata of the file.
    #[error("the file has more than {0} sample types")]
    SampleTypes(usize),
    /// The number of a sample's values differs from the number of sample types.
    #[error("a sample has {values} values, but there are {types} sample types")]
    Values {
        /// Number of values of the sample.
        values: usize,
        /// Number of sample types.
        types: usize,
    },
    /// An id or an index refers to a missing entry.
    #[error("missing {} {id}: the file is truncated or invalid", table.entry())]
    Dangling {
        /// Table of the missing entry.
        table: FileTable,
        /// Id of the entry, or index of the string.
        id: u64,
    },
    /// An entry has no id.
    #[error("a {} has no id", .0.entry())]
    NoId(FileTable),
    /// Two entries have the same id.
    #[error("two {}s have the id {id}", table.entry())]
    SameId {
        /// Table of the entries.
        table: FileTable,
        /// The duplicate id.
        id: u64,
    },
    /// An entry has several ids, and the reader used the first one.
    #[error("a {} has two different ids", .0.entry())]
    TwoIds(FileTable),
    /// The file is a concatenation of several files.
    #[error("the file is a concatenation of pprof files; split it")]
    Concatenated,
    /// Labels and comments expand to too many bytes: a few bytes may refer to a long string many times.
    #[error("the labels and comments expand to more than {0} bytes")]
    Expansion(usize),
}

impl Error {
    /// Whether an entry with several ids may be the cause.
    pub(super) const fn is_about_ids(&self) -> bool {
        match self {
            Error::Dangling { table, .. } => !matches!(table, FileTable::String),
            Error::NoId(_) | Error::SameId { .. } | Error::TwoIds(_) => true,
            _ => false,
        }
    }

    /// Whether a lenient reader repairs the file.
    pub(super) const fn is_repairable(&self) -> bool {
        matches!(
            self,
            Error::Dangling { .. }
                | Error::NoId(_)
                | Error::SameId { .. }
                | Error::FirstString
                | Error::Values { .. }
        )
    }
}
