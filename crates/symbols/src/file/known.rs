//! Names of an address that were already looked up.

use std::sync::Arc;

use super::format::Varints;

/// A cached function. Its names are already validated as UTF-8, which takes as long as copying them.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The system name, followed by the name unless both are equal.
    pub(super) text: Arc<str>,
    /// Offset of the name; `None` if the name equals the system name.
    pub(super) name_at: Option<u32>,
    pub(super) file: u32,
    pub(super) start_line: u32,
}

impl Known {
    pub(super) fn of(record: &Record<'_>) -> Option<Self> {
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

    pub(super) fn names(&self) -> Option<(&str, &str)> {
        match self.name_at {
            Some(at) => self.text.split_at_checked(at as usize),
            None => Some((&self.text, &self.text)),
        }
    }
}

/// A function as stored in the file.
pub(super) struct Record<'n> {
    pub(super) file: u32,
    pub(super) start_line: u32,
    system_name: &'n [u8],
    /// `None` if the name equals the system name.
    pub(super) name: Option<&'n [u8]>,
}

impl<'n> Record<'n> {
    pub(super) fn read(rest: &mut Varints<'n>) -> Option<Self> {
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

    /// Returns the linkage name and the display name.
    pub(super) fn names(&self) -> Option<(&'n str, &'n str)> {
        let system_name = str::from_utf8(self.system_name).ok()?;
        let name = match self.name {
            Some(name) => str::from_utf8(name).ok()?,
            None => system_name,
        };
        Some((system_name, name))
    }
}
