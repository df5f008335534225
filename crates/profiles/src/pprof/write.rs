//! Converts profiles over a dictionary to pprof files.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;

use super::super::dictionary::Dictionary;
use super::super::encoding::{message, number};
use super::super::id::{
    AttributeSetId, FunctionId, Id, LinkId, LocationId, MappingId, SampleId, StringId,
};
use super::super::model::{Header, Profile, ResourceProfiles, ScopeProfiles};
use super::super::names;
use super::super::table::{Records, Strings};
pub use super::files::{EXECUTABLE_NAME, EXECUTABLE_PATH};
use super::files::{groups, main, order, text_of};
use super::labels::{NUMBER, UNIT};
use super::links::{LinkLabels, hex};
use crate::entry::{SampleKey, ValueType};
use tributary_otlp::reader::put_varint;

/// Converts the profiles of a scope to pprof files, without gzip. Profiles with the same time, duration and period
/// share a file.
///
/// Values with timestamps are added up, and timestamps without values are counted. Content without a pprof equivalent
/// is left out, such as the resource, the scope's name and frame types.
pub fn write(
    dictionary: &Dictionary,
    resource: &ResourceProfiles,
    scope: &ScopeProfiles,
    links: &LinkLabels,
) -> Vec<Vec<u8>> {
    let main = main(resource);
    let attributes = scope
        .scope
        .as_ref()
        .map(|scope| scope.attributes.as_slice());
    let attributes = attributes.unwrap_or_default();
    let order = order(attributes);
    let default = text_of(attributes, names::DEFAULT_SAMPLE_TYPE).unwrap_or_default();
    let mut files = Vec::new();
    for mut group in groups(scope, order.as_deref()) {
        if let Some(order) = &order
            && order.len() == group.len()
        {
            let mut placed: Vec<(i64, &Profile)> = order.iter().copied().zip(group).collect();
            placed.sort_by_key(|(place, _)| *place);
            group = placed.into_iter().map(|(_, profile)| profile).collect();
        }
        files.push(Encoder::new(dictionary, links).file(&group, main, default));
    }
    files
}

/// Ids of entries: 1, 2, 3 in the order of the first reference.
#[derive(Debug)]
struct Ids<I>(HashMap<usize, u64, RandomState>, Vec<I>);

impl<I: Id> Ids<I> {
    fn new() -> Self {
        Ids(HashMap::default(), Vec::new())
    }

    fn get(&mut self, id: I) -> u64 {
        let next = self.1.len() as u64 + 1;
        *self.0.entry(id.index()).or_insert_with(|| {
            self.1.push(id);
            next
        })
    }
}

#[derive(Debug)]
struct Encoder<'d> {
    from: &'d Dictionary,
    links: &'d LinkLabels,
    strings: Strings<StringId>,
    mappings: Ids<MappingId>,
    locations: Ids<LocationId>,
    functions: Ids<FunctionId>,
    labels: HashMap<(AttributeSetId, LinkId), Vec<u8>, RandomState>,
}

impl<'d> Encoder<'d> {
    fn new(from: &'d Dictionary, links: &'d LinkLabels) -> Self {
        Encoder {
            from,
            links,
            strings: Strings::new(),
            mappings: Ids::new(),
            locations: Ids::new(),
            functions: Ids::new(),
            labels: HashMap::default(),
        }
    }

    fn file(mut self, profiles: &[&Profile], main: Option<&str>, default: &str) -> Vec<u8> {
        let mut output = Vec::new();
        for profile in profiles {
            let sample_type = self.value_type(profile.header.sample_type);
            message(&mut output, 1, &sample_type);
        }
        self.samples(profiles, &mut output);
        self.tables(main, &mut output);
        if let Some(profile) = profiles.first() {
            self.header(&profile.header, &mut output);
        }
        let default = self.text(default);
        number(&mut output, 14, default);
        for at in 0..self.strings.len() {
            let id = StringId::new(u32::try_from(at).unwrap_or_default());
            message(&mut output, 6, self.strings.get(id).as_bytes());
        }
        output
    }

    fn samples(&mut self, profiles: &[&Profile], output: &mut Vec<u8>) {
        let types = profiles.len();
        let mut keys = Records::<SampleId, SampleKey>::without_zero();
        let mut totals: Vec<i64> = Vec::new();
        for (of, profile) in profiles.iter().enumerate() {
            for sample in profile.samples.iter() {
                let (value, _) = sample.total();
                if value == 0 {
                    continue;
                }
                let at = keys.intern(sample.key).index() * types;
                if at >= totals.len() {
                    totals.resize(at + types, 0);
                }
                if let Some(total) = totals.get_mut(at + of) {
                    *total = total.saturating_add(value);
                }
            }
        }
        let (mut sample, mut packed) = (Vec::new(), Vec::new());
        for (key, values) in keys.entries().iter().zip(totals.chunks(types.max(1))) {
            sample.clear();
            packed.clear();
            for location in self.from.locations(key.stack) {
                put_varint(self.locations.get(*location), &mut packed);
            }
            message(&mut sample, 1, &packed);
            packed.clear();
            for value in values {
                put_varint(value.cast_unsigned(), &mut packed);
            }
            message(&mut sample, 2, &packed);
            sample.extend_from_slice(self.labels(*key));
            message(output, 2, &sample);
        }
    }

