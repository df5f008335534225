//! Matches card numbers and social security numbers. The modules `addresses` and `phone` match other numbers.

use smallvec::SmallVec;

use super::context::{self, COUNTERS, PARTS};
use super::{Span, before, byte, luhn, run, word};

/// Groups of digits with the same one-byte separator.
pub(super) struct Groups {
    /// Start and length of each group.
    pub(super) groups: SmallVec<[(usize, usize); 6]>,
    /// Separator of the groups; 0 for a single group.
    pub(super) separator: u8,
}

impl Groups {
    /// Reads up to 6 groups of up to 19 digits, from a position on.
    pub(super) fn read(text: &[u8], start: usize, separators: &[u8]) -> Groups {
        let mut read = Groups {
            groups: SmallVec::new(),
            separator: 0,
        };
        let mut at = start;
        while read.groups.len() < 6 {
            let rest = text.get(at..text.len().min(at + 20)).unwrap_or_default();
            let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == 0 {
                break;
            }
            read.groups.push((at, length));
            let separator = byte(text, at + length);
            let fits = match read.separator {
                0 => separators.contains(&separator),
                known => separator == known,
            };
            if !fits || !byte(text, at + length + 1).is_ascii_digit() {
                break;
            }
            read.separator = separator;
            at += length + 1;
        }
        read
    }

    /// Returns the end of the first `count` groups.
    pub(super) fn end(&self, count: usize) -> usize {
        let last = count.checked_sub(1).and_then(|last| self.groups.get(last));
        last.map_or(0, |(start, length)| start + length)
    }

    /// Whether the first groups have these lengths.
    pub(super) fn are(&self, lengths: &[usize]) -> bool {
        let groups = self.groups.get(..lengths.len());
        groups.is_some_and(|groups| {
            groups
                .iter()
                .map(|group| group.1)
                .eq(lengths.iter().copied())
        })
    }
}

/// Matches a card number that begins at a digit. The longest reading wins.
pub(in super::super) fn credit_card(text: &[u8], start: usize) -> Option<Span> {
    if before(text, start) == b'.' {
        return None;
    }
    let groups = Groups::read(text, start, b" -");
    // Printed groupings: 19, 16, 15 and 14 digits.
    let printed: [&[usize]; 4] = [&[4, 4, 4, 4, 3], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4]];
    let (_, first) = *groups.groups.first()?;
    let count = match first {
        14..=19 => 1,
        4 => {
            let fits = |lengths: &&&[usize]| {
                groups.are(lengths) && valid_card(text, start, groups.end(lengths.len()))
            };
            printed.iter().find(fits)?.len()
        }
        _ => return None,
    };
    let end = groups.end(count);
    // A fraction. A comma is a separator, because no group of a card number has the 3 digits of a group of thousands.
    let after = byte(text, end);
    let goes_on = after == b'.' && byte(text, end + 1).is_ascii_digit();
    // An underscore continues the number too: `4111111111111111_1`.
    let longer = after.is_ascii_alphanumeric() || goes_on;
    if longer || !valid_card(text, start, end) || (count == 1 && is_counter(text, start)) {
        return None;
    }
    Some(start..end + stripe(text, end))
}

/// Whether the word before a number marks a count or an id, except the id of a card.
fn is_counter(text: &[u8], start: usize) -> bool {
    let mut card = false;
    let id = context::find(text, start, false, |word| {
        word.eq_ignore_ascii_case(b"id") || word.ends_with(b"Id")
    });
    if id {
        let known: [&[u8]; 5] = [b"card", b"pan", b"payment", b"cc", b"account"];
        let near = text
            .get(start.saturating_sub(16)..start)
            .unwrap_or_default();
        card = known.iter().any(|word| {
            near.windows(word.len())
                .any(|near| near.eq_ignore_ascii_case(word))
        });
    }
    (id && !card) || context::said(text, start, &COUNTERS)
}

/// Returns the length of the rest of track 2 of a magnetic stripe: `=`, date, service code and issuer's data
/// (ISO/IEC 7813).
fn stripe(text: &[u8], end: usize) -> usize {
    if byte(text, end) != b'=' {
        return 0;
    }
    let limit = text.len().min(end + 32);
    let digits = run(text.get(..limit).unwrap_or_default(), end + 1, |byte| {
        byte.is_ascii_digit()
    });
    match digits.len() {
        0..7 => 0,
        length => 1 + length,
    }
}

