//! The files that a binary is made of: which is what.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use super::CompileError;
use super::dwarf::{Others, Sections, load_package};
use crate::symbols::build_id::BuildId;
use crate::symbols::elf::Elf;

/// A binary and what goes with it.
pub(super) struct Parts<'data> {
    pub(super) binary: Elf<'data>,
    path: &'data Path,
    /// Its separate debug file.
    pub(super) debug: Option<Elf<'data>>,
    debug_path: &'data Path,
    pub(super) others: Others<'data>,
}

impl<'data> Parts<'data> {
    /// The first file is the binary.
    pub(super) fn parse(
        files: &'data [(&'data Path, &'data [u8])],
        budget: &'data Cell<u64>,
    ) -> Result<Self, CompileError> {
        let parse =
            |path, data| Elf::parse(data, budget).map_err(|error| CompileError::new(error, path));
        let ((path, binary), others) = files.split_first().ok_or(CompileError::NoSymbols)?;
        let mut parts = Parts {
            binary: parse(path, binary)?,
            path,
            debug: None,
            debug_path: path,
            others: Others::default(),
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
                let sections = Sections::load(&elf).map_err(failed)?;
                parts.others.supplementary = Some(sections);
            } else if parts.goes_with(&elf) {
                parts.debug = Some(elf);
                parts.debug_path = path;
            } else {
                return Err(CompileError::Mismatch(path.to_path_buf()));
            }
        }
        Ok(parts)
    }

    /// Whether this is of the same build, as far as one can tell.
    fn goes_with(&self, debug: &Elf<'_>) -> bool {
        let ids = self.binary.build_id().zip(debug.build_id());
        ids.is_none_or(|(binary, debug)| binary == debug)
    }

    pub(super) fn build_id(&self) -> Option<BuildId> {
        let gnu = self.binary.build_id();
        gnu.or_else(|| self.binary.go_build_id().map(BuildId::from_go))
    }

    /// Where there is code, in order.
    pub(super) fn code(&self) -> Vec<Range<u64>> {
        let code = self.binary.code();
        match &self.debug {
            Some(debug) if code.is_empty() => debug.code(),
            _ => code,
        }
    }

    /// The file that has the debug information.
    pub(super) fn with_debug_information(&self) -> Option<(&'data Path, &Elf<'data>)> {
        let has = |elf: &Elf<'_>| elf.has_section(".debug_info") || elf.has_section(".zdebug_info");
        let debug = self.debug.as_ref().map(|debug| (self.debug_path, debug));
        debug
            .into_iter()
            .chain([(self.path, &self.binary)])
            .find(|(_, elf)| has(elf))
    }
}
