//! Classifies the input files of a binary.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use super::CompileError;
use super::dwarf::{CompanionFiles, Sections, load_package};
use crate::build_id::BuildId;
use crate::elf::Elf;
use crate::links;

pub(super) struct Parts<'data> {
    pub(super) binary: Elf<'data>,
    path: &'data Path,
    pub(super) debug: Option<Elf<'data>>,
    debug_path: &'data Path,
    pub(super) others: CompanionFiles<'data>,
}

impl<'data> Parts<'data> {
    /// Parses the files; the first file is the binary.
    pub(super) fn parse(
        files: &'data [(&'data Path, &'data [u8])],
        budget: &'data Cell<u64>,
    ) -> Result<Self, CompileError> {
        let parse =
            |path, data| Elf::parse(data, budget).map_err(|error| CompileError::new(error, path));
        let ((path, binary), others) = files.split_first().ok_or(CompileError::NoSymbols)?;
        let mut supplementary = Vec::new();
        let mut parts = Parts {
            binary: parse(path, binary)?,
            path,
            debug: None,
            debug_path: path,
            others: CompanionFiles::default(),
        };
        for (path, data) in others {
            let elf = parse(path, data)?;
            let failed = |error| CompileError::new(error, path);
            if elf.has_section(".debug_cu_index") {
                parts.others.package = Some(load_package(&elf).map_err(failed)?);
            } else if elf.has_section(".debug_info.dwo") {
                let sections = Sections::load_dwo(&elf).map_err(failed)?;
                parts.others.units.push(sections);
            } else if elf.code().is_empty() {
                supplementary.push((path, elf));
            } else if parts.belongs_to_build(&elf) {
                parts.debug = Some(elf);
                parts.debug_path = path;
            } else {
                return Err(CompileError::Mismatch(path.to_path_buf()));
            }
        }
        // A reference into another build's file would give wrong names. Without the file, some functions have no name.
        let wanted = parts.with_debug_information();
        if let Some(wanted) = wanted.and_then(|(_, elf)| links::supplementary_id(elf)) {
            let mut supplementary = supplementary.into_iter();
            let found = supplementary.find(|(_, elf)| elf.build_id().as_ref() == Some(&wanted));
            if let Some((path, elf)) = found {
                let sections = Sections::load(&elf);
                let sections = sections.map_err(|error| CompileError::new(error, path))?;
                parts.others.supplementary = Some(sections);
            }
        }
        Ok(parts)
    }

    /// Whether a debug file belongs to the same build, by the build ids or else by the debug link of the binary. If
    /// both are missing, the caller's choice of files is trusted.
    fn belongs_to_build(&self, debug: &Elf<'_>) -> bool {
        match (build_id(&self.binary), build_id(debug)) {
            (Some(binary), Some(debug)) => binary == debug,
            (binary, _) => match links::debug_link(&self.binary) {
                Some(link) => link.crc == crc32fast::hash(debug.data),
                None => binary.is_none(),
            },
        }
    }

    pub(super) fn build_id(&self) -> Option<BuildId> {
        build_id(&self.binary)
    }

    /// Address ranges of code, in order.
    pub(super) fn code(&self) -> Vec<Range<u64>> {
        let code = self.binary.code();
        match &self.debug {
            Some(debug) if code.is_empty() => debug.code(),
            _ => code,
        }
    }

    pub(super) fn with_debug_information(&self) -> Option<(&'data Path, &Elf<'data>)> {
        let has = |elf: &Elf<'_>| elf.has_section(".debug_info") || elf.has_section(".zdebug_info");
        let debug = self.debug.as_ref().map(|debug| (self.debug_path, debug));
        debug
            .into_iter()
            .chain([(self.path, &self.binary)])
            .find(|(_, elf)| has(elf))
    }
}

/// Returns the GNU build id, or else the id derived from the Go build id.
fn build_id(elf: &Elf<'_>) -> Option<BuildId> {
    let gnu = elf.build_id();
    gnu.or_else(|| elf.go_build_id().map(BuildId::from_go))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{elf, elf_with, id};

    /// Whether the files belong together, and whether one of them is a supplementary file.
    fn parsed(files: &[Vec<u8>]) -> Result<bool, CompileError> {
        let files: Vec<_> = files
            .iter()
            .map(|file| (Path::new("file"), &file[..]))
            .collect();
        let budget = Cell::new(1 << 20);
        Parts::parse(&files, &budget).map(|parts| parts.others.supplementary.is_some())
    }

    /// Removes the build id of a file by renaming the note.
    fn nameless(mut file: Vec<u8>) -> Vec<u8> {
        let at = memchr::memmem::find(&file, b"GNU\0").unwrap();
        file[at] = b'X';
        file
    }

    #[test]
    fn supplementary_file_of_another_build_is_ignored() {
        let link = [b"x\0".as_slice(), id(2).as_bytes()].concat();
        let sections: [(&str, &[u8]); 2] = [(".gnu_debugaltlink", &link), (".debug_info", b"x")];
        let binary = elf_with(&id(1), &["main"], &sections);
        let shared = |number| {
            let mut file = elf(&id(number), &[]);
            // Makes the segment non-executable.
            file[68] = 4;
            file
        };
        assert!(parsed(&[binary.clone(), shared(2)]).unwrap());
        assert!(!parsed(&[binary.clone(), shared(3)]).unwrap());
        assert!(parsed(&[binary, shared(3), shared(2)]).unwrap());
    }

    #[test]
    fn debug_file_matches_by_build_id_or_debug_link() {
        let debug = nameless(elf(&id(1), &["main"]));
        let linked = |to: &[u8]| {
            let mut link = b"main.debug\0\0".to_vec();
            link.extend(crc32fast::hash(to).to_le_bytes());
            elf_with(&id(1), &["main"], &[(".gnu_debuglink", &link)])
        };
        for (binary, debug, good) in [
            (elf(&id(1), &["main"]), elf(&id(1), &["a"]), true),
            (elf(&id(1), &["main"]), elf(&id(2), &["main"]), false),
            (elf(&id(1), &["main"]), debug.clone(), false),
            (linked(&debug), debug.clone(), true),
            (linked(b"other"), debug.clone(), false),
            (nameless(elf(&id(1), &["main"])), debug, true),
        ] {
            assert_eq!(parsed(&[binary, debug]).is_ok(), good);
        }
    }
}
