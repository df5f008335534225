//! Tables of values by program counter, in the encoding of Go's linker.

/// Iterates over the values of a table, each with its end address.
///
/// A table starts with value -1 at the start of the function. Each step is a pair of varints: a signed difference
/// of values and a difference of addresses. A value difference of zero ends the table, except in the first step
/// (`runtime/symtab.go`, `step`).
#[derive(Debug, Clone)]
pub(super) struct Values<'a> {
    rest: &'a [u8],
    value: i32,
    address: u64,
    /// Size of the shortest instruction in bytes.
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
    /// End address and value.
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

/// A decoded table for lookups in any order, fastest in ascending order.
#[derive(Debug, Default)]
pub(super) struct Table {
    steps: Vec<(u64, i32)>,
}

impl Table {
    /// Decodes a table up to `end`, the end of the function. Returns the number of steps.
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

    /// Returns the value at an address; -1 if the table has no value.
    pub(super) fn at(&self, address: u64) -> i32 {
        let step = self.steps.partition_point(|(end, _)| *end <= address);
        self.steps.get(step).map_or(-1, |(_, value)| *value)
    }

    /// Returns the first address with a value, in a table that begins at `start`.
    pub(super) fn first(&self, value: i32, start: u64) -> Option<u64> {
        let step = self.steps.iter().position(|(_, found)| *found == value)?;
        let before = step
            .checked_sub(1)
            .and_then(|before| self.steps.get(before));
        Some(before.map_or(start, |(end, _)| *end))
    }

    /// Addresses at which values change.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_read_up_to_its_end() {
        // +11 (to 10) for 4 bytes, -1 (to 9) for 300, end.
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
