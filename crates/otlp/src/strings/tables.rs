//! Tables of the step for each field, built from OTLP's descriptors.

use prost_types::field_descriptor_proto::Type;

use super::location::{StringLocation, StringLocations};
use crate::Signal;
use crate::descriptor::{Descriptors, FieldDescriptor, MessageDescriptor};

/// Step for a field, looked up by the key of the field: number and wire type together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Content without relevant strings: numbers, ids, places that were not chosen.
    Skip,
    Unknown,
    /// A known number with a wrong wire type: the request is invalid.
    Mismatch,
    Text(StringLocation),
    /// The bytes of an id. Bytes of another length may be anything.
    Id,
    Attribute(StringLocation),
    /// A dictionary string; its references determine its place.
    Shared,
    Value(StringLocation),
    Message(u8),
    /// The original payload of a profile, or its format.
    Original,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Steps by key. Field numbers of OTLP are below 32, so a key is one byte.
    pub(super) steps: [Step; 256],
    /// Place and field number of the attributes, if the type has attributes in a chosen place.
    pub(super) set: Option<(StringLocation, u32)>,
    /// Index among the message types that many requests repeat: resource and scope.
    pub(super) repeated: Option<usize>,
}

/// Number of message types that have a [`Table::repeated`].
pub(super) const REPEATED: usize = 2;

/// Tables of all message types, for the chosen places.
#[derive(Debug)]
pub struct Tables {
    pub(super) tables: Vec<Table>,
    pub(super) places: StringLocations,
    pub(super) drop_unknown: bool,
    roots: [usize; 4],
}

impl Tables {
    /// Creates tables for strings in these places. Messages without such strings are skipped as a whole,
    /// unless unknown fields in them have to be dropped.
    pub fn new(places: StringLocations, drop_unknown: bool) -> Self {
        let descriptors = Descriptors::load();
        let messages = descriptors.messages.iter();
        let mut tables: Vec<Table> = messages
            .map(|message| table(&descriptors, message, places))
            .collect();
        if !drop_unknown {
            skip_empty(&mut tables);
        }
        Tables {
            tables,
            places,
            drop_unknown,
            roots: Signal::ALL.map(|signal| descriptors.root(signal)),
        }
    }

    pub(super) fn root(&self, signal: Signal) -> Option<&Table> {
        self.tables.get(*self.roots.get(signal.index())?)
    }
}

/// Skips messages without relevant strings.
fn skip_empty(tables: &mut [Table]) {
    loop {
        let empty: Vec<bool> = tables.iter().map(is_empty).collect();
        let mut changed = false;
        for step in tables.iter_mut().flat_map(|table| &mut table.steps) {
            if let Step::Message(target) = *step
                && empty.get(usize::from(target)) == Some(&true)
            {
                *step = Step::Skip;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

fn is_empty(table: &Table) -> bool {
    let idle = |step: &Step| matches!(step, Step::Skip | Step::Unknown | Step::Mismatch);
    table.steps.iter().all(idle)
}

fn table(descriptors: &Descriptors, message: &MessageDescriptor, places: StringLocations) -> Table {
    let name = short(&message.name);
    let mut table = Table {
        steps: [Step::Unknown; 256],
        set: None,
        repeated: ["Resource", "InstrumentationScope"]
            .iter()
            .position(|repeated| *repeated == name),
    };
    for field in &message.fields {
        let first = field.number as usize * 8;
        let Some(keys) = table.steps.get_mut(first..first + 8) else {
            continue;
        };
        keys.fill(Step::Mismatch);
        let step = step(descriptors, name, field, places);
        if let Step::Attribute(place) = step {
            table.set = Some((place, field.number));
        }
        for (wire_type, key) in keys.iter_mut().enumerate() {
            if accepts(field, wire_type) {
                *key = step;
            }
        }
    }
    table
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

fn accepts(field: &FieldDescriptor, wire_type: usize) -> bool {
    let own = match field.kind {
        Type::Message | Type::String | Type::Bytes => 2,
        Type::Fixed64 | Type::Sfixed64 | Type::Double => 1,
        Type::Fixed32 | Type::Sfixed32 | Type::Float => 5,
        _ => 0,
    };
    wire_type == own || field.repeated && wire_type == 2
}

fn step(
    descriptors: &Descriptors,
    parent: &str,
    field: &FieldDescriptor,
    places: StringLocations,
) -> Step {
    let chosen =
        |step: Step, place: StringLocation| if places.has(place) { step } else { Step::Skip };
    match field.kind {
        Type::String => match text_place(parent, &field.name) {
            _ if parent == "Profile" => Step::Original,
            _ if parent == "ProfilesDictionary" => Step::Shared,
            Some(place) => chosen(Step::Text(place), place),
            None => Step::Skip,
        },
        Type::Bytes if parent == "Profile" && field.name == "original_payload" => Step::Original,
        Type::Bytes => chosen(Step::Id, StringLocation::Other),
        Type::Message => {
            let Some(target) = field.message else {
                return Step::Skip;
            };
            let kind = descriptors.messages.get(target).map(|to| short(&to.name));
            let keys = places.has(StringLocation::AttributeKeys);
            match kind {
                Some("KeyValue") => match attributes_place(parent) {
                    place if keys => Step::Attribute(place),
                    place => chosen(Step::Attribute(place), place),
                },
                Some("AnyValue") => match value_place(parent) {
                    place if keys => Step::Value(place),
                    place => chosen(Step::Value(place), place),
                },
                _ => u8::try_from(target).map_or(Step::Skip, Step::Message),
            }
        }
        _ => Step::Skip,
    }
}

/// Returns the place of a string field; `None` for fields that are never inspected.
fn text_place(parent: &str, field: &str) -> Option<StringLocation> {
    Some(match (parent, field) {
        (_, "schema_url") => return None,
        (_, "trace_state") => StringLocation::TraceStates,
        ("Span", "name") => StringLocation::SpanNames,
        ("Event", "name") | ("LogRecord", "event_name") => StringLocation::EventNames,
        ("Status", "message") => StringLocation::StatusMessages,
        ("InstrumentationScope", _) => StringLocation::Scopes,
        ("EntityRef", _) => StringLocation::EntityRefs,
        ("Metric", "description") => StringLocation::MetricDescriptions,
        ("Metric", _) => StringLocation::MetricNames,
        ("LogRecord", "severity_text") => StringLocation::SeverityTexts,
        _ => StringLocation::Other,
    })
}

fn attributes_place(parent: &str) -> StringLocation {
    match parent {
        "Resource" => StringLocation::ResourceAttributes,
        "InstrumentationScope" => StringLocation::ScopeAttributes,
        "Span" => StringLocation::SpanAttributes,
        "Event" => StringLocation::EventAttributes,
        "Link" => StringLocation::LinkAttributes,
        "LogRecord" => StringLocation::LogAttributes,
        "Exemplar" => StringLocation::ExemplarAttributes,
        "Metric" => StringLocation::MetricMetadata,
        _ if parent.ends_with("DataPoint") => StringLocation::DatapointAttributes,
        _ => StringLocation::Other,
    }
}

fn value_place(parent: &str) -> StringLocation {
    match parent {
        "LogRecord" => StringLocation::LogBodies,
        "KeyValueAndUnit" => StringLocation::ProfileAttributes,
        _ => StringLocation::Other,
    }
}
