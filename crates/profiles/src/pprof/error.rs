//! Reasons why a file cannot be converted.

use tributary_compression::decompress::DecompressError;
use tributary_memory::NoRoom;
use tributary_otlp::reader::Fault;

/// The tables of a pprof file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// `mapping`.
    Mapping,
    /// `location`.
    Location,
    /// `function`.
    Function,
    /// `string_table`.
    String,
}

impl Table {
    /// Name of an entry in messages.
    pub const fn entry(self) -> &'static str {
        match self {
            Table::Mapping => "mapping",
            Table::Location => "location",
            Table::Function => "function",
            Table::String => "string",
        }
    }

    /// Name of an entry as the place of a fault.
    pub(super) const fn place(self) -> &'static str {
        match self {
            Table::Mapping => "a mapping",
            Table::Location => "a location",
            Table::Function => "a function",
            Table::String => "a string",
        }
    }
}

/// Likely cause of a fault.
fn hint(place: &str, fault: Fault) -> &'static str {
    let at_its_end = place == "the profile" && matches!(fault, Fault::Truncated | Fault::Varint);
    match at_its_end {
        true => "; it may have been cut off",
        false => "",
    }
}

/// The reason why a file cannot be converted. The same file fails again, except for [`Error::NoRoom`], and
/// [`Error::Compressed`] if memory was short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file cannot be decompressed.
    #[error("cannot decompress it: {0}")]
    Compressed(#[from] DecompressError),
    /// There is not enough memory to read the file.
    #[error("no memory to read it: {0}")]
    NoRoom(#[from] NoRoom),
    /// The file exceeds this number of bytes.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// The file has a legacy format from before pprof used protocol buffers, or another format.
    #[error("it is not in pprof's format, but {0}")]
    Foreign(&'static str),
    /// The file is not a protocol buffer.
    #[error("it is not in pprof's format: in {place}: {}{}", fault.text(), hint(place, *fault))]
    Wire {
        /// Name of the damaged message.
        place: &'static str,
        /// Description of the fault.
        fault: Fault,
    },
    /// A field has another wire type than in pprof's schema.
    #[error("it is not in pprof's format: field {field} of {place} has another wire type")]
    FieldType {
        /// Name of the message.
        place: &'static str,
        /// Number of the field.
        field: u32,
    },
    /// The first string is not empty.
    #[error("its first string is not empty, as it must be in pprof's format")]
    FirstString,
    /// The file has no sample types.
    #[error("it has no sample types")]
    NoSampleTypes,
    /// The file has more sample types than this. Each sample type becomes a profile with all metadata of the file.
    #[error("it has more than {0} sample types")]
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
    #[error("there is no {} {id}: it was cut off, or written wrongly", table.entry())]
    Dangling {
        /// Table of the missing entry.
        table: Table,
        /// Id of the entry, or index of the string.
        id: u64,
    },
    /// An entry has no id.
    #[error("a {} has the id 0, which means none", .0.entry())]
    NoId(Table),
    /// Two entries have the same id.
    #[error("two {}s have the id {id}", table.entry())]
    SameId {
        /// Table of the entries.
        table: Table,
        /// The duplicate id.
        id: u64,
    },
    /// An entry has several ids, and the reader used the first one.
    #[error("a {} gives two ids", .0.entry())]
    TwoIds(Table),
    /// The file is a concatenation of several files.
    #[error("it is several pprof files in one; take them apart")]
    Concatenated,
    /// Labels and comments expand to too many bytes: a few bytes may refer to a long string many times.
    #[error("its labels and comments stand for more than {0} bytes")]
    Expansion(usize),
}

impl Error {
    /// Whether an entry with several ids may be the cause.
    pub(super) const fn is_about_ids(&self) -> bool {
        match self {
            Error::Dangling { table, .. } => !matches!(table, Table::String),
            Error::NoId(_) | Error::SameId { .. } | Error::TwoIds(_) => true,
            _ => false,
        }
    }
}
