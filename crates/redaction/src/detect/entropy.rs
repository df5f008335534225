//! Matches tokens that look random.

use super::{Span, run};

const MIN_TOKEN_LENGTH: usize = 20;

/// Minimum entropy in bits per character. 999 of 1000 random base64 texts of 20 characters have more than
/// 3.5; words joined by case or digits mostly have less.
const BITS: f64 = 3.5;

/// Finds tokens that look random: 20 or more characters of base64 or base64url with letters of both cases, at
/// least two digits, and frequent changes of class. Excludes hexadecimal ids and UUIDs, which are common in
/// telemetry.
pub(in super::super) fn high_entropy(text: &[u8], mut found: impl FnMut(Span)) {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"+_-".contains(&byte);
    let mut at = 0;
    while at < text.len() {
        let token = run(text, at, part);
        if token.len() >= MIN_TOKEN_LENGTH && random(token) {
            found(at..at + token.len());
        }
        at += token.len();
        at += run(text, at, |byte| !part(byte)).len();
    }
}

fn random(token: &[u8]) -> bool {
    let count = |of: fn(&u8) -> bool| token.iter().filter(|byte| of(byte)).count();
    let (digits, upper, lower) = (
        count(u8::is_ascii_digit),
        count(u8::is_ascii_uppercase),
        count(u8::is_ascii_lowercase),
    );
    if digits < 2
        || upper < 2
        || lower < 2
        || token.iter().all(u8::is_ascii_hexdigit)
        || token.starts_with(b"_Z")
    {
        return false;
    }
    // `_Z` begins mangled C++ and Rust names. Names change class at word boundaries, random texts at about every second
    // character.
    let class = |byte: &u8| match byte {
        b'0'..=b'9' => 0,
        b'A'..=b'Z' => 1,
        b'a'..=b'z' => 2,
        _ => 3,
    };
    let changes = token.windows(2).filter(|pair| match pair {
        [first, second] => class(first) != class(second),
        _ => false,
    });
    20 * changes.count() >= 9 * token.len() && entropy(token) >= BITS && !ends_with_uuid(token)
}

/// Returns true for a UUID behind a name: `RequestId-00850174-e651-4b12-9903-885b7908b1d2`.
fn ends_with_uuid(token: &[u8]) -> bool {
    let Some((name, uuid)) = token.split_last_chunk::<36>() else {
        return false;
    };
    let fits = |(position, byte): (usize, &u8)| match position {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    uuid.iter().enumerate().all(fits)
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_'))
}

/// Returns the Shannon entropy of the bytes, in bits per byte.
fn entropy(token: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in token {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let total = token.len() as f64;
    let used = counts.iter().filter(|count| **count > 0);
    used.map(|count| {
        let share = f64::from(*count) / total;
        -share * share.log2()
    })
    .sum()
}
