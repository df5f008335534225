//! Tables of the step for each field, built from OTLP's descriptors.

use prost_types::field_descriptor_proto::Type;

use super::place::{Place, Places};
use crate::Signal;
use crate::descriptor::{Descriptors, FieldDescriptor, MessageDescriptor};

/// Step for a field, looked up by the key of the field: number and wire type together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing in it concerns anybody: numbers, ids, places that were not chosen.
    Skip,
    /// The number is unknown.
    Unknown,
    /// The number is known, the wire type is not the one of its type: not a valid request.
    Mismatch,
    /// A string.
    Text(Place),
    /// The bytes of an id. Those that are too long or too short for one may be anything.
    Id,
    /// An attribute.
    Attribute(Place),
    /// A string of a dictionary: what refers to it says where it stands.
    Shared,
    /// A value, as in an attribute.
    Value(Place),
    /// A message, by its position in the tables.
    Message(u8),
    /// The bytes that a profile was converted from, or the name of their format.
    Original,
}

/// The table of one message type.
#[derive(Debug)]
pub(super) struct Table {
    /// By key. Numbers are below 32 everywhere in OTLP, so a key is one byte.
    pub(super) steps: [Step; 256],
    /// Its attributes, if it has any that were chosen: their place and their field's number.
    pub(super) set: Option<(Place, u32)>,
    /// Index among the message types that many requests repeat: resource and scope.
    pub(super) repeated: Option<usize>,
}

/// Number of message types that have a [`Table::repeated`].
pub(super) const REPEATED: usize = 2;

/// The tables of all message types, for the places that were chosen.
#[derive(Debug)]
pub struct Tables {
    pub(super) tables: Vec<Table>,
    pub(super) places: Places,
    pub(super) drop_unknown: bool,
    roots: [usize; 4],
}

impl Tables {
    /// Tables for strings in these places; what nobody looks into is skipped as a whole, unless unknown fields are to be
    /// dropped there.
    pub fn new(places: Places, drop_unknown: bool) -> Self {
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

/// Messages in which there is nothing to do are skipped.
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

fn table(descriptors: &Descriptors, message: &MessageDescriptor, places: Places) -> Table {
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

/// Whether a field may have that wire type: the rules of prost.
fn accepts(field: &FieldDescriptor, wire_type: usize) -> bool {
    let own = match field.kind {
        Type::Message | Type::String | Type::Bytes => 2,
        Type::Fixed64 | Type::Sfixed64 | Type::Double => 1,
        Type::Fixed32 | Type::Sfixed32 | Type::Float => 5,
        _ => 0,
    };
    wire_type == own || field.repeated && wire_type == 2
}

fn step(descriptors: &Descriptors, parent: &str, field: &FieldDescriptor, places: Places) -> Step {
    let chosen = |step: Step, place: Place| if places.has(place) { step } else { Step::Skip };
    match field.kind {
        Type::String => match text_place(parent, &field.name) {
            _ if parent == "Profile" => Step::Original,
            _ if parent == "ProfilesDictionary" => Step::Shared,
            Some(place) => chosen(Step::Text(place), place),
            None => Step::Skip,
        },
        Type::Bytes if parent == "Profile" && field.name == "original_payload" => Step::Original,
        Type::Bytes => chosen(Step::Id, Place::Other),
        Type::Message => {
            let Some(target) = field.message else {
                return Step::Skip;
            };
            let kind = descriptors.messages.get(target).map(|to| short(&to.name));
            let keys = places.has(Place::AttributeKeys);
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

/// None for what is never looked at.
fn text_place(parent: &str, field: &str) -> Option<Place> {
    Some(match (parent, field) {
        (_, "schema_url") => return None,
        (_, "trace_state") => Place::TraceStates,
        ("Span", "name") => Place::SpanNames,
        ("Event", "name") | ("LogRecord", "event_name") => Place::EventNames,
        ("Status", "message") => Place::StatusMessages,
        ("InstrumentationScope", _) => Place::Scopes,
        ("EntityRef", _) => Place::EntityRefs,
        ("Metric", "description") => Place::MetricDescriptions,
        ("Metric", _) => Place::MetricNames,
        ("LogRecord", "severity_text") => Place::SeverityTexts,
        _ => Place::Other,
    })
}

fn attributes_place(parent: &str) -> Place {
    match parent {
        "Resource" => Place::ResourceAttributes,
        "InstrumentationScope" => Place::ScopeAttributes,
        "Span" => Place::SpanAttributes,
        "Event" => Place::EventAttributes,
        "Link" => Place::LinkAttributes,
        "LogRecord" => Place::LogAttributes,
        "Exemplar" => Place::ExemplarAttributes,
        "Metric" => Place::MetricMetadata,
        _ if parent.ends_with("DataPoint") => Place::DatapointAttributes,
        _ => Place::Other,
    }
}

fn value_place(parent: &str) -> Place {
    match parent {
        "LogRecord" => Place::LogBodies,
        "KeyValueAndUnit" => Place::ProfileAttributes,
        _ => Place::Other,
    }
}
