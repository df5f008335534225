//! Hashes of sequences, and a store for computed hashes.

/// Hashes of the entries of a table; 0 for entries that are not hashed yet.
#[derive(Debug)]
pub(super) struct HashCache<'m>(pub(super) &'m mut [u128]);

impl<'m> HashCache<'m> {
    /// Takes space for `entries` hashes from `memory`.
    pub(super) fn of(entries: usize, memory: &mut &'m mut [u128]) -> Self {
        let (memo, rest) = std::mem::take(memory).split_at_mut(entries);
        *memory = rest;
        HashCache(memo)
    }

    #[inline(always)]
    pub(super) fn get(&self, index: i32) -> Option<u128> {
        self.0.get(at(index)).copied().filter(|hash| *hash != 0)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: i32, hash: u128) -> u128 {
        if let Some(place) = self.0.get_mut(at(index)) {
            *place = hash;
        }
        hash
    }
}

/// Combines hashes into two polynomials, one per half. The inputs are well mixed and the result is hashed again, so the
/// elements need no full hash, which would dominate the cost of a stack.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sequence {
    low: u64,
    high: u64,
}

impl Sequence {
    #[inline(always)]
    pub(super) fn push(&mut self, hash: u128) {
        // Odd multipliers lose no bits. These are Knuth's and PCG's multipliers for random number generators.
        self.low = self
            .low
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(hash as u64);
        self.high = self
            .high
            .wrapping_mul(0x2360_ed05_1fc6_5da5)
            .wrapping_add((hash >> 64) as u64);
    }

    pub(super) fn to_le_bytes(self) -> [u8; 16] {
        (u128::from(self.low) | u128::from(self.high) << 64).to_le_bytes()
    }
}

/// Converts an index to a position. A negative index becomes a position that no table has.
#[inline(always)]
pub(super) fn at(index: i32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
