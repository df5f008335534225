//! Reads the names of functions from a symbol file.

use zstd::bulk::Decompressor;

use super::SymbolFile;
use super::format::{GROUP, GROUP_ENTRY, MAX_GROUP_BYTES, Section, Varints, u32_at};
use super::frames::FunctionId;
pub(super) use super::known::{Known, Record};
use super::recent::RecentNames;

/// Names and definition of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionNames<'n> {
    /// Demangled name for display.
    pub name: &'n str,
    /// Linkage name, not demangled.
    pub system_name: &'n str,
    /// Path of the source file; empty if unknown.
    pub file: &'n str,
    /// Line of the definition; 0 if unknown.
    pub start_line: u32,
}

/// Reads the names of functions. Neighbouring functions are decompressed in one group, and the last groups are cached.
pub struct Names<'a> {
    groups: &'a [u8],
    functions: &'a [u8],
    dictionary: &'a [u8],
    files: &'a [u8],
    /// Created when the first name is read.
    decompressor: Option<Decompressor<'static>>,
    kept: [Group; CACHED_GROUPS],
    /// Shared names read before, and the number of this file there.
    recent: Option<(&'a RecentNames, u64)>,
    /// Function read last from the shared names.
    last: Option<Known>,
}

/// Number of cached groups. Inlined functions are often defined near their callers.
const CACHED_GROUPS: usize = 16;

/// A decompressed group of functions.
#[derive(Default)]
struct Group {
    number: Option<usize>,
    bytes: Vec<u8>,
}

impl<'a> Names<'a> {
    pub(super) fn new(file: &'a SymbolFile, recent: Option<&'a RecentNames>) -> Self {
        Names {
            groups: file.section(Section::Groups),
            functions: file.section(Section::Functions),
            dictionary: file.section(Section::Dictionary),
            files: file.section(Section::Files),
            decompressor: None,
            kept: Default::default(),
            recent: recent.map(|recent| (recent, file.number)),
            last: None,
        }
    }

    /// Returns the names of a function of the same file; `None` only if the file is damaged.
    pub fn of(&mut self, function: FunctionId) -> Option<FunctionNames<'_>> {
        let files = self.files;
        let Some((recent, file)) = self.recent else {
            let record = Record::read(&mut Varints(self.record(function.number)?))?;
            let (system_name, name) = record.names()?;
            return Some(FunctionNames {
                name,
                system_name,
                file: path(files, function.file.unwrap_or(record.file))?,
                start_line: record.start_line,
            });
        };
        let key = (file, function.number);
        let known = match recent.get(key) {
            Some(known) => known,
            None => {
                let record = Record::read(&mut Varints(self.record(function.number)?))?;
                let known = Known::of(&record)?;
                recent.add(key, known.clone());
                known
            }
        };
        let known = self.last.insert(known);
        let (system_name, name) = known.names()?;
        Some(FunctionNames {
            name,
            system_name,
            file: path(files, function.file.unwrap_or(known.file))?,
            start_line: known.start_line,
        })
    }

    /// Returns the stored bytes of a function.
    fn record(&mut self, number: u32) -> Option<&[u8]> {
        let number = number as usize;
        let mut rest = Varints(self.group(number / GROUP)?);
        for _ in 0..number % GROUP {
            Record::read(&mut rest)?;
        }
        let from = rest.0;
        Record::read(&mut rest)?;
        from.get(..from.len() - rest.0.len())
    }

    fn group(&mut self, number: usize) -> Option<&[u8]> {
        let kept = self.kept.get_mut(number % CACHED_GROUPS)?;
        if kept.number != Some(number) {
            kept.number = None;
            let at = |group: usize| u32_at(self.groups, group.checked_mul(GROUP_ENTRY)?);
            let start = at(number)? as usize;
            let end = at(number + 1).map_or(self.functions.len(), |end| end as usize);
            let packed = self.functions.get(start..end)?;
            let size = usize::try_from(zstd::decompressed_size(packed)?).ok()?;
            if size > MAX_GROUP_BYTES {
                return None;
            }
            kept.bytes.resize(size, 0);
            let decompressor = match &mut self.decompressor {
                Some(decompressor) => decompressor,
                none => none.insert(Decompressor::with_dictionary(self.dictionary).ok()?),
            };
            let written = decompressor.decompress_to_buffer(packed, &mut kept.bytes[..]);
            if written.ok()? != size {
                return None;
            }
            kept.number = Some(number);
        }
        Some(&kept.bytes)
    }
}

fn path(files: &[u8], at: u32) -> Option<&str> {
    let mut rest = Varints(files.get(at as usize..)?);
    let length = rest.next_u32()? as usize;
    str::from_utf8(rest.bytes(length)?).ok()
}
