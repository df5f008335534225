//! The functions of a compiled file: collected, then compressed some at a time.

use zstd::bulk::Compressor;
use zstd::dict;

use super::CompileError;
use crate::file::format::{GROUP, put};

/// The level of zstd. Higher ones take two or three times as long for a twentieth less.
const LEVEL: i32 = 5;
/// The most bytes of the dictionary.
const DICTIONARY: usize = 64 << 10;
/// It is not more than this part of what it is for.
const PART: usize = 32;
/// About how many bytes it is learned from: more take longer and make it hardly better.
const SAMPLE: usize = 1 << 20;
/// The smallest dictionary that zstd learns, in bytes (`ZDICT_DICTSIZE_MIN`).
const SMALLEST: usize = 256;

/// Functions, as [`Names`](crate::Names) reads them.
#[derive(Debug, Default)]
pub(super) struct Names {
    records: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

/// What is written of them.
pub(super) struct Packed {
    /// Where each group is.
    pub(super) groups: Vec<u8>,
    pub(super) functions: Vec<u8>,
    pub(super) dictionary: Vec<u8>,
}

impl Names {
    /// Adds a function, and says which number it has. The name for people is none if it is the linker's.
    pub(super) fn add(
        &mut self,
        file: u32,
        start_line: u32,
        system_name: &str,
        name: Option<&str>,
    ) -> u32 {
        let bytes = &mut self.records;
        put(bytes, file.into());
        put(bytes, start_line.into());
        put(bytes, system_name.len() as u64);
        bytes.extend_from_slice(system_name.as_bytes());
        match name {
            Some(name) => {
                put(bytes, name.len() as u64 + 1);
                bytes.extend_from_slice(name.as_bytes());
            }
            None => put(bytes, 0),
        }
        self.ends.push(bytes.len());
        // Fewer than there are contexts, whose numbers have 32 bits.
        (self.ends.len() - 1) as u32
    }

    /// How many bytes they have as they are.
    pub(super) fn bytes(&self) -> usize {
        self.records.len()
    }

    pub(super) fn pack(&self) -> Result<Packed, CompileError> {
        let dictionary = self.dictionary();
        let mut compressor = Compressor::with_dictionary(LEVEL, &dictionary)?;
        let mut packed = Packed {
            groups: Vec::new(),
            functions: Vec::new(),
            dictionary,
        };
        let mut start = 0;
        for group in self.ends.chunks(GROUP) {
            let end = group.last().copied().unwrap_or_default();
            let records = self.records.get(start..end).unwrap_or_default();
            start = end;
            let at = packed.functions.len() as u32;
            packed.groups.extend(at.to_le_bytes());
            packed.functions.extend(compressor.compress(records)?);
        }
        Ok(packed)
    }

    /// What names have in common, with zstd's tables for them. A group without tables of its own is a twentieth smaller and
    /// read in a third of the time.
    fn dictionary(&self) -> Vec<u8> {
        let most = DICTIONARY.min(self.records.len() / PART);
        let every = self.records.len() / SAMPLE + 1;
        let (mut sample, mut sizes) = (Vec::new(), Vec::new());
        let mut start = 0;
        for (number, group) in self.ends.chunks(GROUP).enumerate() {
            let end = group.last().copied().unwrap_or_default();
            if number.is_multiple_of(every) {
                let records = self.records.get(start..end).unwrap_or_default();
                sample.extend_from_slice(records);
                sizes.push(records.len());
            }
            start = end;
        }
        let learned = (most >= SMALLEST).then(|| dict::from_continuous(&sample, &sizes, most));
        // It cannot be learned from a few.
        match learned {
            Some(Ok(dictionary)) => dictionary,
            _ => self.some(most),
        }
    }

    /// Some of the functions, from everywhere.
    fn some(&self, most: usize) -> Vec<u8> {
        let all = self.records.len();
        // What zstd takes for a dictionary of its own kind begins otherwise.
        let mut dictionary = vec![0];
        let mut start = 0;
        for end in &self.ends {
            let record = self.records.get(start..*end).unwrap_or_default();
            // As far in the dictionary as in all.
            let due = dictionary.len() as u128 * all as u128 <= start as u128 * most as u128;
            if due && dictionary.len() + record.len() <= most {
                dictionary.extend_from_slice(record);
            }
            start = *end;
        }
        dictionary
    }
}
