//! The same actions on profiles, whose attributes are entries of a dictionary.
//!
//! The attributes of a profile and of each of its samples are separate sets. A constant value (from the configuration
//! or a header) is added to the profile only. If a set changes, the original file of the profile is removed, because
//! its labels are unchanged.
//!
//! Resources are edited on the wire, unless their attributes are references into the dictionary.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use crate::pipeline::batch::Nack;
use crate::pipeline::output_memory::{OutputMemory, refusal};
use crate::processors::matching::Choice;
use tributary_otlp::Signal;
use tributary_otlp::attributes::{Actions, AttributeLevel};
use tributary_otlp::edit::EditError;
use tributary_otlp::reader::{Fields, WireFault};
use tributary_otlp::view;
use tributary_otlp::view::{Message, ResourceEntry, ScopeEntry, View as _};
use tributary_profiles::Profiles;
use tributary_profiles::dictionary::{Attribute, Dictionary};
use tributary_profiles::id::AttributeSetId;
use tributary_profiles::ingest::ingest;
use tributary_profiles::model::{ResourceProfiles, Samples, ScopeProfiles};
use tributary_profiles::reindex::CopiedEntries;

/// Edits a request, and returns its number of samples; `None` if nothing changes.
///
/// # Errors
///
/// The request breaks the rules of the dictionary.
pub(in crate::processors) fn apply(
    actions: &Actions,
    level: AttributeLevel,
    choice: &Choice,
    request: &[u8],
    output: &OutputMemory,
) -> Result<Option<(usize, Bytes)>, Nack> {
    let broken = |reason: String| Nack::invalid(format!("cannot edit the profiles: {reason}"));
    if level == AttributeLevel::Resources
        && !refer(request).map_err(|fault| broken(fault.text().into()))?
    {
        let edited = actions.apply_to_resources_of_profiles(request, output);
        let edited = edited.map_err(|error| match error {
            EditError::Malformed(error) => broken(error.to_string()),
            EditError::RoomExhausted(_) => refusal(output.no_room()),
        })?;
        return Ok(edited.map(|edited| (tributary_otlp::count(Signal::Profiles, &edited), edited)));
    }
    let mut profiles = Profiles::default();
    let dictionary = &mut profiles.dictionary;
    profiles.resources = ingest(request, dictionary, &mut CopiedEntries::default(), None)
        .map_err(|fault| broken(fault.to_string()))?
        .resources;
    let mut editor = Editor {
        actions,
        choice,
        dictionary: &mut profiles.dictionary,
        of_profiles: HashMap::default(),
        of_samples: HashMap::default(),
        changed: false,
    };
    for resource in &mut profiles.resources {
        match level {
            AttributeLevel::Resources => editor.resource(resource),
            AttributeLevel::Items => editor.items(resource),
        }
    }
    let changed = editor.changed;
    Ok(changed.then(|| (profiles.samples(), profiles.encode())))
}

