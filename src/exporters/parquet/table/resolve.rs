//! The dictionary of a profiles request, and the entries already copied into a table.
//!
//! An invalid index means no entry, like index 0.

use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use smallvec::SmallVec;

use super::attributes::{Pairs, encode_value};
use super::frames::{Frame, Frames};
use super::read::{bytes, fields, number};
use super::strings::NONE;
use super::text;
use tributary_otlp::reader::{Value, varint};
use tributary_otlp::view::{AnyValue, Message, View as _};
use tributary_profiles::entries::Entries;
use tributary_profiles::names::{BUILD_IDS, FRAME_TYPE};
use tributary_profiles::references::References;

/// The tables of a request's dictionary.
#[derive(Debug)]
pub(super) struct Dictionary<'r> {
    pub(super) entries: Entries<'r>,
}

/// An attribute of the dictionary.
struct Attribute<'r> {
    key: &'r [u8],
    /// An encoded `AnyValue` without references.
    value: std::borrow::Cow<'r, [u8]>,
    unit: &'r [u8],
}

impl<'r> Dictionary<'r> {
    pub(super) fn string(&self, index: i32) -> &'r [u8] {
        get(&self.entries.strings, index)
    }

    pub(super) fn value_type(&self, value_type: &[u8]) -> (&'r [u8], &'r [u8]) {
        let (mut kind, mut unit) = (0, 0);
        for (field, value) in fields(value_type).map_while(Result::ok) {
            match field {
                1 => kind = index(value),
                2 => unit = index(value),
                _ => {}
            }
        }
        (self.string(kind), self.string(unit))
    }

    /// Returns the trace id and the span id of a link.
    pub(super) fn link(&self, at: i32) -> (&'r [u8], &'r [u8]) {
        let (mut trace, mut span) = (&[][..], &[][..]);
        for (field, value) in fields(get(&self.entries.links, at)).map_while(Result::ok) {
            match field {
                1 => trace = bytes(value),
                2 => span = bytes(value),
                _ => {}
            }
        }
        (trace, span)
    }

    fn attribute(&self, at: i32) -> Option<Attribute<'r>> {
        let entry = *self.entries.attributes.get(usize::try_from(at).ok()?)?;
        if at == 0 {
            return None;
        }
        let (mut key, mut value, mut unit) = (0, &[][..], 0);
        for (field, bits) in fields(entry).map_while(Result::ok) {
            match field {
                1 => key = index(bits),
                2 => value = bytes(bits),
                3 => unit = index(bits),
                _ => {}
            }
        }
        Some(Attribute {
            key: self.string(key),
            value: self.value(value),
            unit: self.string(unit),
        })
    }

    /// Returns a value with its string references resolved.
    fn value<'v>(&self, value: &'v [u8]) -> std::borrow::Cow<'v, [u8]> {
        match AnyValue::view(Message::new(value)) {
            AnyValue::StringIndex(at) => {
                let text = self.string(at);
                let text = String::from_utf8_lossy(text).into_owned();
                let value = common::any_value::Value::StringValue(text);
                let value = common::AnyValue { value: Some(value) };
                value.encode_to_vec().into()
            }
            AnyValue::Array(_) | AnyValue::Map(_) => {
                let mut references = References::new(&self.entries.strings);
                let decoded = common::AnyValue::decode(value).unwrap_or_default();
                match references.resolved(&decoded) {
                    Ok(std::borrow::Cow::Owned(value)) => value.encode_to_vec().into(),
                    _ => value.into(),
                }
            }
            _ => value.into(),
        }
    }

    /// Returns a resource with its string references resolved.
    pub(super) fn resource(&self, resource: &[u8]) -> Vec<u8> {
        let mut decoded = Resource::decode(resource).unwrap_or_default();
        let mut references = References::new(&self.entries.strings);
        match references.resolve(&mut decoded.attributes) {
            Ok(()) => decoded.encode_to_vec(),
            Err(_) => resource.to_vec(),
        }
    }

    /// Returns a scope with its string references resolved.
    pub(super) fn scope(&self, scope: &[u8]) -> Vec<u8> {
        let mut decoded = common::InstrumentationScope::decode(scope).unwrap_or_default();
        let mut references = References::new(&self.entries.strings);
        match references.resolve(&mut decoded.attributes) {
            Ok(()) => decoded.encode_to_vec(),
            Err(_) => scope.to_vec(),
        }
    }

    /// Writes attributes as JSON, except the attributes with a column.
    fn json(&self, indices: &[i32], left_out: &[&str], output: &mut Vec<u8>) {
        output.push(b'{');
        let mut is_first = true;
        for attribute in indices.iter().filter_map(|at| self.attribute(*at)) {
            let key = str::from_utf8(attribute.key).unwrap_or_default();
            if left_out.contains(&key) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                output.push(b',');
            }
            text::quote(key, output);
            output.push(b':');
            text::put_json(&AnyValue::view(Message::new(&attribute.value)), output);
            if !attribute.unit.is_empty() {
                output.push(b',');
                text::quote(&format!("{key}.unit"), output);
                output.push(b':');
                text::quote(str::from_utf8(attribute.unit).unwrap_or_default(), output);
            }
        }
        output.push(b'}');
    }

    /// Returns one of the attributes as text.
    fn text_of(&self, indices: &[i32], key: &str) -> Option<Vec<u8>> {
        let mut attributes = indices.iter().filter_map(|at| self.attribute(*at));
        let found = attributes.find(|attribute| attribute.key == key.as_bytes())?;
        let mut output = Vec::new();
        text::put(&AnyValue::view(Message::new(&found.value)), &mut output);
        Some(output)
    }
}

