//! Reads ELF files: sections, segments, notes.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{
    EM_AARCH64, EM_X86_64, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, PT_NOTE, SHF_ALLOC,
    SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE,
};
use object::read::elf::{
    FileHeader as _, NoteIterator, ProgramHeader as _, SectionHeader as _, SectionTable,
};

use super::build_id::BuildId;
use super::decompress;
pub(super) use super::elf_error::ElfError;

pub(super) type Header = FileHeader64<LittleEndian>;
pub(super) type SectionHeader = object::elf::SectionHeader64<LittleEndian>;
pub(super) const ENDIAN: LittleEndian = LittleEndian;

/// A 64-bit little-endian ELF file for x86-64 or arm64, the platforms of eBPF profilers.
pub(super) struct Elf<'data> {
    pub(super) data: &'data [u8],
    header: &'data Header,
    pub(super) sections: SectionTable<'data, Header>,
    /// Bytes that may still be decompressed.
    budget: &'data Cell<u64>,
}

/// A segment that the loader maps (`PT_LOAD`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) file_size: u64,
    pub(super) memory_size: u64,
    pub(super) executable: bool,
}

impl<'data> Elf<'data> {
    /// Parses a file. `budget` bounds the decompressed size of all sections together, in bytes.
    pub(super) fn parse(data: &'data [u8], budget: &'data Cell<u64>) -> Result<Self, ElfError> {
        if !data.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        // Class and byte order; the `object` crate would report a damaged file.
        if data.get(4..6) != Some(&[2, 1]) {
            return Err(ElfError::Unsupported);
        }
        let header = Header::parse(data).map_err(|_| ElfError::Malformed)?;
        if ![EM_X86_64, EM_AARCH64].contains(&header.e_machine(ENDIAN)) {
            return Err(ElfError::Unsupported);
        }
        // A file truncated after its segments, such as a memory dump, still has segments.
        let sections = header.sections(ENDIAN, data).unwrap_or_default();
        Ok(Elf {
            data,
            header,
            sections,
            budget,
        })
    }

