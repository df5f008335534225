//! What begins with a digit: card numbers and social security numbers; the rest goes to `addresses` and `phone`.

use smallvec::SmallVec;

use super::{Span, before, byte, luhn, word};

/// Groups of digits, separated by one byte each, always the same.
pub(super) struct Groups {
    /// Where each group begins and how long it is.
    pub(super) groups: SmallVec<[(usize, usize); 6]>,
    /// What separates them; 0 with a single group.
    pub(super) separator: u8,
}

impl Groups {
    /// Reads up to 6 groups of up to 19 digits from a place on.
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

    /// Where the first `count` groups end.
    pub(super) fn end(&self, count: usize) -> usize {
        let last = count.checked_sub(1).and_then(|last| self.groups.get(last));
        last.map_or(0, |(start, length)| start + length)
    }

    /// Whether the first groups are of these lengths.
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

/// A card number that begins at a digit. The longest reading wins.
pub(in super::super) fn credit_card(text: &[u8], start: usize) -> Option<Span> {
    if before(text, start) == b'.' {
        return None;
    }
    let groups = Groups::read(text, start, b" -");
    // As cards are printed: 19, 16, 15 and 14 digits.
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
    // A fraction. A comma separates it from something else: no group of a card number is one of thousands, which has 3 digits.
    let after = byte(text, end);
    let goes_on = after == b'.' && byte(text, end + 1).is_ascii_digit();
    // An underscore too: `4111111111111111_1`.
    let longer = after.is_ascii_alphanumeric() || goes_on;
    (!longer && valid_card(text, start, end)).then_some(start..end)
}

fn valid_card(text: &[u8], start: usize, end: usize) -> bool {
    let range = text.get(start..end).unwrap_or_default();
    let digits: SmallVec<[u8; 20]> = range.iter().copied().filter(u8::is_ascii_digit).collect();
    known_card(&digits) && luhn(digits.iter().copied())
}

/// Issuers' prefixes and lengths. Visa's 13 digits are left out: no longer issued, and the length of bar codes.
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
        // Maestro.
        5000..=5099 | 5600..=5899 | 6304 | 6759 | 6761..=6763 => 16..=19,
        // Discover, RuPay, UnionPay.
        6000..=6099 | 6200..=6299 | 6440..=6599 | 8100..=8299 => 16..=19,
        _ => return false,
    };
    lengths.contains(&digits.len())
}

/// A social security number that begins at a digit: AAA-GG-SSSS. Area 000, 666 and 900 to 999, group 00 and serial
/// number 0000 are never given out (Social Security Administration).
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
    let (area, group, serial) = (number(0, 3), number(4, 6), number(7, 11));
    let never = area == b"000"
        || area == b"666"
        || area.starts_with(b"9")
        || group == b"00"
        || serial == b"0000";
    (!never).then_some(start..end)
}
