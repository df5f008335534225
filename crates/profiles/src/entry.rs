//! Entries of the dictionary's tables.

use super::id::{
    AttributeSetId, FunctionId, LinesId, LinkId, MappingId, StackId, StringId, ValueId,
};

/// Type and unit of a value: `cpu` in `nanoseconds`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ValueType {
    /// Name of the type.
    pub kind: StringId,
    /// Name of the unit.
    pub unit: StringId,
}

/// A key with a value and a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// Key.
    pub key: StringId,
    /// Value.
    pub value: ValueId,
    /// Unit (UCUM); empty if the key implies the unit.
    pub unit: StringId,
}

/// A binary mapped into memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub limit: u64,
    /// Offset in the file of the first address.
    pub file_offset: u64,
    /// Path of the file.
    pub filename: StringId,
    /// Build ids and other attributes.
    pub attributes: AttributeSetId,
}

/// A function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Display name.
    pub name: StringId,
    /// Linkage name, which may be mangled.
    pub system_name: StringId,
    /// Path of the source file.
    pub filename: StringId,
    /// Line of the definition; 0 if unknown.
    pub start_line: i64,
}

/// A line of source code in a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// Function that contains the line.
    pub function: FunctionId,
    /// Line number; 0 if unknown.
    pub line: i64,
    /// Column number; 0 if unknown.
    pub column: i64,
}

/// A location in the code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// Mapping of the binary.
    pub mapping: MappingId,
    /// Address of the instruction.
    pub address: u64,
    /// Source lines: innermost inlined function first, the outer function last.
    pub lines: LinesId,
    /// Frame type and other attributes.
    pub attributes: AttributeSetId,
}

/// The span that was active when a sample was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// Trace id.
    pub trace_id: [u8; 16],
    /// Span id.
    pub span_id: [u8; 8],
}

/// Identity of a sample within a profile: observations of samples with equal keys may be merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// Stack.
    pub stack: StackId,
    /// Thread, labels and other attributes.
    pub attributes: AttributeSetId,
    /// Active span.
    pub link: LinkId,
}
