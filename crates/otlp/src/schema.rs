//! OTLP's descriptors compiled into tables that the validator walks by.

use std::sync::LazyLock;

use prost_types::field_descriptor_proto::Type;

use super::descriptor::{Descriptors, FieldDescriptor, MessageDescriptor};
use crate::Signal;

/// The tables, compiled at first use (some 100 microseconds).
#[allow(clippy::expect_used)] // Compiled-in data: every test of the validator reads it.
pub(super) static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile(&Descriptors::load()).expect("OTLP fits the tables"));

/// Step of the validator for a field, looked up by the key of the field: number and wire type together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The number is unknown: skip by wire type.
    Unknown,
    /// The number is known, the wire type is not the one of its type.
    Mismatch,
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64,
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32,
    /// Any varint; its value is not checked (prost truncates what is too big).
    Varint,
    /// A string: must be UTF-8.
    Text,
    /// Bytes: anything.
    Bytes,
    /// Packed varints.
    PackedVarints,
    /// Packed `fixed64`, `sfixed64`, `double`.
    PackedFixed64,
    /// Packed `fixed32`, `sfixed32`, `float`.
    PackedFixed32,
    /// A repeated message.
    Repeated(u8),
    /// A repeated message that counts as one item.
    Item(u8),
    /// A `KeyValue`, which most of all messages are.
    KeyValue(u8),
    /// A message that should occur once. (When it occurs again, the two are merged.)
    Single(u8),
    /// One of the forms of a metric's data; the last one counts.
    Data(u8),
    /// A metric.
    Metric(u8),
}

/// The table of one message type.
pub(super) struct Table {
    /// By key. Numbers are below 32 everywhere in OTLP, so a key is one byte.
    pub(super) actions: [Action; 256],
    /// The type and its field names, for error messages.
    pub(super) descriptor: MessageDescriptor,
}

/// All tables.
pub(super) struct Schema {
    pub(super) tables: Vec<Table>,
    roots: [usize; 4],
}

impl Schema {
    /// `None` when OTLP has grown beyond 255 message types or field number 31.
    fn compile(descriptors: &Descriptors) -> Option<Self> {
        let tables = descriptors.messages.iter().map(|message| {
            let mut actions = [Action::Unknown; 256];
            for field in &message.fields {
                let first = usize::try_from(field.number).ok()? << 3;
                let keys = actions.get_mut(first..first + 8)?;
                keys.fill(Action::Mismatch);
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

    /// The table of a signal's request.
    pub(super) fn root(&self, signal: Signal) -> usize {
        self.roots[signal.index()]
    }
}

impl Table {
    /// A field's name in `snake_case`.
    pub(super) fn field_name(&self, number: u64) -> String {
        self.descriptor
            .fields
            .iter()
            .find(|field| u64::from(field.number) == number)
            .map_or_else(|| format!("field {number}"), |field| field.name.clone())
    }
}

/// The wire types that prost accepts for a field, each with what to do.
fn accepted(
    descriptors: &Descriptors,
    message: &MessageDescriptor,
    field: &FieldDescriptor,
) -> Option<Vec<(usize, Action)>> {
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
        Type::String => return Some(vec![(DELIMITED, Action::Text)]),
        Type::Bytes => return Some(vec![(DELIMITED, Action::Bytes)]),
        Type::Group => return None,
        Type::Fixed64 | Type::Sfixed64 | Type::Double => {
            (FIXED64, Action::Fixed64, Action::PackedFixed64)
        }
        Type::Fixed32 | Type::Sfixed32 | Type::Float => {
            (FIXED32, Action::Fixed32, Action::PackedFixed32)
        }
        _ => (VARINT, Action::Varint, Action::PackedVarints),
    };
    let mut accepted = vec![(wire_type, action)];
    if field.repeated {
        accepted.push((DELIMITED, packed));
    }
    Some(accepted)
}

fn message_action(parent: &str, field: &FieldDescriptor, target_name: &str, target: u8) -> Action {
    let short = |name: &str| name.rsplit('.').next().map(str::to_owned);
    match (short(parent).as_deref(), short(target_name).as_deref()) {
        (Some("Metric"), _) if field.oneof.is_some() => Action::Data(target),
        (_, Some("Metric")) => Action::Metric(target),
        (Some("ScopeSpans"), Some("Span"))
        | (Some("ScopeLogs"), Some("LogRecord"))
        | (Some("Profile"), Some("Sample")) => Action::Item(target),
        (_, Some(name)) if name.ends_with("DataPoint") => Action::Item(target),
        (_, Some("KeyValue")) => Action::KeyValue(target),
        _ if field.repeated => Action::Repeated(target),
        _ => Action::Single(target),
    }
}
