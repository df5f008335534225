//! Writes the symbol file in the order in which ascending lookups read it.

use std::io::{Seek, SeekFrom, Write};

use super::model::{Context, ContextId, FileId, FunctionId, Model, NO_CONTEXT, Range};
use super::names::{Names, Packed};
use super::{CompileError, CompileLimits, demangle};
use crate::build_id::BuildId;
use crate::elf::Segment;
use crate::file::format::{
    BLOCK, EXECUTABLE, HAS_LINES, HEADER, Layout, MAX_INLINE_DEPTH, OFFSETS_UNKNOWN, Section, put,
    put_signed, tag,
};

/// Contents of a symbol file besides the ranges.
pub(super) struct FileMetadata {
    pub(super) build_id: Option<BuildId>,
    pub(super) segments: Vec<Segment>,
    /// Whether the segments have the file offsets of the binary; segments of debug files do not.
    pub(super) offsets_known: bool,
    /// Whether most of the named code has lines.
    pub(super) has_lines: bool,
}

/// Writes the file. The ranges are sorted and do not overlap. Returns the number of ranges and bytes.
pub(super) fn write(
    model: &Model,
    ranges: &[Range],
    about: FileMetadata,
    limits: &CompileLimits,
    output: &mut (impl Write + Seek),
) -> Result<(u64, u64), CompileError> {
    let mut writer = Writer::new(model, limits.output_bytes);
    writer.ranges(ranges)?;
    let count = writer.count;
    let sections = writer.sections(&about.segments)?;
    let length = HEADER + sections.iter().map(Vec::len).sum::<usize>();
    if length as u64 > limits.output_bytes {
        return Err(CompileError::Limit("output"));
    }
    let flag = |set, flag| if set { flag } else { 0 };
    let flags = flag(!about.offsets_known, OFFSETS_UNKNOWN) | flag(about.has_lines, HAS_LINES);
    let mut layout = Layout {
        build_id: about.build_id,
        flags,
        ranges: count,
        sections: [const { (0..0, 0) }; Section::ALL.len()],
    };
    let mut at = HEADER;
    let begin = output.stream_position()?;
    output.seek_relative(HEADER as i64)?;
    for (bytes, entry) in sections.iter().zip(&mut layout.sections) {
        *entry = (at..at + bytes.len(), crc32fast::hash(bytes));
        at += bytes.len();
        output.write_all(bytes)?;
    }
    // The header is written last, so that a partial file is not a valid symbol file.
    output.seek(SeekFrom::Start(begin))?;
    output.write_all(&layout.write(length as u64))?;
    output.seek_relative((length - HEADER) as i64)?;
    output.flush()?;
    Ok((count, length as u64))
}

struct Writer<'m> {
    model: &'m Model,
    /// Maximum size in bytes; the writer stops soon after exceeding the maximum.
    most: u64,
    blocks: Vec<u8>,
    ranges: Vec<u8>,
    count: u64,
    contexts: Vec<u8>,
    names: Names,
    files: Vec<u8>,
    /// Offsets of the model's contexts in the written section; 0 if not yet written. Function numbers here start at
    /// 1.
    context_places: Vec<u32>,
    function_places: Vec<u32>,
    file_places: Vec<u32>,
    demangled: String,
    last: Last,
}

/// Base values of differences.
#[derive(Default)]
struct Last {
    context: u32,
    line: u32,
    column: u32,
}

impl<'m> Writer<'m> {
    fn new(model: &'m Model, most: u64) -> Self {
        Writer {
            model,
            most,
            blocks: Vec::new(),
            ranges: Vec::new(),
            count: 0,
            // Reserved, so that no context has offset 0.
            contexts: vec![0],
            names: Names::default(),
            // Empty path of an unknown file.
            files: vec![0],
            context_places: vec![0; model.contexts.len()],
            function_places: vec![0; model.functions.len()],
            file_places: vec![0; model.strings.len()],
            demangled: String::new(),
            last: Last::default(),
        }
    }