/// Returns the entry of a table; empty for index 0.
fn get<'r>(table: &[&'r [u8]], index: i32) -> &'r [u8] {
    match usize::try_from(index) {
        Ok(0) | Err(_) => &[],
        Ok(at) => table.get(at).copied().unwrap_or_default(),
    }
}

/// Returns an index: the lower 32 bits of the integer.
pub(super) fn index(value: Value<'_>) -> i32 {
    (number(value) as u32).cast_signed()
}

/// Calls `each` with indices, packed or not.
pub(super) fn indices(value: Value<'_>, mut each: impl FnMut(i32)) {
    varints(value, |value| each((value as u32).cast_signed()));
}

/// Calls `each` with integers, packed or not.
pub(super) fn varints(value: Value<'_>, mut each: impl FnMut(u64)) {
    match value {
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                let Ok((value, rest)) = varint(packed) else {
                    return;
                };
                each(value);
                packed = rest;
            }
        }
        value => each(number(value)),
    }
}

/// Cached values of the entries of a dictionary's table, by index. Clearing takes constant time,
/// because the profiles of a request may alternate between two tables.
#[derive(Debug, Default)]
pub(super) struct Noted<T> {
    /// Values with the round in which each was stored. Rounds begin with 1; only values of the
    /// current round are valid.
    entries: Vec<(u32, T)>,
    round: u32,
}

impl<T: Copy + Default> Noted<T> {
    pub(super) fn forget(&mut self) {
        self.round += 1;
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<T> {
        let (round, value) = self.entries.get(at)?;
        (*round == self.round).then_some(*value)
    }

    /// Stores a value for an entry of a table with `all` entries. An index beyond the table is not
    /// stored.
    pub(super) fn note(&mut self, at: usize, all: usize, value: T) {
        if at < all {
            self.entries.resize(all, (0, T::default()));
            self.entries[at] = (self.round, value);
        }
    }
}

/// Dictionary entries already copied into the table, by index.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Contents of the table for which the entries are valid.
    table: u64,
    stacks: Noted<u32>,
    /// Range of each location's frames in `frames`.
    locations: Noted<(u32, u32)>,
    frames: Vec<u32>,
    mappings: Noted<(u32, u32, u32)>,
    scratch: Vec<u32>,
}

