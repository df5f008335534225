//! Interned stacks and frames, and the table of stacks.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::WriteError;
use super::gathered::Gathered;
use super::group::RowGroup;
use super::ranges::Ranges;
use super::strings::Strings;
use super::text::quote;
use super::texts::Words;
use super::values::Bits;

/// A frame, as numbers of texts and of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) function: u32,
    pub(super) system_name: u32,
    pub(super) file: u32,
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) start_line: u32,
    pub(super) inlined: bool,
    pub(super) address: u32,
    pub(super) kind: u32,
    pub(super) mapping: u32,
    pub(super) build_id: u32,
    pub(super) details: u32,
    pub(super) attributes: u32,
}

/// Whether a column of frames has any values.
#[derive(Debug, Clone, Copy)]
#[repr(u16)]
enum Has {
    SystemName = 1 << 1,
    File = 1 << 2,
    Line = 1 << 3,
    Column = 1 << 4,
    StartLine = 1 << 5,
    Inlined = 1 << 6,
    Address = 1 << 7,
    TableKind = 1 << 8,
    Mapping = 1 << 9,
    BuildId = 1 << 10,
    Details = 1 << 11,
    Attributes = 1 << 12,
}

/// Interned stacks and frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// Texts; text 0 is empty.
    pub(super) texts: Strings,
    /// 64-bit numbers as bytes; word 0 is 0.
    words: Strings,
    pub(super) frames: Vec<Frame>,
    hashes: Vec<u64>,
    ids: HashMap<Frame, u32, FixedState>,
    pub(super) stacks: Vec<u32>,
    pub(super) ranges: Ranges,
    has: Vec<u16>,
    stack_hashes: Vec<u64>,
    /// Bytes of the texts of all frames as JSON, without keys.
    pub(super) text_bytes: usize,
    /// Stacks, by the numbers of their frames.
    by_frames: Strings,
    scratch: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Self {
        let mut frames = Frames {
            texts: Strings::default(),
            words: Strings::default(),
            frames: Vec::new(),
            hashes: Vec::new(),
            ids: HashMap::default(),
            stacks: Vec::new(),
            ranges: Ranges::default(),
            has: Vec::new(),
            stack_hashes: Vec::new(),
            text_bytes: 0,
            by_frames: Strings::default(),
            scratch: Vec::new(),
        };
        frames.begin();
        frames
    }
}

impl Frames {
    fn begin(&mut self) {
        self.texts.intern(b"");
        self.words.intern(&0_u64.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &[u8]) -> u32 {
        match text {
            [] => 0,
            text => self.texts.intern(text),
        }
    }

    pub(super) fn word(&mut self, word: u64) -> u32 {
        match word {
            0 => 0,
            word => self.words.intern(&word.to_le_bytes()),
        }
    }

    /// Returns a frame without any properties.
    pub(super) fn nothing(&self) -> Frame {
        Frame {
            function: 0,
            system_name: 0,
            file: 0,
            line: 0,
            column: 0,
            start_line: 0,
            inlined: false,
            address: 0,
            kind: 0,
            mapping: 0,
            build_id: 0,
            details: 0,
            attributes: 0,
        }
    }

    pub(super) fn frame(&mut self, frame: Frame) -> u32 {
        let next = self.frames.len() as u32;
        let id = *self.ids.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
            self.hashes.push(self.hash(&frame));
            self.text_bytes += self.text_bytes_of(&frame);
        }
        id
    }

    /// Returns a hash of the frame that is the same in any file: of function, file and line, or of
    /// a nameless frame's address in its binary.
    fn hash(&self, frame: &Frame) -> u64 {
        let parts = match frame.function {
            0 => [
                self.texts.get(match frame.build_id {
                    0 => frame.mapping,
                    build_id => build_id,
                }),
                b"",
                self.words.get(frame.address),
            ],
            function => [
                self.texts.get(function),
                self.texts.get(frame.file),
                self.words.get(frame.line),
            ],
        };
        let mut hash = Xxh3::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.digest()
    }

