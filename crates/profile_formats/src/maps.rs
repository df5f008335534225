//! Memory maps in the format of `/proc/self/maps`, and the locations of addresses.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tributary_profiles::id::{LocationId, MappingId};

use crate::builder::{Builder, Frame};
use crate::error::Fault;
use crate::text::lines;

/// Memory of a mapping, or of a known address in a table that may be half empty, in bytes.
const ENTRY: usize = 96;

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    limit: u64,
    id: MappingId,
}

/// The executable mappings of a process, and the locations of its addresses.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// In ascending order.
    ranges: Vec<Range>,
    known: HashMap<u64, LocationId, RandomState>,
}

impl Maps {
    /// Reads the executable mappings from text. Other lines are ignored.
    pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<Self, Fault> {
        let mut maps = Maps::default();
        for (_, line) in lines(bytes) {
            let Some((mut start, limit, mut offset, file)) = executable(&line) else {
                continue;
            };
            // As in pprof: the main program of old linkers begins here, and its addresses are those of the file.
            const MAIN: u64 = 0x40_0000;
            if maps.ranges.is_empty() && start.wrapping_sub(offset) == MAIN {
                (start, offset) = (MAIN, 0);
            }
            let id = builder.mapping(start..limit, offset, file)?;
            builder.grow(ENTRY)?;
            maps.ranges.push(Range { start, limit, id });
        }
        maps.ranges.sort_by_key(|range| range.start);
        Ok(maps)
    }

    /// Reads the mappings behind the line that begins them, if there is one.
    pub(crate) fn behind(bytes: &[u8], builder: &mut Builder<'_>) -> Result<Self, Fault> {
        let sentinels = ["MAPPED_LIBRARIES:", "--- Memory map: ---"];
        let mut found = sentinels.iter().filter_map(|sentinel| {
            let at = memchr::memmem::find(bytes, sentinel.as_bytes())?;
            bytes.get(at..)
        });
        Maps::read(found.next().unwrap_or_default(), builder)
    }

    /// Interns the location of an address.
    pub(crate) fn location(
        &mut self,
        builder: &mut Builder<'_>,
        address: u64,
    ) -> Result<LocationId, Fault> {
        if let Some(location) = self.known.get(&address) {
            return Ok(*location);
        }
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        let range = range.filter(|range| address < range.limit);
        let location = builder.frame(&Frame {
            address,
            mapping: range.map(|range| range.id).unwrap_or_default(),
            ..Frame::default()
        })?;
        builder.grow(ENTRY)?;
        self.known.insert(address, location);
        Ok(location)
    }

    /// Interns the locations of a stack. Return addresses become addresses of calls.
    pub(crate) fn stack(
        &mut self,
        builder: &mut Builder<'_>,
        addresses: &[u64],
        leaf_is_call: bool,
        into: &mut Vec<LocationId>,
    ) -> Result<(), Fault> {
        into.clear();
        for (address, at) in addresses.iter().zip(0..) {
            let call = u64::from(leaf_is_call || at > 0);
            into.push(self.location(builder, address.wrapping_sub(call))?);
        }
        Ok(())
    }
}

/// Parses an executable mapping: its start, limit, file offset and file.
fn executable(line: &str) -> Option<(u64, u64, u64, &str)> {
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let (range, rest) = line.trim_start().split_once(' ')?;
    let (start, limit) = range.split_once('-')?;
    let (start, limit) = (hexadecimal(start)?, hexadecimal(limit)?);
    let mut fields = rest.splitn(4, ' ');
    let (permissions, offset) = (fields.next()?, hexadecimal(fields.next()?)?);
    let _device = fields.next()?;
    let rest = fields.next()?.trim_start();
    let file = rest
        .split_once(' ')
        .map_or("", |(_inode, file)| file.trim_start());
    (permissions.contains('x') && start < limit).then_some((start, limit, offset, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mapping_has_range_offset_and_file() {
        let line =
            "7fb150e99000-7fb150f9a000 r-xp 00099000 00:00 326789      /usr/lib/a b.so (deleted)";
        let expected = (
            0x7fb1_50e9_9000,
            0x7fb1_50f9_a000,
            0x99000,
            "/usr/lib/a b.so (deleted)",
        );
        assert_eq!(executable(line), Some(expected));
        assert_eq!(executable(&line.replace("r-xp", "r--p")), None);
        assert_eq!(executable("1-2 r-xp 0 00:00 0").map(|of| of.3), Some(""));
        assert_eq!(executable("2-1 r-xp 0 00:00 0 x"), None);
    }
}
