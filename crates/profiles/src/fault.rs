//! Faults of profiles, and the names of the dictionary's tables.

/// The tables of a `ProfilesDictionary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DictionaryTable {
    /// `mapping_table`.
    Mapping,
    /// `location_table`.
    Location,
    /// `function_table`.
    Function,
    /// `link_table`.
    Link,
    /// `string_table`.
    String,
    /// `attribute_table`.
    Attribute,
    /// `stack_table`.
    Stack,
}

impl DictionaryTable {
    /// Name of the field in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            DictionaryTable::Mapping => "mapping_table",
            DictionaryTable::Location => "location_table",
            DictionaryTable::Function => "function_table",
            DictionaryTable::Link => "link_table",
            DictionaryTable::String => "string_table",
            DictionaryTable::Attribute => "attribute_table",
            DictionaryTable::Stack => "stack_table",
        }
    }
}

/// The reason why a request cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProfileFault {
    /// An index is outside of its table.
    #[error("missing entry {index} in the {}", table.name())]
    Dangling {
        /// Table of the missing entry.
        table: DictionaryTable,
        /// Index of the missing entry.
        index: i32,
    },
    /// The references to strings expand to too many bytes: a few bytes may refer to a long string many times.
    #[error("the references to strings expand to more than {} bytes", LIMIT)]
    Expansion,
    /// The bytes violate the encoding of the protocol.
    #[error("{0} has an invalid encoding")]
    Malformed(&'static str),
    /// The numbers of values and timestamps differ, so they cannot be paired.
    #[error("a sample has {values} values, but {timestamps} timestamps")]
    Unequal {
        /// Number of values.
        values: usize,
        /// Number of timestamps.
        timestamps: usize,
    },
}

/// Maximum size of the strings that the references of a message expand to: the default maximum size of a message.
pub const LIMIT: usize = 64 << 20;