    fn text_bytes_of(&self, frame: &Frame) -> usize {
        let texts = [
            frame.function,
            frame.system_name,
            frame.file,
            frame.kind,
            frame.mapping,
            frame.build_id,
            frame.details,
            frame.attributes,
        ];
        texts
            .into_iter()
            .map(|text| self.texts.get(text).len())
            .sum()
    }

    pub(super) fn stack(&mut self, frames: &[u32]) -> u32 {
        self.scratch.clear();
        self.scratch
            .extend(frames.iter().flat_map(|frame| frame.to_le_bytes()));
        let id = self.by_frames.intern(&self.scratch);
        if id as usize == self.has.len() {
            self.stacks.extend_from_slice(frames);
            self.ranges.push(self.stacks.len());
            let found = frames.iter().map(|frame| self.frames[*frame as usize]);
            self.has.push(found.fold(0, |all, frame| all | has(&frame)));
            self.scratch.clear();
            for frame in frames {
                let hash = self.hashes[*frame as usize];
                self.scratch.extend_from_slice(&hash.to_le_bytes());
            }
            self.stack_hashes.push(xxh3_64(&self.scratch));
        }
        id
    }

    /// Returns the number of frames of a stack.
    pub(super) fn depth(&self, stack: u32) -> usize {
        self.ranges.get(stack as usize).len()
    }

    /// Returns a hash of the stack that is the same in any file.
    pub(super) fn stack_hash(&self, stack: u32) -> u64 {
        let hash = self.stack_hashes.get(stack as usize);
        hash.copied().unwrap_or_default()
    }

    /// Returns the frames of a stack, if any of them has a value for that column.
    fn of(&self, stack: u32, column: Has) -> &[u32] {
        let has = self.has.get(stack as usize).copied().unwrap_or_default();
        match has & column as u16 {
            0 => &[],
            _ => &self.stacks[self.ranges.get(stack as usize)],
        }
    }

    /// Writes the columns of frames for rows with these stacks.
    pub(super) fn write(
        &self,
        rows: impl Iterator<Item = u32> + Clone,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        type Get = fn(&Frame) -> u32;
        let list = |column: Has, get: Get| {
            rows.clone().map(move |stack| {
                let frames = self.of(stack, column).iter();
                frames.map(move |frame| get(&self.frames[*frame as usize]))
            })
        };
        let (texts, words) = (&self.texts, &Words(&self.words));
        // Always as long as the stack, so that the leaf of a stack without names is the same in
        // both layouts.
        let functions = rows.clone().map(|stack| {
            let frames = self.stacks[self.ranges.get(stack as usize)].iter();
            frames.map(|frame| self.frames[*frame as usize].function)
        });
        group.text_lists("frame_function", texts, functions)?;
        let system = list(Has::SystemName, |f| f.system_name);
        group.text_lists("frame_system_name", texts, system)?;
        group.text_lists("frame_file", texts, list(Has::File, |f| f.file))?;
        group.text_lists("frame_line", words, list(Has::Line, |f| f.line))?;
        group.text_lists("frame_column", words, list(Has::Column, |f| f.column))?;
        let start = list(Has::StartLine, |f| f.start_line);
        group.text_lists("frame_start_line", words, start)?;
        let inlined = rows.clone().map(|stack| {
            let frames = self.of(stack, Has::Inlined).iter();
            frames.map(|frame| self.frames[*frame as usize].inlined)
        });
        group.list("frame_inlined", Bits::default(), inlined)?;
        group.text_lists("frame_address", words, list(Has::Address, |f| f.address))?;
        group.text_lists("frame_type", texts, list(Has::TableKind, |f| f.kind))?;
        group.text_lists("frame_mapping", texts, list(Has::Mapping, |f| f.mapping))?;
        group.text_lists("frame_build_id", texts, list(Has::BuildId, |f| f.build_id))?;
        let details = list(Has::Details, |f| f.details);
        group.text_lists("frame_mapping_details", texts, details)?;
        let attributes = list(Has::Attributes, |f| f.attributes);
        group.text_lists("frame_attributes", texts, attributes)
    }