impl Known {
    /// Forgets entries of other tables or of earlier contents.
    pub(super) fn begin(&mut self, table: u64) {
        if self.table != table {
            self.table = table;
            self.stacks.forget();
            self.locations.forget();
            self.frames.clear();
            self.mappings.forget();
        }
    }

    /// Returns the number of a stack in the table.
    #[inline]
    pub(super) fn stack(
        &mut self,
        dictionary: &Dictionary<'_>,
        at: i32,
        frames: &mut Frames,
    ) -> u32 {
        let at = usize::try_from(at).unwrap_or_default();
        match self.stacks.get(at) {
            Some(stack) => stack,
            None => self.new_stack(dictionary, at, frames),
        }
    }

    fn new_stack(&mut self, dictionary: &Dictionary<'_>, at: usize, frames: &mut Frames) -> u32 {
        let mut stack = std::mem::take(&mut self.scratch);
        stack.clear();
        let index = i32::try_from(at).unwrap_or_default();
        let entry = get(&dictionary.entries.stacks, index);
        for (field, value) in fields(entry).map_while(Result::ok) {
            if field == 1 {
                indices(value, |location| {
                    let (start, end) = self.location(dictionary, location, frames);
                    let found = self.frames.get(start as usize..end as usize);
                    stack.extend_from_slice(found.unwrap_or_default());
                });
            }
        }
        let id = frames.stack(&stack);
        self.scratch = stack;
        self.stacks.note(at, dictionary.entries.stacks.len(), id);
        id
    }

    fn location(
        &mut self,
        dictionary: &Dictionary<'_>,
        index: i32,
        frames: &mut Frames,
    ) -> (u32, u32) {
        let at = usize::try_from(index).unwrap_or_default();
        if let Some(known) = self.locations.get(at) {
            return known;
        }
        let start = self.frames.len() as u32;
        self.read_location(
            dictionary,
            get(&dictionary.entries.locations, index),
            frames,
        );
        let range = (start, self.frames.len() as u32);
        let all = dictionary.entries.locations.len();
        self.locations.note(at, all, range);
        range
    }

    fn read_location(&mut self, dictionary: &Dictionary<'_>, location: &[u8], frames: &mut Frames) {
        let (mut mapping, mut address) = (0, 0);
        let mut lines: SmallVec<[&[u8]; 8]> = SmallVec::new();
        let mut attributes: SmallVec<[i32; 8]> = SmallVec::new();
        for (field, value) in fields(location).map_while(Result::ok) {
            match field {
                1 => mapping = index(value),
                2 => address = number(value),
                3 => lines.push(bytes(value)),
                4 => indices(value, |at| attributes.push(at)),
                _ => {}
            }
        }
        let (mapping, build_id, details) = self.mapping(dictionary, mapping, frames);
        let kind = dictionary.text_of(&attributes, FRAME_TYPE);
        let mut json = Vec::new();
        dictionary.json(&attributes, &[FRAME_TYPE], &mut json);
        let common = Frame {
            address: frames.word(address),
            kind: frames.text(&kind.unwrap_or_default()),
            mapping,
            build_id,
            details,
            attributes: match json.len() {
                2 => frames.text(b""),
                _ => frames.text(&json),
            },
            ..frames.nothing()
        };
        let last = lines.len().saturating_sub(1);
        if lines.is_empty() {
            let frame = frames.frame(common);
            self.frames.push(frame);
        }
        for (at, line) in lines.into_iter().enumerate() {
            let (mut function, mut number_, mut column) = (0, 0, 0);
            for (field, value) in fields(line).map_while(Result::ok) {
                match field {
                    1 => function = index(value),
                    2 => number_ = number(value),
                    3 => column = number(value),
                    _ => {}
                }
            }
            let (mut name, mut system_name, mut file, mut start_line) = (0, 0, 0, 0);
            let function = get(&dictionary.entries.functions, function);
            for (field, value) in fields(function).map_while(Result::ok) {
                match field {
                    1 => name = index(value),
                    2 => system_name = index(value),
                    3 => file = index(value),
                    4 => start_line = number(value),
                    _ => {}
                }
            }
            let (name, system_name) = (dictionary.string(name), dictionary.string(system_name));
            let frame = Frame {
                function: frames.text(name),
                // Nearly always equal to the name.
                system_name: match system_name == name {
                    true => frames.text(b""),
                    false => frames.text(system_name),
                },
                file: frames.text(dictionary.string(file)),
                line: frames.word(number_),
                column: frames.word(column),
                start_line: frames.word(start_line),
                inlined: at < last,
                ..common
            };
            let frame = frames.frame(frame);
            self.frames.push(frame);
        }
    }