/// Whether an attribute of a resource refers to the dictionary, by its key or its value.
fn refer(request: &[u8]) -> Result<bool, WireFault> {
    for entry in Fields::new(request) {
        let entry = entry?;
        for resource in entry.fields().filter(|_| entry.number == 1) {
            let resource = resource?;
            for attribute in resource.fields().filter(|_| resource.number == 1) {
                let attribute = attribute?;
                if attribute.number == 1 && refers(attribute.value.bytes().unwrap_or_default())? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Whether an attribute has a reference. Nested values count, even if they are overridden.
fn refers(attribute: &[u8]) -> Result<bool, WireFault> {
    for field in Fields::new(attribute) {
        let field = field?;
        let refers = match (field.number, field.value.bytes()) {
            (2, Some(value)) => value_refers(value)?,
            (3, None) => true,
            _ => false,
        };
        if refers {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a value has a reference. The validator limits the nesting of values.
fn value_refers(value: &[u8]) -> Result<bool, WireFault> {
    for field in Fields::new(value) {
        let field = field?;
        if field.number == 8 {
            return Ok(true);
        }
        for inner in field.fields().filter(|_| matches!(field.number, 5 | 6)) {
            let inner = inner?.value.bytes().unwrap_or_default();
            let refers = match field.number {
                5 => value_refers(inner)?,
                _ => refers(inner)?,
            };
            if refers {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

type Edited = HashMap<AttributeSetId, AttributeSetId, RandomState>;

struct Editor<'e> {
    actions: &'e Actions,
    choice: &'e Choice,
    dictionary: &'e mut Dictionary,
    /// Edited sets, by the unedited set.
    of_profiles: Edited,
    of_samples: Edited,
    changed: bool,
}

impl Editor<'_> {
    fn resource(&mut self, profiles: &mut ResourceProfiles) {
        let before = profiles.resource.clone();
        let resource = profiles.resource.get_or_insert_default();
        self.actions.apply_to(&mut resource.attributes);
        if before.is_none() && resource.attributes.is_empty() {
            profiles.resource = None;
        }
        self.changed |= profiles.resource != before;
    }

    fn items(&mut self, profiles: &mut ResourceProfiles) {
        let mut selecting = self.choice.selecting(Signal::Profiles);
        let header = encoded_resource(profiles.resource.as_ref());
        if !selecting.of_resource(ResourceEntry::view(Message::new(&header))) {
            return;
        }
        for scope in &mut profiles.scopes {
            let header = encoded_scope(scope.scope.as_ref());
            if !selecting.of_scope(ScopeEntry::view(Message::new(&header))) {
                continue;
            }
            self.scope(scope, |attributes| {
                let attributes = Resource {
                    attributes: attributes.to_vec(),
                    ..Resource::default()
                };
                let attributes = attributes.encode_to_vec();
                selecting
                    .of_attributes(view::Resource::view(Message::new(&attributes)).attributes())
            });
        }
    }

    fn scope(&mut self, scope: &mut ScopeProfiles, select: impl Fn(&[KeyValue]) -> bool) {
        for profile in &mut scope.profiles {
            let set = profile.header.attributes;
            if !select(&self.key_values(set)) {
                continue;
            }
            profile.header.attributes = self.edited(set, true);
            let mut changed = profile.header.attributes != set;
            let mut samples = Samples::default();
            samples.reserve(profile.samples.len());
            for sample in profile.samples.iter() {
                let mut key = sample.key;
                key.attributes = self.edited(key.attributes, false);
                changed |= key.attributes != sample.key.attributes;
                samples.push(key, sample.values, sample.timestamps);
            }
            profile.samples = samples;
            if changed {
                // The original file still has the deleted or hashed attributes.
                profile.header.original = None;
            }
        }
    }

    fn key_values(&self, set: AttributeSetId) -> Vec<KeyValue> {
        let attributes = self.dictionary.attributes(set).iter();
        attributes
            .map(|id| {
                let attribute = self.dictionary.get_attribute(*id);
                KeyValue {
                    key: self.dictionary.text(attribute.key).to_owned(),
                    value: Some(self.dictionary.any_value(attribute.value)),
                    ..KeyValue::default()
                }
            })
            .collect()
    }

    fn edited(&mut self, set: AttributeSetId, of_profile: bool) -> AttributeSetId {
        let known = match of_profile {
            true => &self.of_profiles,
            false => &self.of_samples,
        };
        if let Some(edited) = known.get(&set) {
            return *edited;
        }
        let before = self.key_values(set);
        let mut after = before.clone();
        match of_profile {
            true => self.actions.apply_to(&mut after),
            false => self.actions.apply_to_part(&mut after),
        }
        let edited = if before == after {
            set
        } else {
            self.changed = true;
            self.intern(set, &after)
        };
        match of_profile {
            true => self.of_profiles.insert(set, edited),
            false => self.of_samples.insert(set, edited),
        };
        edited
    }

    /// Interns edited attributes as a set. An attribute has the unit that its key had in the set `before`.
    fn intern(&mut self, before: AttributeSetId, attributes: &[KeyValue]) -> AttributeSetId {
        let units: BTreeMap<_, _> = self
            .dictionary
            .attributes(before)
            .iter()
            .map(|id| self.dictionary.get_attribute(*id))
            .map(|attribute| (attribute.key, attribute.unit))
            .collect();
        let ids: Vec<_> = attributes
            .iter()
            .map(|attribute| {
                let none = AnyValue::default();
                let key = self.dictionary.string(&attribute.key);
                let value = self
                    .dictionary
                    .value(attribute.value.as_ref().unwrap_or(&none));
                let unit = units.get(&key).copied().unwrap_or_default();
                self.dictionary.attribute(Attribute { key, value, unit })
            })
            .collect();
        self.dictionary.attribute_set(&ids)
    }
}

fn encoded_resource(resource: Option<&Resource>) -> Vec<u8> {
    let entry = proto::ResourceProfiles {
        resource: resource.cloned(),
        ..proto::ResourceProfiles::default()
    };
    entry.encode_to_vec()
}

fn encoded_scope(scope: Option<&InstrumentationScope>) -> Vec<u8> {
    let entry = proto::ScopeProfiles {
        scope: scope.cloned(),
        ..proto::ScopeProfiles::default()
    };
    entry.encode_to_vec()
}