    /// Returns the known properties of each frame as JSON, by number. A single index per frame then
    /// replaces an index per column.
    pub(super) fn json(&self) -> Strings {
        let mut all = Strings::default();
        let mut json = Vec::new();
        for frame in &self.frames {
            json.clear();
            json.push(b'{');
            for (key, text) in [
                ("function", frame.function),
                ("system_name", frame.system_name),
                ("file", frame.file),
                ("type", frame.kind),
                ("mapping", frame.mapping),
                ("build_id", frame.build_id),
            ] {
                if text != 0 {
                    put_key(key, &mut json);
                    let text = str::from_utf8(self.texts.get(text)).unwrap_or_default();
                    quote(text, &mut json);
                }
            }
            for (key, word) in [
                ("line", frame.line),
                ("column", frame.column),
                ("start_line", frame.start_line),
            ] {
                if word != 0 {
                    put_key(key, &mut json);
                    json.extend_from_slice(self.number(word).cast_signed().to_string().as_bytes());
                }
            }
            if frame.address != 0 {
                put_key("address", &mut json);
                json.extend_from_slice(self.number(frame.address).to_string().as_bytes());
            }
            if frame.inlined {
                put_key("inlined", &mut json);
                json.extend_from_slice(b"true");
            }
            for (key, object) in [
                ("mapping_details", frame.details),
                ("attributes", frame.attributes),
            ] {
                if object != 0 {
                    put_key(key, &mut json);
                    json.extend_from_slice(self.texts.get(object));
                }
            }
            json.push(b'}');
            all.push(&json);
        }
        all
    }

    fn number(&self, word: u32) -> u64 {
        let bytes = self.words.get(word).try_into();
        bytes.map(u64::from_le_bytes).unwrap_or_default()
    }
}

impl Gathered for Frames {
    fn clear(&mut self) {
        self.texts.clear();
        self.words.clear();
        self.frames.clear();
        self.hashes.clear();
        self.ids.clear();
        self.stacks.clear();
        self.ranges.clear();
        self.has.clear();
        self.stack_hashes.clear();
        self.text_bytes = 0;
        self.by_frames.clear();
        self.begin();
    }

    fn memory(&self) -> usize {
        self.texts.memory()
            + self.words.memory()
            + self.frames.memory()
            + self.hashes.memory()
            // Hash tables reserve a seventh more, in powers of two.
            + self.ids.capacity() * 8 / 7 * (size_of::<(Frame, u32)>() + 1)
            + self.stacks.memory()
            + self.ranges.memory()
            + self.has.memory()
            + self.stack_hashes.memory()
            + self.by_frames.memory()
    }
}

fn put_key(key: &str, json: &mut Vec<u8>) {
    if json.len() > 1 {
        json.push(b',');
    }
    json.push(b'"');
    json.extend_from_slice(key.as_bytes());
    json.extend_from_slice(b"\":");
}

fn has(frame: &Frame) -> u16 {
    [
        (frame.system_name, Has::SystemName),
        (frame.file, Has::File),
        (frame.line, Has::Line),
        (frame.column, Has::Column),
        (frame.start_line, Has::StartLine),
        (frame.inlined.into(), Has::Inlined),
        (frame.address, Has::Address),
        (frame.kind, Has::TableKind),
        (frame.mapping, Has::Mapping),
        (frame.build_id, Has::BuildId),
        (frame.details, Has::Details),
        (frame.attributes, Has::Attributes),
    ]
    .into_iter()
    .filter(|(value, _)| *value != 0)
    .fold(0, |all, (_, column)| all | column as u16)
}
