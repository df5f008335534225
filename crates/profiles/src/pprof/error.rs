//! Why a file is not converted.

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
    /// What an entry is called.
    pub const fn entry(self) -> &'static str {
        match self {
            Table::Mapping => "mapping",
            Table::Location => "location",
            Table::Function => "function",
            Table::String => "string",
        }
    }

    /// An entry, as the place where something is wrong.
    pub(super) const fn place(self) -> &'static str {
        match self {
            Table::Mapping => "a mapping",
            Table::Location => "a location",
            Table::Function => "a function",
            Table::String => "a string",
        }
    }
}

/// What mostly leads to this.
fn hint(place: &str, fault: Fault) -> &'static str {
    let at_its_end = place == "the profile" && matches!(fault, Fault::Truncated | Fault::Varint);
    match at_its_end {
        true => "; it may have been cut off",
        false => "",
    }
}

/// Why a file is not converted. The same file never is, except for [`Error::Compressed`] without memory, and
/// [`Error::NoRoom`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be decompressed.
    #[error("cannot decompress it: {0}")]
    Compressed(#[from] DecompressError),
    /// There is no memory for what is in it.
    #[error("no memory to read it: {0}")]
    NoRoom(#[from] NoRoom),
    /// It has more than this many bytes.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It is in one of the formats from before pprof was a protocol buffer, or something else altogether.
    #[error("it is not in pprof's format, but {0}")]
    Foreign(&'static str),
    /// It is no protocol buffer.
    #[error("it is not in pprof's format: in {place}: {}{}", fault.text(), hint(place, *fault))]
    Wire {
        /// In which message.
        place: &'static str,
        /// What is wrong.
        fault: Fault,
    },
    /// A field has another type than pprof's.
    #[error("it is not in pprof's format: field {field} of {place} has another wire type")]
    FieldType {
        /// In which message.
        place: &'static str,
        /// The field's number.
        field: u32,
    },
    /// The first string must be the empty one.
    #[error("its first string is not empty, as it must be in pprof's format")]
    FirstString,
    /// Nothing says what is counted.
    #[error("it has no sample types")]
    NoSampleTypes,
    /// There are more sample types than this. Each becomes a profile, with all that is said about the file.
    #[error("it has more than {0} sample types")]
    SampleTypes(usize),
    /// Each sample must have a value for each sample type.
    #[error("a sample has {values} values, but there are {types} sample types")]
    Values {
        /// How many values the sample has.
        values: usize,
        /// How many sample types there are.
        types: usize,
    },
    /// An id or an index leads nowhere.
    #[error("there is no {} {id}: it was cut off, or written wrongly", table.entry())]
    Dangling {
        /// Which table should have it.
        table: Table,
        /// The id, or the index of a string.
        id: u64,
    },
    /// An entry has no id.
    #[error("a {} has the id 0, which means none", .0.entry())]
    NoId(Table),
    /// Two entries have one id.
    #[error("two {}s have the id {id}", table.entry())]
    SameId {
        /// Which table has them.
        table: Table,
        /// The id.
        id: u64,
    },
    /// An entry has several ids, and the reader took the first one.
    #[error("a {} gives two ids", .0.entry())]
    TwoIds(Table),
    /// Several files, one behind the other.
    #[error("it is several pprof files in one; take them apart")]
    Concatenated,
    /// A few bytes may refer to a long string, again and again.
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
