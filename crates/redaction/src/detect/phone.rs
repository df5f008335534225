//! Matches telephone numbers.

use super::context::{self, PARTS, PHONES};
use super::numbers::Groups;
use super::{Span, before, byte, word};

/// Matches a number in one of these forms. `start` is the first digit of a digit run.
///
/// - international (ITU-T E.164): `+` or `00`, an assigned country code, 9 to 15 digits in all, with separators;
/// - North America: `(415) 555-2671`, `415-555-2671`, `415.555.2671`, with or without `1-` before it;
/// - with the trunk prefix 0: `020 7946 0958`, `0151/2345678`, `01 23 45 67 89`, `(030) 1234567`.
///
/// Digits without any separator or `+` never match, because such digits are mostly ids or times.
pub(in super::super) fn phone(text: &[u8], start: usize) -> Option<Span> {
    let earlier = before(text, start);
    match earlier {
        b'+' => return international(text, start, start - 1),
        b'(' => {
            if before(text, start - 1) == b'+' {
                return None;
            }
            return national(text, start, start - 1);
        }
        b'.' | b'-' | b'/' | b'$' | b'#' => return None,
        // A time of day.
        b':' if before(text, start - 1).is_ascii_digit() => return None,
        _ => {}
    }
    if text.get(start..start + 2) == Some(b"00") {
        let number = start + 2;
        return international(text, number, start).filter(|span| {
            // Without a separator, leading zeros belong to an id.
            let inside = text.get(span.clone()).unwrap_or_default();
            !inside.iter().all(u8::is_ascii_digit)
        });
    }
    national(text, start, start)
}

/// Matches a number from its country code on.
fn international(text: &[u8], code: usize, start: usize) -> Option<Span> {
    if word(before(text, start)) || matches!(before(text, start), b'+' | b'.' | b'-') {
        return None;
    }
    let (mut digits, mut at, mut end, mut groups) = (0, code, code, 1);
    let mut number = 0_u64;
    while digits <= 15 {
        let next = byte(text, at);
        match next {
            b'0'..=b'9' => {
                digits += 1;
                number = number
                    .saturating_mul(10)
                    .saturating_add(u64::from(next - b'0'));
                at += 1;
                end = at;
            }
            b' ' | b'-' | b'.' | b'/' | b'(' | b')' => {
                // One separator, or two separators at a parenthesis.
                let pair = matches!(
                    (next, byte(text, at + 1)),
                    (b' ', b'(') | (b')', b' ' | b'-')
                );
                let skipped = if pair { 2 } else { 1 };
                if !byte(text, at + skipped).is_ascii_digit() || groups == 7 {
                    break;
                }
                groups += 1;
                at += skipped;
            }
            _ => break,
        }
    }
    let after = byte(text, end);
    let decimals = after == b'.' && byte(text, end + 1).is_ascii_digit();
    if !(9..=15).contains(&digits) || word(after) || decimals || after == b':' && digits < 10 {
        return None;
    }
    has_assigned_country_code(number, digits).then_some(start..end)
}

/// Whether a number with this many digits begins with an assigned country code (ITU Operational Bulletin 1114). A North
/// American number must also have the fixed length.
fn has_assigned_country_code(number: u64, digits: u32) -> bool {
    let first = |count: u32| number / 10_u64.pow(digits - count);
    match first(1) {
        1 => {
            return digits == 11
                && (2..=9).contains(&(first(2) % 10))
                && (2..=9).contains(&(first(5) % 10));
        }
        7 => return digits == 11,
        _ => {}
    }
    if matches!(
        first(2),
        20 | 27 | 30..=34 | 36 | 39..=41 | 43..=49 | 51..=58 | 60..=66 | 81 | 82 | 84 | 86 | 90..=95 | 98
    ) {
        return true;
    }
    matches!(
        first(3),
        211..=213 | 216 | 218 | 220..=269 | 290 | 291 | 297..=299 | 350..=359 | 370..=378 | 380..=383
            | 385..=387 | 389 | 420 | 421 | 423 | 500..=509 | 590..=599 | 670 | 672..=679 | 680..=683
            | 685..=692 | 800 | 808 | 850 | 852 | 853 | 855 | 856 | 870 | 878 | 880..=883 | 886 | 888
            | 960..=968 | 970..=977 | 979 | 992..=996 | 998
    )
}

