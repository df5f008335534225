//! Entries of a dictionary that were already copied into a table.

use smallvec::SmallVec;

use super::attributes::{Pairs, encode_value};
use super::frames::{Frame, Frames};
use super::read::{bytes, fields, number};
use super::resolve::{Dictionary, get, index, indices};
use super::strings::NONE;
use tributary_profiles::names::{BUILD_IDS, FRAME_TYPE};

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