    /// Reads a mapping: its file, its build id, and the rest as JSON.
    fn mapping(
        &mut self,
        dictionary: &Dictionary<'_>,
        at: i32,
        frames: &mut Frames,
    ) -> (u32, u32, u32) {
        let place = usize::try_from(at).unwrap_or_default();
        if let Some(known) = self.mappings.get(place) {
            return known;
        }
        let mapping = get(&dictionary.entries.mappings, at);
        let (mut start, mut limit, mut offset, mut file) = (0, 0, 0, 0);
        let mut attributes: SmallVec<[i32; 8]> = SmallVec::new();
        for (field, value) in fields(mapping).map_while(Result::ok) {
            match field {
                1 => start = number(value),
                2 => limit = number(value),
                3 => offset = number(value),
                4 => file = index(value),
                5 => indices(value, |at| attributes.push(at)),
                _ => {}
            }
        }
        let build_id = BUILD_IDS
            .iter()
            .find_map(|key| Some((*key, dictionary.text_of(&attributes, key)?)));
        let (key, build_id) = build_id.unwrap_or_default();
        let mut json = Vec::new();
        if (start, limit, offset) != (0, 0, 0) || !attributes.is_empty() {
            let range = format!(
                "{{\"memory_start\":{start},\"memory_limit\":{limit},\"file_offset\":{offset},\"build_id\":\"{}\",\
                 \"attributes\":",
                key.rsplit('.').next().unwrap_or_default()
            );
            json.extend_from_slice(range.as_bytes());
            dictionary.json(&attributes, &[key], &mut json);
            json.push(b'}');
        }
        let known = (
            frames.text(dictionary.string(file)),
            frames.text(&build_id),
            frames.text(&json),
        );
        let all = dictionary.entries.mappings.len();
        self.mappings.note(place, all, known);
        known
    }
}

/// Pairs of the dictionary's attributes, by index.
#[derive(Debug, Default)]
pub(super) struct KnownPairs {
    table: u64,
    pairs: Noted<(u32, u32)>,
}

impl KnownPairs {
    /// Forgets entries of other tables or of earlier contents.
    pub(super) fn begin(&mut self, table: u64) {
        if self.table != table {
            self.table = table;
            self.pairs.forget();
        }
    }

    /// Returns the pair of an attribute, and the pair of its unit.
    #[inline]
    pub(super) fn get(
        &mut self,
        dictionary: &Dictionary<'_>,
        index: i32,
        pairs: &mut Pairs,
    ) -> (Option<u32>, Option<u32>) {
        let at = usize::try_from(index).unwrap_or_default();
        let known = match self.pairs.get(at) {
            Some(known) => known,
            None => match dictionary.attribute(index) {
                None => return (None, None),
                Some(attribute) => {
                    let pair = pairs.add(&encode_value(attribute.key, &attribute.value));
                    let unit = match attribute.unit {
                        [] => NONE,
                        unit => pairs.add_unit(attribute.key, unit),
                    };
                    let all = dictionary.entries.attributes.len();
                    self.pairs.note(at, all, (pair, unit));
                    (pair, unit)
                }
            },
        };
        let unit = (known.1 != NONE).then_some(known.1);
        (Some(known.0), unit)
    }
}
