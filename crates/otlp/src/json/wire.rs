//! Reads encoded fields.

use std::ops::Range;

use prost::encoding::WireType;
use prost_types::field_descriptor_proto::Type;

use crate::Malformed;
use crate::room::RoomExhausted;

pub(super) enum Stop {
    Malformed(Malformed),
    /// A singular message or two members of a oneof occur, and protobuf merges them. The request is decoded and encoded
    /// first.
    NeedsMerge,
    /// The budget is too small for the text.
    RoomExhausted,
}

impl From<RoomExhausted> for Stop {
    fn from(_: RoomExhausted) -> Self {
        Stop::RoomExhausted
    }
}

#[derive(Clone)]
pub(super) enum Content {
    Bits(u64),
    /// Range of a length-delimited value in the request.
    Range(Range<usize>),
}

pub(super) fn malformed<T>(offset: usize, reason: &'static str) -> Result<T, Stop> {
    Err(Stop::Malformed(Malformed::new(offset, reason)))
}

pub(super) fn take<const N: usize>(rest: &mut &[u8], at: usize) -> Result<[u8; N], Stop> {
    match rest.split_first_chunk::<N>() {
        Some((bytes, behind)) => {
            *rest = behind;
            Ok(*bytes)
        }
        None => malformed(at, "a number exceeds the message"),
    }
}

pub(super) fn unzigzag(bits: u64) -> i64 {
    ((bits >> 1) as i64) ^ -((bits & 1) as i64)
}

pub(super) fn is_number(kind: Type) -> bool {
    wire_type_of(kind) != WireType::LengthDelimited
}

pub(super) fn wire_type_of(kind: Type) -> WireType {
    match kind {
        Type::Message | Type::String | Type::Bytes => WireType::LengthDelimited,
        Type::Group => WireType::StartGroup,
        Type::Double | Type::Fixed64 | Type::Sfixed64 => WireType::SixtyFourBit,
        Type::Float | Type::Fixed32 | Type::Sfixed32 => WireType::ThirtyTwoBit,
        _ => WireType::Varint,
    }
}

pub(super) fn is_zero(kind: Type, content: &Content) -> bool {
    match (kind, content) {
        (_, Content::Range(range)) => range.is_empty(),
        (Type::Int32 | Type::Uint32 | Type::Sint32 | Type::Enum, Content::Bits(bits)) => {
            *bits as u32 == 0
        }
        (_, Content::Bits(bits)) => *bits == 0,
    }
}
