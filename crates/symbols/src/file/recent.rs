//! Cache of recently read, decompressed names. Consecutive requests mostly have the same functions, and
//! decompression is most of the cost of names.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::known::Known;

/// Identity of a function: number of its file in this process, and its number in the file.
pub(super) type Key = (u64, u32);

/// Maximum size in bytes, enough for some 60,000 functions.
const MAX_BYTES: usize = 16 << 20;
/// Number of shards, each with a lock, so that requests rarely wait for each other.
const PARTS: usize = 16;
/// Approximate size of an entry besides its text, in bytes.
const ENTRY: usize = 96;

/// Cache of recently read names of any number of files, at most 16 MiB.
#[derive(Debug, Default)]
pub struct RecentNames {
    parts: [Mutex<Part>; PARTS],
}

/// Entries in two generations. A full new generation becomes the old generation, and the former old generation is
/// dropped. The result approximates LRU without recording the order of uses.
#[derive(Debug, Default)]
struct Part {
    new: Entries,
    /// Size of the new generation in bytes.
    bytes: usize,
    old: Entries,
}

type Entries = HashMap<Key, Known, RandomState>;

impl RecentNames {
    pub(super) fn get(&self, key: Key) -> Option<Known> {
        self.with(key, |part| match part.new.get(&key) {
            Some(found) => Some(found.clone()),
            None => {
                let found = part.old.remove(&key)?;
                part.add(key, found.clone());
                Some(found)
            }
        })
    }

    pub(super) fn add(&self, key: Key, known: Known) {
        self.with(key, |part| {
            part.add(key, known);
            Some(())
        });
    }

    fn with<T>(&self, (_, number): Key, work: impl FnOnce(&mut Part) -> Option<T>) -> Option<T> {
        let part = self.parts.get(number as usize % PARTS)?;
        work(&mut part.lock())
    }
}

impl Part {
    fn add(&mut self, key: Key, known: Known) {
        let bytes = known.text.len() + ENTRY;
        if self.bytes + bytes > MAX_BYTES / PARTS / 2 {
            self.old = std::mem::take(&mut self.new);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.new.insert(key, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_names_are_evicted_within_the_size_bound() {
        let recent = RecentNames::default();
        let known = Known {
            text: "a".repeat(1000).into(),
            name_at: None,
            file: 0,
            start_line: 0,
        };
        let held = || {
            let parts = recent.parts.iter().map(|part| part.lock());
            let entries = parts.map(|part| part.new.len() + part.old.len());
            entries.sum::<usize>() * (known.text.len() + ENTRY)
        };
        for number in 0..100_000 {
            recent.add((1, number), known.clone());
            assert!(recent.get((1, 0)).is_some(), "it is used all the time");
            if number % 1000 == 0 {
                assert!(held() <= MAX_BYTES, "{}", held());
            }
        }
        assert!(recent.get((1, 99_999)).is_some(), "it is the last one");
        assert!(
            recent.get((1, 1)).is_none(),
            "nobody has asked for it since"
        );
        assert!(recent.get((2, 0)).is_none(), "it is another file's");
    }
}
