//! What is hidden in an encoding: percent-encoding (RFC 3986, section 2.1) and base64 (RFC 4648), one level deep.

use std::ops::Range;

use super::detect::{credentials, run};
use super::find;

/// The shortest base64 that is looked into: 12 bytes, one more than the shortest address.
const SHORTEST: usize = 12;

/// Calls `found` with each run that decodes to a text, and that text.
pub(super) fn decoded(text: &str, mut found: impl FnMut(Range<usize>, &str)) {
    if memchr::memchr(b'%', text.as_bytes()).is_some() {
        percent(text.as_bytes(), &mut found);
    }
    if text.len() >= SHORTEST {
        base64(text.as_bytes(), &mut found);
    }
}

/// Runs of what one component of a URL is made of, with at least one encoded byte.
fn percent(text: &[u8], found: &mut impl FnMut(Range<usize>, &str)) {
    let part =
        |byte: u8| byte > b' ' && byte != 0x7f && !b"&=?#/;,\"'<>{}|\\^`()[]".contains(&byte);
    each_run(text, part, |start, run| {
        if memchr::memchr(b'%', run).is_none() {
            return;
        }
        let mut plain = Vec::with_capacity(run.len());
        let mut rest = run;
        while let Some((first, others)) = rest.split_first() {
            rest = others;
            let byte = match (first, others) {
                (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => {
                        rest = after;
                        16 * high + low
                    }
                    _ => b'%',
                },
                (b'+', _) => b' ',
                (first, _) => *first,
            };
            plain.push(byte);
        }
        if plain != run {
            // In whatever character set: what is no UTF-8 stands between the texts.
            let plain = String::from_utf8_lossy(&plain);
            // A plus is a space in forms and a plus elsewhere.
            found(start..start + run.len(), &plain);
            if run.contains(&b'+') {
                found(start..start + run.len(), &plain.replace(' ', "+"));
            }
        }
    });
}

fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

/// Runs of either alphabet. Both have characters that also separate things, such as the segments of a path: so the
/// pieces of a run are looked into too.
fn base64(text: &[u8], found: &mut impl FnMut(Range<usize>, &str)) {
    let part = |byte: u8| BASE64.get(usize::from(byte)) == Some(&true);
    each_run(text, part, |start, token| {
        if token.len() < SHORTEST {
            return;
        }
        base64_token(text, start, token, found);
        for separators in [&b"/"[..], b"+/-_"] {
            if !token.iter().any(|byte| separators.contains(byte)) {
                continue;
            }
            let mut at = start;
            for piece in token.split(|byte| separators.contains(byte)) {
                base64_token(text, at, piece, found);
                at += piece.len() + 1;
            }
        }
    });
}

fn base64_token(
    text: &[u8],
    start: usize,
    token: &[u8],
    found: &mut impl FnMut(Range<usize>, &str),
) {
    if token.len() < SHORTEST {
        return;
    }
    let mut short = [0; 96];
    let long;
    let plain = if token.len() <= short.len() / 3 * 4 {
        match credentials::base64_into(token, &mut short) {
            Some(length) => short.get(..length).unwrap_or_default(),
            None => return,
        }
    } else {
        long = credentials::base64(token).unwrap_or_default();
        &long
    };
    if !is_readable(plain) {
        return;
    }
    let padding = run(text, start + token.len(), |byte| byte == b'=')
        .len()
        .min(2);
    // Whatever stands between the texts in it.
    let plain = String::from_utf8_lossy(plain);
    found(start..start + token.len() + padding, &plain);
}

/// Whether there is anything to read in what was decoded: most words and ids happen to be base64, of bytes that mean nothing.
/// All that detectors find has as many bytes of ASCII on end as the shortest of it; other texts are text as a whole.
fn is_readable(plain: &[u8]) -> bool {
    let shown = |byte: &u8| matches!(byte, b' '..=b'~');
    let mut length = 0;
    let long = plain.iter().any(|byte| {
        length = if shown(byte) { length + 1 } else { 0 };
        length == find::SHORTEST
    });
    long || std::str::from_utf8(plain).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// What base64 of either alphabet is made of.
const BASE64: [bool; 256] = {
    let mut part = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        part[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        byte += 1;
    }
    part
};

#[inline]
fn each_run(text: &[u8], part: impl Fn(u8) -> bool, mut each: impl FnMut(usize, &[u8])) {
    let mut at = 0;
    while at < text.len() {
        let found = run(text, at, &part);
        if !found.is_empty() {
            each(at, found);
        }
        at += found.len();
        at += run(text, at, |byte| !part(byte)).len();
    }
}
