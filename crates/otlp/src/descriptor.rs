//! Message descriptors of OTLP, from the file descriptors in `opentelemetry-proto`.

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
    /// Fields, by number.
    pub fields: Vec<FieldDescriptor>,
}

/// A field of a message type.
#[derive(Debug, Clone)]
pub struct FieldDescriptor {
    /// Field number.
    pub number: u32,
    /// Name in `snake_case`.
    pub name: String,
    /// Name in `lowerCamelCase`, as in JSON.
    pub json_name: String,
    /// Type of the value.
    pub kind: Type,
    /// Whether the field is repeated.
    pub repeated: bool,
    /// For messages: index of the type in [`Descriptors::messages`].
    pub message: Option<usize>,
    /// For members of a `oneof`: index of the `oneof` within the message.
    pub oneof: Option<usize>,
    /// Whether the field is marked `optional`, so that a zero value differs from a missing value.
    pub optional: bool,
    /// For enums: index of the type in [`Descriptors::enums`].
    pub enumeration: Option<usize>,
}

/// An enum type.
#[derive(Debug, Clone)]
pub struct EnumDescriptor {
    /// Full name without the leading dot, as in `opentelemetry.proto.trace.v1.Span.SpanKind`.
    pub name: String,
    /// Names and numbers of the values.
    pub values: Vec<(String, i32)>,
}

impl FieldDescriptor {
    /// Whether a zero value of this field is encoded, because presence matters.
    pub fn has_presence(&self) -> bool {
        self.optional || self.oneof.is_some() || self.kind == Type::Message
    }
}

/// All message types in requests of any signal.
#[derive(Debug, Clone)]
pub struct Descriptors {
    /// Message types.
    pub messages: Vec<MessageDescriptor>,
    /// Enum types.
    pub enums: Vec<EnumDescriptor>,
    roots: [usize; 4],
}

impl Descriptors {
    /// Loads the compiled-in descriptors.
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

    /// Returns the index of a signal's request type in [`messages`](Self::messages).
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

/// Indices of types by the names that fields use.
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
            // proto3's explicit `optional` is a oneof with one member.
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
    fn descriptors_have_all_request_and_field_types() {
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
