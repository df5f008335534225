//! Collects the functions of a symbol file and compresses them in groups.

use zstd::bulk::Compressor;
use zstd::dict;

use super::CompileError;
use crate::file::format::{GROUP, put};

/// Level of zstd. Higher levels take two or three times as long and save a twentieth.
const LEVEL: i32 = 5;
/// Maximum size of the dictionary, in bytes.
const DICTIONARY: usize = 64 << 10;
/// Inverse of the dictionary's maximum share of the uncompressed functions.
const PART: usize = 32;
/// Approximate size of the training sample, in bytes. A larger sample takes longer and barely improves the
/// dictionary.
const SAMPLE: usize = 1 << 20;
/// Minimum size of a zstd dictionary, in bytes (`ZDICT_DICTSIZE_MIN`).
const MIN_DICTIONARY: usize = 256;

/// Encoded functions, in the layout that [`Names`](crate::Names) reads.
#[derive(Debug, Default)]
pub(super) struct Names {
    records: Vec<u8>,
    ends: Vec<usize>,
}

/// The compressed sections of the functions.
pub(super) struct Packed {
    pub(super) groups: Vec<u8>,
    pub(super) functions: Vec<u8>,
    pub(super) dictionary: Vec<u8>,
}

impl Names {
    /// Adds a function and returns its number. The display name `None` means that the display name equals the linkage
    /// name.
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
        // There are fewer functions than contexts, and context numbers have 32 bits.
        (self.ends.len() - 1) as u32
    }

    /// Size of the functions before compression, in bytes.
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

    /// Trains a dictionary on the names, including entropy tables. A group without separate tables is a twentieth
    /// smaller, and is read in a third of the time.
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
        let learned =
            (most >= MIN_DICTIONARY).then(|| dict::from_continuous(&sample, &sizes, most));
        // Training fails on too few samples.
        match learned {
            Some(Ok(dictionary)) => dictionary,
            _ => self.sample(most),
        }
    }

    /// Returns a sample of the functions, spread over all of them.
    fn sample(&self, most: usize) -> Vec<u8> {
        let all = self.records.len();
        // A leading zero byte keeps zstd from reading the sample as a trained dictionary.
        let mut dictionary = vec![0];
        let mut start = 0;
        for end in &self.ends {
            let record = self.records.get(start..*end).unwrap_or_default();
            // The share of the sample stays equal to the share of the visited functions.
            let due = dictionary.len() as u128 * all as u128 <= start as u128 * most as u128;
            if due && dictionary.len() + record.len() <= most {
                dictionary.extend_from_slice(record);
            }
            start = *end;
        }
        dictionary
    }
}