/// Matches a number without a country code; `start` is its beginning, including a parenthesis.
fn national(text: &[u8], digits: usize, start: usize) -> Option<Span> {
    if word(before(text, start))
        || matches!(before(text, start), b'-' | b'.' | b'/' if start != digits)
    {
        return None;
    }
    let end = if start == digits {
        grouped(text, digits)?
    } else {
        parenthesised(text, digits)?
    };
    let after = byte(text, end);
    let goes_on = matches!(after, b'-' | b'.' | b'/' | b':') && word(byte(text, end + 1));
    let part = start == digits && context::said(text, start, &PARTS);
    (!word(after) && !goes_on && !part).then_some(start..end)
}

/// Returns the end of `415) 555-2671` or `030) 1234567`.
fn parenthesised(text: &[u8], digits: usize) -> Option<usize> {
    let area = Groups::read(text, digits, b"");
    let (_, length) = *area.groups.first()?;
    if byte(text, digits + length) != b')' {
        return None;
    }
    let mut rest = digits + length + 1;
    if matches!(byte(text, rest), b' ' | b'-') {
        rest += 1;
    }
    let groups = Groups::read(text, rest, b" -.");
    if byte(text, digits) == b'0' {
        let total: usize = groups.groups.iter().map(|group| group.1).sum();
        let fits = (3..=5).contains(&length) && (9..=12).contains(&(total + length));
        return fits.then(|| groups.end(groups.groups.len()));
    }
    let fits = length == 3
        && groups.groups.len() == 2
        && groups.are(&[3, 4])
        && area_and_exchange(text, digits, rest);
    fits.then(|| groups.end(2))
}

/// Returns the end of `415-555-2671`, `1-415-555-2671`, `020 7946 0958` or `01 23 45 67 89`.
fn grouped(text: &[u8], start: usize) -> Option<usize> {
    let groups = Groups::read(text, start, b" -./");
    let count = groups.groups.len();
    let start_of = |group: usize| groups.groups.get(group).map_or(0, |group| group.0);
    let named = || context::said(text, start, &PHONES);
    let spaced = groups.separator == b' ' && groups.are(&[3, 3, 4]) && named();
    if matches!(groups.separator, b'-' | b'.') || spaced {
        if count == 3 && groups.are(&[3, 3, 4]) && area_and_exchange(text, start, start_of(1)) {
            return Some(groups.end(3));
        }
        if count == 4
            && groups.are(&[1, 3, 3, 4])
            && byte(text, start) == b'1'
            && area_and_exchange(text, start_of(1), start_of(2))
        {
            return Some(groups.end(4));
        }
    }
    let trunk = byte(text, start) == b'0' && matches!(byte(text, start + 1), b'1'..=b'9');
    if !trunk || count < 2 {
        return None;
    }
    if count == 5 && groups.are(&[2, 2, 2, 2, 2]) && groups.separator != b'/' {
        return Some(groups.end(5));
    }
    let total: usize = groups.groups.iter().map(|group| group.1).sum();
    let (_, first) = *groups.groups.first()?;
    let rest = groups.groups.get(1..).unwrap_or_default();
    // `06-12345678`; after a word for telephones also shorter numbers.
    let mobile = groups.separator == b'-' && count == 2 && groups.are(&[2, 8]);
    let fits = count <= 3
        && (3..=5).contains(&first)
        && ((10..=12).contains(&total) || (8..=9).contains(&total) && named())
        && rest.iter().all(|group| group.1 >= 3)
        || mobile;
    fits.then(|| groups.end(count))
}

/// Whether area code and exchange code are possible (North American Numbering Plan): both begin with 2 to 9,
/// and the second digit of an area code is never 9.
fn area_and_exchange(text: &[u8], area: usize, exchange: usize) -> bool {
    matches!(byte(text, area), b'2'..=b'9')
        && byte(text, area + 1) != b'9'
        && matches!(byte(text, exchange), b'2'..=b'9')
}