    fn ranges(&mut self, ranges: &[Range]) -> Result<(), CompileError> {
        let mut previous: Option<&Range> = None;
        let mut start = 0;
        let mut end = None;
        for range in ranges {
            if let Some(previous) = previous
                && end == Some(range.start)
                && (previous.context, previous.place, previous.source)
                    == (range.context, range.place, range.source)
            {
                end = Some(range.end);
                continue;
            }
            if let Some(end) = end
                && end < range.start
            {
                self.entry(&mut start, end, None)?;
            }
            self.entry(&mut start, range.start, Some(range))?;
            previous = Some(range);
            end = Some(range.end);
        }
        if let Some(end) = end {
            self.entry(&mut start, end, None)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        last: &mut u64,
        start: u64,
        range: Option<&Range>,
    ) -> Result<(), CompileError> {
        let size = self.contexts.len() + self.names.bytes() + self.ranges.len();
        // Offsets have 32 bits.
        if size as u64 > self.most.min(u64::from(u32::MAX)) {
            return Err(CompileError::Limit("output"));
        }
        if self.count.is_multiple_of(BLOCK as u64) {
            self.blocks.extend(start.to_le_bytes());
            self.blocks.extend((self.ranges.len() as u32).to_le_bytes());
            self.last = Last::default();
        } else {
            put(&mut self.ranges, start - *last);
        }
        *last = start;
        self.count += 1;
        match range {
            Some(range) => self.range(range),
            None => self.ranges.push(tag::GAP),
        }
        Ok(())
    }

    fn range(&mut self, range: &Range) {
        let context = self.context(range.context, 0);
        let mut flags = (range.source as u8) << tag::SOURCE_SHIFT;
        flags |= match context == self.last.context {
            true => tag::SAME_CONTEXT,
            false => tag::OTHER_CONTEXT,
        };
        let file = self.explicit_file(range.place.file, range.context);
        let place = range.place;
        if file.is_some() {
            flags |= tag::FILE;
        }
        if place.line != self.last.line {
            flags |= tag::LINE;
        }
        if place.column != self.last.column {
            flags |= tag::COLUMN;
        }
        let bytes = &mut self.ranges;
        bytes.push(flags);
        if context != self.last.context {
            put_signed(bytes, i64::from(context) - i64::from(self.last.context));
        }
        if let Some(file) = file {
            put(bytes, file.into());
        }
        if place.line != self.last.line {
            put_signed(bytes, i64::from(place.line) - i64::from(self.last.line));
        }
        if place.column != self.last.column {
            put(bytes, place.column.into());
        }
        self.last = Last {
            context,
            line: place.line,
            column: place.column,
        };
    }

    /// Returns the file of a line, unless it is the file of the context's function.
    fn explicit_file(&mut self, file: FileId, context: ContextId) -> Option<u32> {
        let context = self.model.contexts.get(context as usize);
        let function =
            context.and_then(|context| self.model.functions.get(context.function as usize));
        let same = function.is_some_and(|function| function.file == file);
        (!same).then(|| self.file(file))
    }

    /// Returns the offset of a context, after writing its parents.
    fn context(&mut self, id: ContextId, depth: usize) -> u32 {
        let known = self.context_places.get(id as usize).copied();
        if let Some(place) = known.filter(|place| *place != 0) {
            return place;
        }
        let Some(Context {
            function,
            parent,
            call,
        }) = self.model.contexts.get(id as usize).copied()
        else {
            return 0;
        };
        let outer = match parent {
            NO_CONTEXT => 0,
            _ if depth >= MAX_INLINE_DEPTH => 0,
            parent => self.context(parent, depth + 1),
        };
        let function = self.function(function);
        let file = (outer != 0).then(|| self.explicit_file(call.file, parent));
        let place = self.contexts.len() as u32;
        let bytes = &mut self.contexts;
        put(bytes, function.into());
        match file {
            None => bytes.push(0),
            Some(file) => {
                put(bytes, (place - outer).into());
                put(bytes, file.map_or(0, |file| u64::from(file) + 1));
                put(bytes, call.line.into());
                put(bytes, call.column.into());
            }
        }
        if let Some(known) = self.context_places.get_mut(id as usize) {
            *known = place;
        }
        place
    }

    fn function(&mut self, id: FunctionId) -> u32 {
        let known = self.function_places.get(id as usize).copied();
        if let Some(place) = known.and_then(|place| place.checked_sub(1)) {
            return place;
        }
        let Some(function) = self.model.functions.get(id as usize).copied() else {
            return 0;
        };
        let file = self.file(function.file);
        let system_name = match function.linkage_name {
            0 => function.name,
            linkage_name => linkage_name,
        };
        let system_name = String::from_utf8_lossy(self.model.strings.get(system_name));
        self.demangled.clear();
        // An unmangled linkage name contains the package or crate, unlike the name in the source.
        let mangled = demangle::demangle(&system_name, &mut self.demangled);
        let name = mangled.then_some(self.demangled.as_str());
        let number = self
            .names
            .add(file, function.start_line, &system_name, name);
        if let Some(place) = self.function_places.get_mut(id as usize) {
            *place = number + 1;
        }
        number
    }

    fn file(&mut self, id: FileId) -> u32 {
        let known = self.file_places.get(id as usize).copied();
        if let Some(place) = known.filter(|place| *place != 0 || id == 0) {
            return place;
        }
        let path = String::from_utf8_lossy(self.model.strings.get(id));
        let place = self.files.len() as u32;
        put(&mut self.files, path.len() as u64);
        self.files.extend_from_slice(path.as_bytes());
        if let Some(known) = self.file_places.get_mut(id as usize) {
            *known = place;
        }
        place
    }

    /// Returns the sections in the order of [`Section::ALL`].
    fn sections(self, segments: &[Segment]) -> Result<[Vec<u8>; Section::ALL.len()], CompileError> {
        let mut headers = Vec::new();
        for segment in segments {
            let flags = if segment.executable { EXECUTABLE } else { 0 };
            let Segment {
                offset,
                address,
                file_size,
                memory_size,
                ..
            } = *segment;
            for field in [offset, address, file_size, memory_size, flags] {
                headers.extend(field.to_le_bytes());
            }
        }
        let Packed {
            groups,
            functions,
            dictionary,
        } = self.names.pack()?;
        Ok([
            headers,
            self.blocks,
            self.ranges,
            self.contexts,
            groups,
            functions,
            dictionary,
            self.files,
        ])
    }
}
