//! Compiles OTLP's descriptors into tables for the validator.

use std::sync::LazyLock;

use prost_types::field_descriptor_proto::Type;

use super::descriptor::{Descriptors, FieldDescriptor, MessageDescriptor};
use crate::Signal;

/// The tables, compiled at first use in some 100 microseconds.
#[allow(clippy::expect_used)] // Compiled-in data: every test of the validator reads it.
pub(super) static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile(&Descriptors::load()).expect("OTLP fits the tables"));

/// Step of the validator for a field, by the key of the field: number and wire type together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldCheck {
    /// Unknown number: skip the value by wire type.
    Unknown,
    /// Known number with a wrong wire type.
    Mismatch,
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64,
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32,
    /// Any varint. The value is not checked, because prost truncates large values.
    Varint,
    /// A string, which must be UTF-8.
    Text,
    /// Any bytes.
    Bytes,
    PackedVarints,
    /// Packed `fixed64`, `sfixed64`, `double`.
    PackedFixed64,
    /// Packed `fixed32`, `sfixed32`, `float`.
    PackedFixed32,
    Repeated(u8),
    /// A repeated message that counts as one item.
    Item(u8),
    /// A `KeyValue`, the most frequent message.
    KeyValue(u8),
    /// A singular message; repeated occurrences are merged.
    Single(u8),
    /// A form of a metric's data; the last form counts.
    Data(u8),
    Metric(u8),
}

pub(super) struct Table {
    /// Steps by key. Field numbers of OTLP are below 32, so a key is one byte.
    pub(super) actions: [FieldCheck; 256],
    /// The type and its field names, for error messages.
    pub(super) descriptor: MessageDescriptor,
}

pub(super) struct Schema {
    pub(super) tables: Vec<Table>,
    roots: [usize; 4],
}

impl Schema {
    /// Compiles the tables. `None` if OTLP has more than 255 message types or a field number above 31.
    fn compile(descriptors: &Descriptors) -> Option<Self> {
        let tables = descriptors.messages.iter().map(|message| {
            let mut actions = [FieldCheck::Unknown; 256];
            for field in &message.fields {
                let first = usize::try_from(field.number).ok()? << 3;
                let keys = actions.get_mut(first..first + 8)?;
                keys.fill(FieldCheck::Mismatch);
                for (wire_type, action) in accepted(descriptors, message, field)? {
                    *keys.get_mut(wire_type)? = action;
                }
            }
            Some(Table {
                actions,
                descriptor: message.clone(),
            })
        });
        Some(Schema {
            tables: tables.collect::<Option<_>>()?,
            roots: Signal::ALL.map(|signal| descriptors.root(signal)),
        })
    }

    pub(super) fn root(&self, signal: Signal) -> usize {
        self.roots[signal.index()]
    }
}

impl Table {
    /// Returns a field's name in `snake_case`.
    pub(super) fn field_name(&self, number: u64) -> String {
        self.descriptor
            .fields
            .iter()
            .find(|field| u64::from(field.number) == number)
            .map_or_else(|| format!("field {number}"), |field| field.name.clone())
    }
}

/// Returns the wire types that prost accepts for a field, with their steps.
fn accepted(
    descriptors: &Descriptors,
    message: &MessageDescriptor,
    field: &FieldDescriptor,
) -> Option<Vec<(usize, FieldCheck)>> {
    const VARINT: usize = 0;
    const FIXED64: usize = 1;
    const DELIMITED: usize = 2;
    const FIXED32: usize = 5;
    let (wire_type, action, packed) = match field.kind {
        Type::Message => {
            let target = field.message?;
            let action = message_action(
                &message.name,
                field,
                &descriptors.messages.get(target)?.name,
                u8::try_from(target).ok()?,
            );
            return Some(vec![(DELIMITED, action)]);
        }
        Type::String => return Some(vec![(DELIMITED, FieldCheck::Text)]),
        Type::Bytes => return Some(vec![(DELIMITED, FieldCheck::Bytes)]),
        Type::Group => return None,
        Type::Fixed64 | Type::Sfixed64 | Type::Double => {
            (FIXED64, FieldCheck::Fixed64, FieldCheck::PackedFixed64)
        }
        Type::Fixed32 | Type::Sfixed32 | Type::Float => {
            (FIXED32, FieldCheck::Fixed32, FieldCheck::PackedFixed32)
        }
        _ => (VARINT, FieldCheck::Varint, FieldCheck::PackedVarints),
    };
    let mut accepted = vec![(wire_type, action)];
    if field.repeated {
        accepted.push((DELIMITED, packed));
    }
    Some(accepted)
}

fn message_action(
    parent: &str,
    field: &FieldDescriptor,
    target_name: &str,
    target: u8,
) -> FieldCheck {
    let short = |name: &str| name.rsplit('.').next().map(str::to_owned);
    match (short(parent).as_deref(), short(target_name).as_deref()) {
        (Some("Metric"), _) if field.oneof.is_some() => FieldCheck::Data(target),
        (_, Some("Metric")) => FieldCheck::Metric(target),
        (Some("ScopeSpans"), Some("Span"))
        | (Some("ScopeLogs"), Some("LogRecord"))
        | (Some("Profile"), Some("Sample")) => FieldCheck::Item(target),
        (_, Some(name)) if name.ends_with("DataPoint") => FieldCheck::Item(target),
        (_, Some("KeyValue")) => FieldCheck::KeyValue(target),
        _ if field.repeated => FieldCheck::Repeated(target),
        _ => FieldCheck::Single(target),
    }
}
