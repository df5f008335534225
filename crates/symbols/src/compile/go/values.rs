//! Tables of values by program counter, as Go's linker writes them.

/// The values of a table, each with the address behind the last one that has it.
///
/// The table begins with value -1 at the function's start; each step is a difference of values and one of addresses, as varints, the
/// first one signed. A difference of zero, but for the first step, ends it. (`runtime/symtab.go`, `step`.)
#[derive(Debug, Clone)]
pub(super) struct Values<'a> {
    rest: &'a [u8],
    value: i32,
    address: u64,
    /// Bytes of the shortest instruction.
    quantum: u64,
    first: bool,
}

impl<'a> Values<'a> {
    pub(super) fn new(table: &'a [u8], start: u64, quantum: u64) -> Self {
        Values {
            rest: table,
            value: -1,
            address: start,
            quantum,
            first: true,
        }
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        for shift in (0..35).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u32::from(byte & 0x7f)
                .checked_shl(shift)
                .unwrap_or_default();
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Iterator for Values<'_> {
    /// Address behind, and value.
    type Item = (u64, i32);

    fn next(&mut self) -> Option<(u64, i32)> {
        let difference = self.varint()?;
        if difference == 0 && !self.first {
            self.rest = &[];
            return None;
        }
        self.first = false;
        let signed = (difference >> 1) as i32 ^ -((difference & 1) as i32);
        self.value = self.value.wrapping_add(signed);
        let length = u64::from(self.varint()?) * self.quantum;
        self.address = self.address.checked_add(length)?;
        Some((self.address, self.value))
    }
}

/// A table that is asked in any order; mostly in ascending order.
#[derive(Debug, Default)]
pub(super) struct Table {
    steps: Vec<(u64, i32)>,
}

impl Table {
    /// Reads a table up to `end`: what is said of addresses behind a function is not about it. Returns how many steps it has.
    pub(super) fn read(&mut self, values: Values<'_>, end: u64) -> u64 {
        self.steps.clear();
        for step in values {
            self.steps.push(step);
            if step.0 >= end {
                break;
            }
        }
        self.steps.len() as u64
    }

    /// The value at an address; -1 where there is none.
    pub(super) fn at(&self, address: u64) -> i32 {
        let step = self.steps.partition_point(|(end, _)| *end <= address);
        self.steps.get(step).map_or(-1, |(_, value)| *value)
    }

    /// The first address with a value, in a table that begins at `start`.
    pub(super) fn first(&self, value: i32, start: u64) -> Option<u64> {
        let step = self.steps.iter().position(|(_, found)| *found == value)?;
        let before = step
            .checked_sub(1)
            .and_then(|before| self.steps.get(before));
        Some(before.map_or(start, |(end, _)| *end))
    }

    /// Where values change.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_up_to_its_end() {
        // +11 (to 10) for 4 bytes, -1 (to 9) for 300, the end.
        let bytes = [22, 4, 1, 0xac, 2, 0, 9, 9];
        let values: Vec<_> = Values::new(&bytes, 100, 1).collect();
        assert_eq!(values, [(104, 10), (404, 9)]);
        let mut table = Table::default();
        assert_eq!(table.read(Values::new(&bytes, 100, 4), 2000), 2);
        assert_eq!([table.at(100), table.at(115), table.at(116)], [10, 10, 9]);
        assert_eq!(table.at(116 + 1200), -1);
        assert_eq!(table.read(Values::new(&bytes, 100, 4), 110), 1);
        assert_eq!([table.at(115), table.at(116)], [10, -1]);
    }
}
