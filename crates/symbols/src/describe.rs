//! Describes a binary: its build id and the names of its companion files.

use std::cell::Cell;
use std::io;
use std::path::Path;

use super::build_id::BuildId;
use super::compile::{SplitUnit, split_units};
use super::elf::Elf;
pub use super::links::DebugLink;
use super::links::file_name;
pub(super) use super::links::{debug_link, supplementary_id};
use super::map::Map;
use tributary_net::files::open_regular;

/// Build id and debug links of a binary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Build id: the GNU build id, or else an id derived from the Go build id.
    pub build_id: Option<BuildId>,
    /// Name and CRC of the separate debug file (`.gnu_debuglink`).
    pub debug_link: Option<DebugLink>,
    /// Build id of the supplementary file that dwz wrote, with debug information shared by several binaries
    /// (`.gnu_debugaltlink`).
    pub supplementary_id: Option<BuildId>,
    /// Names of the `.dwo` files with the split units, as written by the compiler. At most 1,024.
    pub units: Vec<SplitUnit>,
}

/// Describes a file; the description is empty if the file is not ELF. Decompresses at most `decompressed_bytes`. Only
/// the worker process may call the function, because the file is untrusted.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn describe(path: &Path, decompressed_bytes: u64) -> io::Result<Description> {
    let map = Map::of(&open_regular(path)?)?;
    let budget = Cell::new(decompressed_bytes);
    let Ok(elf) = Elf::parse(&map, &budget) else {
        return Ok(Description::default());
    };
    Ok(Description {
        build_id: elf
            .build_id()
            .or_else(|| elf.go_build_id().map(BuildId::from_go)),
        debug_link: debug_link(&elf),
        supplementary_id: supplementary_id(&elf),
        // Damaged debug information is reported by the compilation.
        units: split_units(&elf).unwrap_or_default(),
    })
}

impl Description {
    /// Formats the description for the worker's stdout: a keyword and its value in each line.
    pub(super) fn to_lines(&self) -> String {
        let build_id = self.build_id.iter().map(|id| format!("build-id {id}\n"));
        let supplementary_id = self
            .supplementary_id
            .iter()
            .map(|id| format!("supplementary_id {id}\n"));
        let link = self.debug_link.iter();
        let link = link.map(|link| format!("debug-link {:08x} {}\n", link.crc, link.name));
        let units = self.units.iter();
        let units = units.map(|unit| format!("unit {}\t{}\n", unit.directory, unit.name));
        build_id
            .chain(supplementary_id)
            .chain(link)
            .chain(units)
            .collect()
    }

    /// Parses the output of a worker. The output is untrusted, since a malicious file may control the worker.
    pub(super) fn from_lines(lines: &str) -> Self {
        let mut description = Description::default();
        for line in lines.lines() {
            match line.split_once(' ') {
                Some(("build-id", id)) => description.build_id = id.parse().ok(),
                Some(("supplementary_id", id)) => description.supplementary_id = id.parse().ok(),
                Some(("debug-link", link)) => {
                    description.debug_link = link.split_once(' ').and_then(|(crc, name)| {
                        Some(DebugLink {
                            name: file_name(name)?.to_owned(),
                            crc: u32::from_str_radix(crc, 16).ok()?,
                        })
                    });
                }
                Some(("unit", unit)) => {
                    let unit = unit.split_once('\t');
                    let unit = unit.and_then(|(directory, name)| SplitUnit::new(directory, name));
                    description.units.extend(unit);
                }
                _ => {}
            }
        }
        description
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::read_debug_link;
    use crate::testing::{elf, elf_with, id};

    fn described(bytes: &[u8]) -> Description {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let description = describe(file.path(), 1 << 20).unwrap();
        assert_eq!(
            Description::from_lines(&description.to_lines()),
            description
        );
        description
    }

    #[test]
    fn description_has_build_id_and_companions() {
        let link = b"main.debug\0\0\x78\x56\x34\x12";
        let supplementary_id = [b"/usr/lib/debug/.dwz/x\0".as_slice(), id(2).as_bytes()].concat();
        let sections: [(&str, &[u8]); 2] = [
            (".gnu_debuglink", link),
            (".gnu_debugaltlink", &supplementary_id),
        ];
        let description = described(&elf_with(&id(1), &["main"], &sections));
        let expected = Description {
            build_id: Some(id(1)),
            debug_link: Some(DebugLink {
                name: "main.debug".to_owned(),
                crc: 0x1234_5678,
            }),
            supplementary_id: Some(id(2)),
            units: Vec::new(),
        };
        assert_eq!(description, expected);
        assert_eq!(described(b"#!/bin/sh\n"), Description::default());
        let whole = elf(&id(1), &["main"]);
        for end in 0..whole.len() {
            described(&whole[..end]);
        }
    }

    #[test]
    fn debug_link_with_directories_is_ignored() {
        for name in [
            "../etc/passwd",
            "/etc/passwd",
            "..",
            ".",
            "",
            "a\nbuild-id 00000000",
        ] {
            let link = [name.as_bytes(), b"\0\0\0\0\0\0\0\0\0"].concat();
            assert_eq!(read_debug_link(&link), None, "{name}");
            let line = format!("debug-link 00000000 {name}");
            let told = Description::from_lines(&line);
            assert!(told.debug_link.is_none_or(|link| !link.name.contains('/')));
        }
        assert_eq!(
            read_debug_link(b"a\0\0\0\x01\0\0"),
            None,
            "the end is missing"
        );
    }
}
