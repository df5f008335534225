//! One matcher per detector. Given a candidate place, a matcher returns the range of a hit there, if there is one.
//!
//! Every matcher reads a bounded number of bytes around its place (or is called once per token), so that a scan
//! takes time linear in the text.

pub(super) mod addresses;
pub(super) mod assigned;
mod context;
pub(super) mod credentials;
pub(super) mod email;
pub(super) mod entropy;
pub(super) mod home;
pub(super) mod iban;
pub(super) mod keys;
pub(super) mod numbers;
pub(super) mod phone;
pub(super) mod tokens;

use std::ops::Range;

/// Range of a hit.
pub(super) type Span = Range<usize>;

/// The byte at a place; 0 outside of the text, which is of no class.
#[inline]
pub(super) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

/// The byte before a place; 0 at the beginning.
#[inline]
pub(super) fn before(text: &[u8], at: usize) -> u8 {
    at.checked_sub(1).map_or(0, |at| byte(text, at))
}

/// From `start` on, the bytes of a class.
pub(super) fn run(text: &[u8], start: usize, of: impl Fn(u8) -> bool) -> &[u8] {
    let rest = text.get(start..).unwrap_or_default();
    let end = rest
        .iter()
        .position(|byte| !of(*byte))
        .unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

/// Returns the number of bytes of a class that end at `end`; at most `most`.
pub(super) fn run_back(text: &[u8], end: usize, most: usize, of: impl Fn(u8) -> bool) -> usize {
    let earlier = text.get(end.saturating_sub(most)..end).unwrap_or_default();
    earlier.iter().rev().take_while(|byte| of(**byte)).count()
}

/// Whether a byte belongs to a word: what stands inside a longer name or number is no hit. Only ASCII does: typographic
/// quotes and spaces are none, and scripts without spaces write numbers and words without anything between.
#[inline]
pub(super) fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether what is there begins with `prefix`.
#[inline]
pub(super) fn starts(text: &[u8], at: usize, prefix: &[u8]) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(prefix))
}

/// The checksum of card numbers (ISO/IEC 7812-1, annex B).
pub(super) fn luhn(digits: impl DoubleEndedIterator<Item = u8>) -> bool {
    let sum: u32 = digits
        .rev()
        .enumerate()
        .map(|(position, digit)| {
            let value = u32::from(digit.wrapping_sub(b'0'));
            match (position % 2, value) {
                (0, value) => value,
                (_, value) if value < 5 => 2 * value,
                (_, value) => 2 * value - 9,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The remainder by 97 of a number in which letters count from 10 (ISO/IEC 7064).
pub(super) fn mod97(characters: impl Iterator<Item = u8>) -> u32 {
    characters.fold(0, |remainder, character| {
        let (shift, value) = match character {
            b'0'..=b'9' => (10, character - b'0'),
            letter => (
                100,
                (letter.to_ascii_uppercase().wrapping_sub(b'A')).wrapping_add(10),
            ),
        };
        (remainder * shift + u32::from(value)) % 97
    })
}
