//! Interned texts, identified by numbers.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher as _;

use super::gathered::Gathered;

/// The number for null in optional columns.
pub(super) const NONE: u32 = u32::MAX;

/// Texts (or other bytes) in order of arrival. Each text occurs once unless it was pushed.
#[derive(Debug, Default)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// End offset of each text.
    ends: Vec<usize>,
    /// Number and hash of each text, so that the table can grow without reading the texts again.
    ids: HashTable<(u32, u32)>,
}

/// Hashes a text. Collision attacks are no concern: tables live for minutes and hold accepted data,
/// so an attacker could as well send more data.
fn hash(bytes: &[u8]) -> u32 {
    FixedState::with_seed(0x7472_6962).hash_one(bytes) as u32
}

/// Spreads a hash, because the table uses the lowest and the highest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Strings {
    /// Returns the number of a text. A new text gets the next number.
    #[inline]
    pub(super) fn intern(&mut self, text: &[u8]) -> u32 {
        let hash = hash(text);
        let (bytes, ends) = (&self.bytes, &self.ends);
        let is_text = |of: &(u32, u32)| of.0 == hash && get(bytes, ends, of.1) == text;
        if let Some((_, id)) = self.ids.find(spread(hash), is_text) {
            return *id;
        }
        let id = self.push(text);
        self.ids
            .insert_unique(spread(hash), (hash, id), |of| spread(of.0));
        id
    }

    /// Returns the number of a text if it is present.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = hash(text);
        let is_text = |of: &(u32, u32)| of.0 == hash && self.get(of.1) == text;
        self.ids.find(spread(hash), is_text).map(|(_, id)| *id)
    }

    /// Adds a text under a new number without a lookup.
    pub(super) fn push(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        // The number of texts is limited by the memory of a table.
        (self.ends.len() - 1) as u32
    }

    /// Returns the text of a number; empty for a number without a text.
    #[inline]
    pub(super) fn get(&self, id: u32) -> &[u8] {
        get(&self.bytes, &self.ends, id)
    }

    /// Returns the number of texts.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the ranks of these texts in sorted order, by number. [`NONE`] has no rank.
    pub(super) fn ranks(&self, ids: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut ids: Vec<u32> = ids.filter(|id| *id != NONE).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.sort_unstable_by(|a, b| self.get(*a).cmp(self.get(*b)));
        let mut ranks = vec![0; self.len()];
        for (rank, id) in ids.into_iter().enumerate() {
            ranks[id as usize] = rank as u32;
        }
        ranks
    }
}

impl Gathered for Strings {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.ids.clear();
    }

    fn memory(&self) -> usize {
        self.bytes.memory() + self.ends.memory() + self.ids.allocation_size()
    }
}

#[inline]
fn get<'s>(bytes: &'s [u8], ends: &[usize], id: u32) -> &'s [u8] {
    let at = id as usize;
    let start = match at {
        0 => 0,
        at => ends.get(at - 1).copied().unwrap_or_default(),
    };
    let end = ends.get(at).copied().unwrap_or(start);
    bytes.get(start..end).unwrap_or_default()
}

/// Texts that are often unique, such as bodies of log records: as long as most are unique, they are
/// not looked up.
#[derive(Debug, Default)]
pub(super) struct Texts {
    strings: Strings,
    looked_up: u32,
    found: u32,
    skipped: u32,
}

impl Texts {
    /// Number of lookups before deciding whether lookups are worthwhile.
    const TRIAL_LOOKUPS: u32 = 1024;
    /// Number of texts to add without lookups before the next trial.
    const PAUSE: u32 = 16 * Self::TRIAL_LOOKUPS;

    #[inline]
    pub(super) fn add(&mut self, text: &[u8]) -> u32 {
        if self.skipped > 0 {
            self.skipped -= 1;
            return self.strings.push(text);
        }
        let known = self.strings.len();
        let id = self.strings.intern(text);
        self.looked_up += 1;
        self.found += u32::from(self.strings.len() == known);
        if self.looked_up == Self::TRIAL_LOOKUPS {
            if self.found < Self::TRIAL_LOOKUPS / 8 {
                self.skipped = Self::PAUSE;
            }
            (self.looked_up, self.found) = (0, 0);
        }
        id
    }

    pub(super) fn strings(&self) -> &Strings {
        &self.strings
    }
}

impl Gathered for Texts {
    fn clear(&mut self) {
        self.strings.clear();
        (self.looked_up, self.found, self.skipped) = (0, 0, 0);
    }

    fn memory(&self) -> usize {
        self.strings.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number() {
        let mut strings = Strings::default();
        assert_eq!(strings.intern(b""), 0);
        assert_eq!(strings.intern(b"a"), 1);
        assert_eq!(strings.intern(b"a"), 1);
        assert_eq!(strings.push(b"a"), 2);
        assert_eq!((strings.get(0), strings.get(2)), (&b""[..], &b"a"[..]));
        assert_eq!(strings.get(NONE), b"");
        strings.clear();
        assert_eq!(strings.intern(b"b"), 0);
    }

    #[test]
    fn unique_texts_stop_lookups() {
        let mut texts = Texts::default();
        for at in 0..Texts::TRIAL_LOOKUPS {
            texts.add(&at.to_le_bytes());
        }
        let again = texts.add(&0_u32.to_le_bytes());
        assert_eq!(again, Texts::TRIAL_LOOKUPS);
        for _ in 1..Texts::PAUSE {
            texts.add(b"same");
        }
        assert_eq!(texts.add(&0_u32.to_le_bytes()), 0, "looked up again");
    }
}