/// Matches track 1 of a magnetic stripe whose number begins at `start`, after `B`: up to its end or its
/// maximum length, including name and issuer's data (ISO/IEC 7813).
pub(in super::super) fn track(text: &[u8], start: usize) -> Option<Span> {
    if !matches!(before(text, start), b'B' | b'b') || word(before(text, start - 1)) {
        return None;
    }
    let limit = text.get(..text.len().min(start + 79)).unwrap_or_default();
    let number = run(limit, start, |byte| byte.is_ascii_digit()).len();
    let end = start + number;
    if byte(text, end) != b'^' || !valid_card(text, start, end) {
        return None;
    }
    let rest = run(limit, end, |byte| {
        byte >= b' ' && byte != b'?' && !b"\"';{}".contains(&byte)
    });
    let from = start - 1 - usize::from(before(text, start - 1) == b'%');
    let sentinel = usize::from(byte(text, end + rest.len()) == b'?');
    Some(from..end + rest.len() + sentinel)
}

fn valid_card(text: &[u8], start: usize, end: usize) -> bool {
    let range = text.get(start..end).unwrap_or_default();
    let digits: SmallVec<[u8; 20]> = range.iter().copied().filter(u8::is_ascii_digit).collect();
    known_card(&digits) && luhn(digits.iter().copied())
}

/// Whether a number has an issuer's prefix and length. Visa's 13 digits are excluded: they are no longer issued, and
/// bar codes have the same length.
fn known_card(digits: &[u8]) -> bool {
    let prefix = digits.iter().take(4).fold(0, |prefix, digit| {
        10 * prefix + u32::from(digit.wrapping_sub(b'0'))
    });
    let lengths = match prefix {
        // American Express.
        3400..=3499 | 3700..=3799 => 15..=15,
        // Diners Club.
        3000..=3059 | 3600..=3699 | 3800..=3999 => 14..=14,
        // JCB.
        3528..=3589 => 16..=19,
        // Visa.
        4000..=4999 => match digits.len() {
            16 | 19 => return true,
            _ => return false,
        },
        // Mastercard, Mir.
        2200..=2204 | 2221..=2720 | 5100..=5599 => 16..=16,
        // Maestro, RuPay.
        5018 | 5020 | 5038 | 5080..=5089 | 5893 | 6304 | 6759 | 6761..=6763 => 16..=19,
        // Discover, RuPay, UnionPay.
        6000..=6099 | 6200..=6299 | 6440..=6599 | 8100..=8171 => 16..=19,
        _ => return false,
    };
    lengths.contains(&digits.len())
}

/// Matches a social security number that begins at a digit: AAA-GG-SSSS. Area 000, 666 and 900 to 999, group
/// 00 and serial number 0000 are never issued (Social Security Administration).
pub(in super::super) fn us_ssn(text: &[u8], start: usize) -> Option<Span> {
    let groups = Groups::read(text, start, b"- ");
    if groups.groups.len() != 3 || !groups.are(&[3, 2, 4]) {
        return None;
    }
    if matches!(before(text, start), b'-' | b'.' | b'+' | b'/') {
        return None;
    }
    let end = groups.end(3);
    let after = byte(text, end);
    if word(after) || (matches!(after, b'-' | b'.' | b'/') && word(byte(text, end + 1))) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(start + from..start + to).unwrap_or_default();
    let issued = is_issued(number(0, 3), number(4, 6), number(7, 11));
    (issued && !context::said(text, start, &PARTS)).then_some(start..end)
}

/// Whether a number may be issued.
fn is_issued(area: &[u8], group: &[u8], serial: &[u8]) -> bool {
    area != b"000"
        && area != b"666"
        && !area.starts_with(b"9")
        && group != b"00"
        && serial != b"0000"
}

/// Names of social security numbers in lower case.
const SSN_NAMES: [&[u8]; 4] = [
    b"ssn",
    b"socialsecuritynumber",
    b"social_security_number",
    b"social security number",
];

/// Matches a social security number without separators after a name, whose last letter is at `last`: `ssn=078051120`.
pub(in super::super) fn us_ssn_named(text: &[u8], last: usize) -> Option<Span> {
    let named = |name: &&[u8]| {
        let start = (last + 1).checked_sub(name.len());
        start.is_some_and(|start| {
            let there = text.get(start..=last).unwrap_or_default();
            // `userSsn`, `user_ssn`, but not `lessn`.
            let begins = !before(text, start).is_ascii_alphabetic()
                || byte(text, start).is_ascii_uppercase();
            there.eq_ignore_ascii_case(name) && begins
        })
    };
    if !SSN_NAMES.iter().any(named) {
        return None;
    }
    let between = run(
        text.get(..text.len().min(last + 6)).unwrap_or_default(),
        last + 1,
        |byte| b" =:\"'\\#".contains(&byte),
    );
    let start = last + 1 + between.len();
    let assigned = between
        .iter()
        .take(3)
        .any(|byte| matches!(byte, b'=' | b':'));
    let end = start + 9;
    let digits = text.get(start..end)?;
    let (area, rest) = digits.split_at_checked(3)?;
    let (group, serial) = rest.split_at_checked(2)?;
    let fits = assigned && digits.iter().all(u8::is_ascii_digit) && !word(byte(text, end));
    (fits && is_issued(area, group, serial)).then_some(start..end)
}