    fn tables(&mut self, main: Option<&str>, output: &mut Vec<u8>) {
        let locations = self.locations.1.clone();
        if let Some(main) = main {
            let mut used = locations
                .iter()
                .map(|id| self.from.get_location(*id).mapping)
                .filter(|mapping| mapping.index() != 0);
            let first = used.find(|mapping| {
                let file = self.from.text(self.from.get_mapping(*mapping).filename);
                file == main || file.rsplit(['/', '\\']).next() == Some(main)
            });
            if let Some(first) = first {
                self.mappings.get(first);
            }
        }
        for (location, id) in locations.into_iter().zip(1..) {
            self.location(location, id, output);
        }
        for (mapping, id) in std::mem::take(&mut self.mappings.1).into_iter().zip(1..) {
            self.mapping(mapping, id, output);
        }
        for (function, id) in std::mem::take(&mut self.functions.1).into_iter().zip(1..) {
            let from = self.from.get_function(function);
            let mut entry = Vec::new();
            number(&mut entry, 1, id);
            for (field, string) in [(2, from.name), (3, from.system_name), (4, from.filename)] {
                let string = self.string(string);
                number(&mut entry, field, string);
            }
            number(&mut entry, 5, from.start_line.cast_unsigned());
            message(output, 5, &entry);
        }
    }

    fn location(&mut self, location: LocationId, id: u64, output: &mut Vec<u8>) {
        let from = self.from.get_location(location);
        let mut entry = Vec::new();
        number(&mut entry, 1, id);
        if from.mapping.index() != 0 {
            number(&mut entry, 2, self.mappings.get(from.mapping));
        }
        number(&mut entry, 3, from.address);
        let mut line = Vec::new();
        for from in self.from.get_lines(from.lines) {
            line.clear();
            number(&mut line, 1, self.functions.get(from.function));
            number(&mut line, 2, from.line.cast_unsigned());
            number(&mut line, 3, from.column.cast_unsigned());
            message(&mut entry, 4, &line);
        }
        let folded = self.flag(from.attributes, names::IS_FOLDED);
        number(&mut entry, 5, u64::from(folded));
        message(output, 4, &entry);
    }

    fn mapping(&mut self, mapping: MappingId, id: u64, output: &mut Vec<u8>) {
        let from = self.from.get_mapping(mapping);
        let mut entry = Vec::new();
        number(&mut entry, 1, id);
        number(&mut entry, 2, from.start);
        number(&mut entry, 3, from.limit);
        number(&mut entry, 4, from.file_offset);
        let filename = self.string(from.filename);
        number(&mut entry, 5, filename);
        let mut build_ids = names::BUILD_IDS.iter();
        let build_id = build_ids.find_map(|key| self.attribute_text(from.attributes, key));
        let build_id = self.text(&build_id.unwrap_or_default());
        number(&mut entry, 6, build_id);
        let flags = [
            names::HAS_FUNCTIONS,
            names::HAS_FILENAMES,
            names::HAS_LINE_NUMBERS,
            names::HAS_INLINE_FRAMES,
        ];
        for (key, field) in flags.into_iter().zip(7..) {
            let set = self.flag(from.attributes, key);
            number(&mut entry, field, u64::from(set));
        }
        message(output, 3, &entry);
    }

    fn header(&mut self, header: &Header, output: &mut Vec<u8>) {
        let texts = [
            (7, names::DROP_FRAMES),
            (8, names::KEEP_FRAMES),
            (15, names::DOC_URL),
        ];
        for (field, key) in texts {
            if let Some(text) = self.attribute_text(header.attributes, key) {
                let text = self.text(&text);
                number(output, field, text);
            }
        }
        let signed = |number: u64| number.min(i64::MAX.cast_unsigned());
        number(output, 9, signed(header.time));
        number(output, 10, signed(header.duration));
        let period_type = self.value_type(header.period_type);
        message(output, 11, &period_type);
        number(output, 12, header.period.cast_unsigned());
        let mut comments = Vec::new();
        for comment in self.comments(header.attributes) {
            put_varint(self.text(&comment), &mut comments);
        }
        if !comments.is_empty() {
            message(output, 13, &comments);
        }
    }

