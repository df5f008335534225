//! OTLP's own message descriptors, from the file descriptors that `opentelemetry-proto` ships.

use std::collections::HashMap;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

use crate::batch::Signal;

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
    /// What it holds.
    pub kind: Type,
    /// Whether it may occur several times.
    pub repeated: bool,
    /// For messages: the position of their type in [`Descriptors::messages`].
    pub message: Option<usize>,
    /// For fields of a `oneof`: which one, within the message.
    pub oneof: Option<usize>,
}

/// All message types that a request of any signal can contain.
#[derive(Debug, Clone)]
pub struct Descriptors {
    /// The types.
    pub messages: Vec<MessageDescriptor>,
    roots: [usize; 4],
}

impl Descriptors {
    /// Reads the descriptors that are compiled in.
    #[allow(clippy::expect_used)] // Compiled-in data: the test below reads it.
    pub fn load() -> Self {
        let files = FileDescriptorSet::decode(opentelemetry_proto::DESCRIPTORS)
            .expect("opentelemetry-proto ships a valid descriptor set");
        let mut types: Vec<(String, &DescriptorProto)> = Vec::new();
        for file in &files.file {
            for message in &file.message_type {
                collect(file.package(), message, &mut types);
            }
        }
        let positions: HashMap<String, usize> = types
            .iter()
            .enumerate()
            .map(|(at, (name, _))| (format!(".{name}"), at))
            .collect();
        let root =
            |name: &str| positions[&format!(".opentelemetry.proto.collector.{name}ServiceRequest")];
        Descriptors {
            roots: [
                root("trace.v1.ExportTrace"),
                root("metrics.v1.ExportMetrics"),
                root("logs.v1.ExportLogs"),
                root("profiles.v1development.ExportProfiles"),
            ],
            messages: types
                .iter()
                .map(|(name, message)| describe(name, message, &positions))
                .collect(),
        }
    }

    /// The request type of a signal, as a position in [`messages`](Self::messages).
    pub fn root(&self, signal: Signal) -> usize {
        self.roots[signal.index()]
    }
}

fn collect<'a>(
    scope: &str,
    message: &'a DescriptorProto,
    types: &mut Vec<(String, &'a DescriptorProto)>,
) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, types);
    }
    types.push((name, message));
}

fn describe(
    name: &str,
    message: &DescriptorProto,
    positions: &HashMap<String, usize>,
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
            message: positions.get(field.type_name()).copied(),
            // proto3's explicit `optional` is a oneof of one; there is nothing to choose.
            oneof: (!field.proto3_optional())
                .then(|| {
                    field
                        .oneof_index
                        .and_then(|index| usize::try_from(index).ok())
                })
                .flatten(),
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
                assert!(!field.json_name.is_empty());
            }
        }
    }
}
