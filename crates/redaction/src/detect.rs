//! Matchers, one per detector. A matcher takes a candidate position, and returns the range of the hit at this position,
//! if any.
//!
//! Every matcher reads a bounded number of bytes around its position (or is called once per token), so that a scan
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

pub(super) type Span = Range<usize>;

/// Returns the byte at a position; outside of the text 0, which is in no class.
#[inline]
pub(super) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

/// Returns the byte before a position; 0 at the beginning.
#[inline]
pub(super) fn before(text: &[u8], at: usize) -> u8 {
    at.checked_sub(1).map_or(0, |at| byte(text, at))
}

/// Returns the bytes of a class from `start` on.
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

/// Whether a byte belongs to a word. A match inside a longer name or number is no hit. Only ASCII is tested:
/// typographic quotes and spaces do not belong to words, and some scripts have no spaces around numbers and words.
#[inline]
pub(super) fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a token may begin at a position: not after a letter or digit, except after the underscore of a short name,
/// as in `key_AKIA...`. The length limit of the name bounds the work for adjacent candidates.
pub(super) fn begins_token(text: &[u8], start: usize) -> bool {
    const NAME: usize = 24;
    match before(text, start) {
        b'_' => (2..=NAME).contains(&run_back(text, start, NAME + 1, word)),
        earlier => !earlier.is_ascii_alphanumeric(),
    }
}

/// Whether the text at the position begins with `prefix`.
#[inline]
pub(super) fn starts(text: &[u8], at: usize, prefix: &[u8]) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(prefix))
}

/// Checks the checksum of card numbers (ISO/IEC 7812-1, annex B).
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

/// Returns the remainder modulo 97 of a number whose letters have values from 10 (ISO/IEC 7064).
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