    /// Returns the comments. Some writers use a numbered attribute for each comment instead of a list.
    fn comments(&self, set: AttributeSetId) -> Vec<String> {
        let mut comments = Vec::new();
        for id in self.from.attributes(set) {
            let attribute = self.from.get_attribute(*id);
            let key = self.from.text(attribute.key);
            let rest = key.strip_prefix(names::COMMENT);
            let place = match rest {
                Some("") => Some(0),
                Some(rest) => rest.strip_prefix('.').and_then(|place| place.parse().ok()),
                None => None,
            };
            let Some(place) = place else { continue };
            let place: u64 = place;
            let values = match self.from.any_value(attribute.value).value {
                Some(Any::ArrayValue(array)) => array.values,
                value => vec![AnyValue { value }],
            };
            let texts = values.into_iter().filter_map(|value| match value.value {
                Some(Any::StringValue(text)) => Some((place, text)),
                _ => None,
            });
            comments.extend(texts);
        }
        comments.sort_by_key(|(place, _)| *place);
        comments.into_iter().map(|(_, text)| text).collect()
    }

    fn flag(&self, set: AttributeSetId, key: &str) -> bool {
        let attribute = self.from.find(set, key);
        let value = attribute.and_then(|attribute| self.from.any_value(attribute.value).value);
        value == Some(Any::BoolValue(true))
    }

    fn attribute_text(&self, set: AttributeSetId, key: &str) -> Option<String> {
        let attribute = self.from.find(set, key)?;
        match self.from.any_value(attribute.value).value {
            Some(Any::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    fn value_type(&mut self, from: ValueType) -> Vec<u8> {
        let mut output = Vec::new();
        let (kind, unit) = (self.string(from.kind), self.string(from.unit));
        number(&mut output, 1, kind);
        number(&mut output, 2, unit);
        output
    }

    fn string(&mut self, id: StringId) -> u64 {
        self.text(self.from.text(id))
    }

    fn text(&mut self, text: &str) -> u64 {
        self.strings.intern(text).index() as u64
    }

    fn labels(&mut self, key: SampleKey) -> &[u8] {
        let known = (key.attributes, key.link);
        if !self.labels.contains_key(&known) {
            let mut fields = Vec::new();
            for id in self.from.attributes(key.attributes) {
                let attribute = self.from.get_attribute(*id);
                let (key, unit) = (
                    self.from.text(attribute.key),
                    self.from.text(attribute.unit),
                );
                let value = self.from.any_value(attribute.value);
                self.label(key, &value, unit, &mut fields);
            }
            if key.link.index() != 0 {
                for (key, id) in self.links.of(self.from.get_link(key.link)) {
                    self.label_text(key, &id, &mut fields);
                }
            }
            self.labels.insert(known, fields);
        }
        self.labels.get(&known).map_or(&[], Vec::as_slice)
    }

    fn label(&mut self, key: &str, value: &AnyValue, unit: &str, fields: &mut Vec<u8>) {
        match &value.value {
            None => {}
            Some(Any::StringValue(text)) => self.label_text(key, text, fields),
            Some(Any::IntValue(value)) => {
                let mut label = Vec::new();
                let (key, unit) = (self.text(key), self.text(unit));
                number(&mut label, 1, key);
                number(&mut label, 3, value.cast_unsigned());
                number(&mut label, 4, unit);
                message(fields, 3, &label);
            }
            Some(Any::ArrayValue(array)) => {
                for value in &array.values {
                    self.label(key, value, unit, fields);
                }
            }
            Some(Any::KvlistValue(list)) => match list.values.as_slice() {
                [value, unit] if value.key == NUMBER && unit.key == UNIT => {
                    let unit = match unit.value.as_ref().and_then(|unit| unit.value.as_ref()) {
                        Some(Any::StringValue(unit)) => unit,
                        _ => "",
                    };
                    if let Some(value) = &value.value {
                        self.label(key, value, unit, fields);
                    }
                }
                values => {
                    for value in values {
                        let key = format!("{key}.{}", value.key);
                        if let Some(value) = &value.value {
                            self.label(&key, value, unit, fields);
                        }
                    }
                }
            },
            Some(Any::BoolValue(value)) => self.label_text(key, &value.to_string(), fields),
            Some(Any::DoubleValue(value)) => self.label_text(key, &value.to_string(), fields),
            Some(Any::BytesValue(bytes)) => self.label_text(key, &hex(bytes), fields),
            // References to strings were resolved when the profile was read.
            Some(Any::StringValueStrindex(_)) => {}
        }
    }

    fn label_text(&mut self, key: &str, text: &str, fields: &mut Vec<u8>) {
        let mut label = Vec::new();
        let (key, text) = (self.text(key), self.text(text));
        number(&mut label, 1, key);
        number(&mut label, 2, text);
        message(fields, 3, &label);
    }
}
