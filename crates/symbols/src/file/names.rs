//! From a function to what it is called.

use std::sync::Arc;

use zstd::bulk::Decompressor;

use super::SymbolFile;
use super::format::{GROUP, GROUP_ENTRY, LARGEST_GROUP, Section, Varints, u32_at};
use super::frames::FunctionId;
use super::recent::RecentNames;

/// What a function is called, and where it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'n> {
    /// The name for people: demangled.
    pub name: &'n str,
    /// The name for the linker: as it was.
    pub system_name: &'n str,
    /// The path of the source file; empty if it is not known.
    pub file: &'n str,
    /// The line where it begins; 0 if it is not known.
    pub start_line: u32,
}

/// Reads the names of functions. Neighbours are decompressed together, and the last ones are kept.
pub struct Names<'a> {
    groups: &'a [u8],
    functions: &'a [u8],
    dictionary: &'a [u8],
    files: &'a [u8],
    /// Made for the first name.
    decompressor: Option<Decompressor<'static>>,
    /// A group has its place by its number.
    kept: [Group; KEPT],
    /// What was read before, by whomever, and the number of the file there.
    recent: Option<(&'a RecentNames, u64)>,
    /// The last function that was read there.
    last: Option<Known>,
}

/// So many groups are kept: what was inlined was mostly written near to what it was inlined into.
const KEPT: usize = 16;

/// Functions, decompressed.
#[derive(Default)]
struct Group {
    number: Option<usize>,
    bytes: Vec<u8>,
}

/// A function as it is remembered: its names are known to be text, which takes as long to find out as to copy them.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The system name, and behind it the name unless it is the same.
    pub(super) text: Arc<str>,
    /// Where the name begins.
    pub(super) name_at: Option<u32>,
    pub(super) file: u32,
    pub(super) start_line: u32,
}

/// A function as it is written.
struct Record<'n> {
    file: u32,
    start_line: u32,
    system_name: &'n [u8],
    /// Unless it is the same.
    name: Option<&'n [u8]>,
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

    /// What a function of the same file is called; `None` only where that is damaged.
    pub fn of(&mut self, function: FunctionId) -> Option<Function<'_>> {
        let files = self.files;
        let Some((recent, file)) = self.recent else {
            let record = Record::read(&mut Varints(self.record(function.number)?))?;
            let (system_name, name) = record.names()?;
            return Some(Function {
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
        Some(Function {
            name,
            system_name,
            file: path(files, function.file.unwrap_or(known.file))?,
            start_line: known.start_line,
        })
    }

    /// What is written of a function.
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
        let kept = self.kept.get_mut(number % KEPT)?;
        if kept.number != Some(number) {
            kept.number = None;
            let at = |group: usize| u32_at(self.groups, group.checked_mul(GROUP_ENTRY)?);
            let start = at(number)? as usize;
            let end = at(number + 1).map_or(self.functions.len(), |end| end as usize);
            let packed = self.functions.get(start..end)?;
            let size = usize::try_from(zstd::decompressed_size(packed)?).ok()?;
            if size > LARGEST_GROUP {
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

impl<'n> Record<'n> {
    fn read(rest: &mut Varints<'n>) -> Option<Self> {
        let (file, start_line) = (rest.next_u32()?, rest.next_u32()?);
        let length = rest.next_u32()? as usize;
        let system_name = rest.bytes(length)?;
        let name = match rest.next_u32()?.checked_sub(1) {
            Some(length) => Some(rest.bytes(length as usize)?),
            None => None,
        };
        Some(Record {
            file,
            start_line,
            system_name,
            name,
        })
    }

    /// The name for the linker, and the one for people.
    fn names(&self) -> Option<(&'n str, &'n str)> {
        let system_name = str::from_utf8(self.system_name).ok()?;
        let name = match self.name {
            Some(name) => str::from_utf8(name).ok()?,
            None => system_name,
        };
        Some((system_name, name))
    }
}

impl Known {
    fn of(record: &Record<'_>) -> Option<Self> {
        let (system_name, name) = record.names()?;
        let other = record.name.map(|_| name);
        Some(Known {
            text: [system_name, other.unwrap_or_default()].concat().into(),
            name_at: match other {
                Some(_) => Some(u32::try_from(system_name.len()).ok()?),
                None => None,
            },
            file: record.file,
            start_line: record.start_line,
        })
    }

    fn names(&self) -> Option<(&str, &str)> {
        match self.name_at {
            Some(at) => self.text.split_at_checked(at as usize),
            None => Some((&self.text, &self.text)),
        }
    }
}

fn path(files: &[u8], at: u32) -> Option<&str> {
    let mut rest = Varints(files.get(at as usize..)?);
    let length = rest.next_u32()? as usize;
    str::from_utf8(rest.bytes(length)?).ok()
}