    pub(super) fn machine(&self) -> &'static str {
        match self.is_arm64() {
            true => "arm64",
            false => "x86-64",
        }
    }

    pub(super) fn is_arm64(&self) -> bool {
        self.header.e_machine(ENDIAN) == EM_AARCH64
    }

    pub(super) fn segments(&self) -> Vec<Segment> {
        let headers = self.header.program_headers(ENDIAN, self.data);
        let loaded = headers.unwrap_or_default().iter();
        let loaded = loaded.filter(|header| header.p_type(ENDIAN) == PT_LOAD);
        loaded
            .map(|header| Segment {
                offset: header.p_offset(ENDIAN),
                address: header.p_vaddr(ENDIAN),
                file_size: header.p_filesz(ENDIAN),
                memory_size: header.p_memsz(ENDIAN),
                executable: header.p_flags(ENDIAN).contains(PF_X),
            })
            .collect()
    }

    /// Returns the address ranges of code, in order: executable sections, or segments if there are no sections.
    pub(super) fn code(&self) -> Vec<Range<u64>> {
        let range = |address: u64, size: u64| address..address.saturating_add(size);
        let sections = self.sections.iter();
        let mut code: Vec<_> = sections
            .filter(|section| {
                let flags = section.sh_flags(ENDIAN);
                flags.contains(SHF_EXECINSTR) && flags.contains(SHF_ALLOC)
            })
            .map(|section| range(section.sh_addr(ENDIAN), section.sh_size(ENDIAN)))
            .collect();
        if code.is_empty() {
            let segments = self.segments().into_iter();
            code.extend(
                segments
                    .filter(|segment| segment.executable)
                    .map(|segment| range(segment.address, segment.memory_size)),
            );
        }
        code.retain(|range| !range.is_empty());
        code.sort_by_key(|range| range.start);
        code
    }

    /// Whether the file is a debug file from `objcopy --only-keep-debug`, whose code sections have no bytes.
    pub(super) fn is_debug_file(&self) -> bool {
        self.sections.iter().any(|section| {
            section.sh_flags(ENDIAN).contains(SHF_EXECINSTR)
                && section.sh_type(ENDIAN) == SHT_NOBITS
        })
    }

    pub(super) fn build_id(&self) -> Option<BuildId> {
        let note = self.note(b"GNU", NT_GNU_BUILD_ID.0)?;
        BuildId::from_bytes(note).ok()
    }

    pub(super) fn go_build_id(&self) -> Option<&'data str> {
        const NT_GO_BUILD_ID: u32 = 4;
        std::str::from_utf8(self.note(b"Go", NT_GO_BUILD_ID)?).ok()
    }

    fn note(&self, name: &[u8], kind: u32) -> Option<&'data [u8]> {
        let find = |notes: NoteIterator<'data, Header>| {
            notes
                .filter_map(Result::ok)
                .find(|note| note.name() == name && note.n_type(ENDIAN).0 == kind)
                .map(|note| note.desc())
        };
        let in_sections = self.sections.iter().find_map(|section| {
            let notes = section.sh_type(ENDIAN) == SHT_NOTE;
            let notes = notes.then(|| section.notes(ENDIAN, self.data));
            find(notes?.ok()??)
        });
        in_sections.or_else(|| {
            let headers = self.header.program_headers(ENDIAN, self.data).ok()?;
            headers.iter().find_map(|header| {
                let notes = header.p_type(ENDIAN) == PT_NOTE;
                let notes = notes.then(|| header.notes(ENDIAN, self.data));
                find(notes?.ok()??)
            })
        })
    }

    pub(super) fn has_section(&self, name: &str) -> bool {
        self.section(name).is_some()
    }

    pub(super) fn section(&self, name: &str) -> Option<&'data SectionHeader> {
        let (_, section) = self.sections.section_by_name(ENDIAN, name.as_bytes())?;
        (section.sh_type(ENDIAN) != SHT_NOBITS).then_some(section)
    }

    /// Returns the content of a section, decompressed if necessary (`SHF_COMPRESSED`, or `.zdebug_*`); empty if the
    /// file has no such section.
    pub(super) fn section_data(&self, name: &str) -> Result<Cow<'data, [u8]>, ElfError> {
        if let Some(section) = self.section(name) {
            let compressed = section.compression(ENDIAN, self.data);
            let Some((header, offset, size)) = compressed.map_err(|_| ElfError::Malformed)? else {
                let data = section.data(ENDIAN, self.data);
                return data.map(Cow::Borrowed).map_err(|_| ElfError::Malformed);
            };
            let data = slice(self.data, offset, size).ok_or(ElfError::Malformed)?;
            let size = header.ch_size.get(ENDIAN);
            let kind = header.ch_type.get(ENDIAN);
            return decompress::section(data, kind, size, self.budget).map(Cow::Owned);
        }
        if let Some(rest) = name.strip_prefix(".debug_")
            && let Some(section) = self.section(&format!(".zdebug_{rest}"))
        {
            let data = section.data(ENDIAN, self.data);
            let data = data.map_err(|_| ElfError::Malformed)?;
            return decompress::zdebug(data, self.budget).map(Cow::Owned);
        }
        Ok(Cow::Borrowed(&[]))
    }

    /// Bytes that may still be decompressed.
    pub(super) fn budget(&self) -> &'data Cell<u64> {
        self.budget
    }

    /// Returns the bytes of the file that are loaded at `address`, to the end of the segment's data.
    pub(super) fn at(&self, address: u64) -> Option<&'data [u8]> {
        let segments = self.segments();
        let (segment, skipped) = segments.iter().find_map(|segment| {
            let skipped = address.checked_sub(segment.address)?;
            (skipped < segment.file_size).then_some((segment, skipped))
        })?;
        let offset = segment.offset.checked_add(skipped)?;
        let end = segment.offset.checked_add(segment.file_size)?;
        let end = usize::try_from(end).ok()?.min(self.data.len());
        self.data.get(usize::try_from(offset).ok()?..end)
    }
}

fn slice(data: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    data.get(start..end)
}
