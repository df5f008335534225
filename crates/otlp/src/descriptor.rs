//! OTLP's own message descriptors, from the file descriptors that `opentelemetry-proto` ships.

use std::collections::HashMap;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

use crate::Signal;

/// A message type.
#[derive(Debug, Clone)]
pub struct MessageDescriptor {
    /// Full name without the leading dot, as in `opentelemetry.proto.trace.v1.Span`.
    pub name: String,
    /// Fields in the order of their numbers.
    pub fields: Vec<FieldDescriptor>,
}

/// A field of a message type.
#[derive(Debug, Clone)]
pub struct FieldDescriptor {
    /// The number on the wire.
    pub number: u32,
    /// `snake_case` name.
    pub name: String,
    /// `lowerCamelCase` name, as in JSON.
    pub json_name: String,
    /// Type of the value that the field holds.
    pub kind: Type,
    /// Whether it may occur several times.
    pub repeated: bool,
    /// For messages: the position of their type in [`Descriptors::messages`].
    pub message: Option<usize>,
    /// For fields of a `oneof`: which one, within the message.
    pub oneof: Option<usize>,
    /// Whether it is marked `optional`: its zero value differs from its absence.
    pub optional: bool,
    /// For enums: the position of their type in [`Descriptors::enums`].
    pub enumeration: Option<usize>,
}

/// An enum type.
#[derive(Debug, Clone)]
pub struct EnumDescriptor {
    /// Full name without the leading dot, as in `opentelemetry.proto.trace.v1.Span.SpanKind`.
    pub name: String,
    /// Names and numbers of its values.
    pub values: Vec<(String, i32)>,
}

impl FieldDescriptor {
    /// Whether the zero value of this field is put on the wire: where presence means something.
    pub fn has_presence(&self) -> bool {
        self.optional || self.oneof.is_some() || self.kind == Type::Message
    }
}

/// All message types that a request of any signal can contain.
#[derive(Debug, Clone)]
pub struct Descriptors {
    /// The types.
    pub messages: Vec<MessageDescriptor>,
    /// The enum types.
    pub enums: Vec<EnumDescriptor>,
    roots: [usize; 4],
}

impl Descriptors {
    /// Reads the descriptors that are compiled in.
    #[allow(clippy::expect_used)] // Compiled-in data: the test below reads it.
    pub fn load() -> Self {
        let files = FileDescriptorSet::decode(opentelemetry_proto::DESCRIPTORS)
            .expect("opentelemetry-proto ships a valid descriptor set");
        let mut types = Types::default();
        for file in &files.file {
            for message in &file.message_type {
                types.collect(file.package(), message);
            }
            for enumeration in &file.enum_type {
                types.collect_enum(file.package(), enumeration);
            }
        }
        let messages = positions(types.messages.iter().map(|(name, _)| name));
        let enums = positions(types.enums.iter().map(|enumeration| &enumeration.name));
        let root =
            |name: &str| messages[&format!(".opentelemetry.proto.collector.{name}ServiceRequest")];
        Descriptors {
            roots: [
                root("trace.v1.ExportTrace"),
                root("metrics.v1.ExportMetrics"),
                root("logs.v1.ExportLogs"),
                root("profiles.v1development.ExportProfiles"),
            ],
            messages: types
                .messages
                .iter()
                .map(|(name, message)| describe(name, message, &messages, &enums))
                .collect(),
            enums: types.enums,
        }
    }

    /// The request type of a signal, as a position in [`messages`](Self::messages).
    pub fn root(&self, signal: Signal) -> usize {
        self.roots[signal.index()]
    }
}

#[derive(Default)]
struct Types<'a> {
    messages: Vec<(String, &'a DescriptorProto)>,
    enums: Vec<EnumDescriptor>,
}

impl<'a> Types<'a> {
    fn collect(&mut self, scope: &str, message: &'a DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.collect(&name, nested);
        }
        for enumeration in &message.enum_type {
            self.collect_enum(&name, enumeration);
        }
        self.messages.push((name, message));
    }

    fn collect_enum(&mut self, scope: &str, enumeration: &EnumDescriptorProto) {
        self.enums.push(EnumDescriptor {
            name: format!("{scope}.{}", enumeration.name()),
            values: enumeration
                .value
                .iter()
                .map(|value| (value.name().to_owned(), value.number()))
                .collect(),
        });
    }
}

/// Type names, as fields refer to them, to positions.
type Positions = HashMap<String, usize>;

fn positions<'a>(names: impl Iterator<Item = &'a String>) -> Positions {
    names
        .enumerate()
        .map(|(at, name)| (format!(".{name}"), at))
        .collect()
}

fn describe(
    name: &str,
    message: &DescriptorProto,
    messages: &Positions,
    enums: &Positions,
) -> MessageDescriptor {
    let mut fields: Vec<FieldDescriptor> = message
        .field
        .iter()
        .map(|field| FieldDescriptor {
            number: field.number().unsigned_abs(),
            name: field.name().to_owned(),
            json_name: field.json_name().to_owned(),
            kind: field.r#type(),
            repeated: field.label() == Label::Repeated,
            message: messages.get(field.type_name()).copied(),
            // proto3's explicit `optional` is a oneof of one; there is nothing to choose.
            oneof: (!field.proto3_optional())
                .then(|| {
                    field
                        .oneof_index
                        .and_then(|index| usize::try_from(index).ok())
                })
                .flatten(),
            optional: field.proto3_optional(),
            enumeration: enums.get(field.type_name()).copied(),
        })
        .collect();
    fields.sort_by_key(|field| field.number);
    MessageDescriptor {
        name: name.to_owned(),
        fields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_its_request_type_and_every_message_field_its_type() {
        let descriptors = Descriptors::load();
        for signal in Signal::ALL {
            let root = &descriptors.messages[descriptors.root(signal)];
            assert!(root.name.ends_with("ServiceRequest"), "{}", root.name);
            assert_eq!(root.fields[0].number, 1);
        }
        for message in &descriptors.messages {
            for field in &message.fields {
                assert_eq!(
                    field.kind == Type::Message,
                    field.message.is_some(),
                    "{}",
                    field.name
                );
                assert_eq!(field.kind == Type::Enum, field.enumeration.is_some());
                assert!(!field.json_name.is_empty());
            }
        }
    }
}
