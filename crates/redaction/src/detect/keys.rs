//! Matches keys and tokens with an issuer's prefix.

use super::assigned::is_aws_secret;
use super::{Span, begins_token, byte, run, run_back, starts};

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

/// A token of exactly `length` characters of a class from `start` on, which is no part of a longer word. An underscore
/// separates words: `key_AKIA...`.
fn exactly(
    text: &[u8],
    start: usize,
    body: usize,
    length: usize,
    of: fn(u8) -> bool,
) -> Option<Span> {
    if !begins_token(text, start) {
        return None;
    }
    // Reads at most one more character: a repeated prefix must not search the rest of the text each time.
    let end = body + length;
    let limit = text.len().min(end + 1);
    let found = run(text.get(..limit).unwrap_or_default(), body, of).len();
    (found == length && !alphanumeric(byte(text, end))).then_some(start..end)
}

/// Matches an AWS access key id with its `I` at `i`: `AKIA`, `ASIA` or `ABIA` and 16 characters of base 32
/// (AWS IAM reference, "unique identifiers").
pub(in super::super) fn aws(text: &[u8], i: usize) -> Option<Span> {
    let start = i.checked_sub(2)?;
    let prefix = text.get(start..start + 4)?;
    if !matches!(prefix, b"AKIA" | b"ASIA" | b"ABIA") {
        return None;
    }
    let base32 = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    exactly(text, start, start + 4, 16, base32)
}

/// Maximum distance of a secret after its access key id, in bytes.
const MAX_SECRET_DISTANCE: usize = 32;

/// Matches a secret access key after an access key id with its `I` at `i`, separated by a colon or a key
/// name.
pub(in super::super) fn aws_secret_behind(text: &[u8], i: usize) -> Option<Span> {
    let id = aws(text, i)?;
    let part = |byte: u8| alphanumeric(byte) || matches!(byte, b'+' | b'/');
    let mut at = id.end;
    while at < text.len() && at - id.end <= MAX_SECRET_DISTANCE {
        let token = run(text.get(..text.len().min(at + 41))?, at, part).len();
        let value = text.get(at..at + token)?;
        if is_aws_secret(value) && !part(byte(text, at + token)) {
            return Some(at..at + token);
        }
        at += token.max(1);
    }
    None
}

/// Matches a Google Cloud API key with its `I` at `i`: `AIza` and 35 characters of base64url.
pub(in super::super) fn gcp(text: &[u8], i: usize) -> Option<Span> {
    let start = i.checked_sub(1)?;
    if !starts(text, start, b"AIza") {
        return None;
    }
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    exactly(text, start, start + 4, 35, base64url)
}

/// Matches a GitHub token with the underscore of its prefix at `underscore`: `ghp_` and similar prefixes, or
/// `github_pat_`.
///
/// The last 6 characters of `ghp_` tokens are a CRC-32. A token with a wrong checksum still matches, because
/// truncated or mistyped tokens are private too. Only a token that resembles a placeholder needs a valid
/// checksum.
pub(in super::super) fn github(text: &[u8], underscore: usize) -> Option<Span> {
    let body = underscore + 1;
    if let Some(start) = body.checked_sub(b"github_pat_".len())
        && starts(text, start, b"github_pat_")
        && begins_token(text, start)
    {
        let token = run(text, body, |byte| alphanumeric(byte) || byte == b'_');
        let fits = token.len() >= 40 && varied(token);
        return fits.then_some(start..body + token.len());
    }
    let start = underscore.checked_sub(3)?;
    let [b'g', b'h', b'p' | b'o' | b'u' | b's' | b'r'] = text.get(start..underscore)? else {
        return None;
    };
    let token = run(text, body, alphanumeric);
    let length = token.len();
    let fits = (36..=255).contains(&length)
        && begins_token(text, start)
        && (varied(token) || length == 36 && checksum(token));
    fits.then_some(start..body + length)
}

/// Whether a token looks random: digits, and letters of both cases.
fn varied(token: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| token.iter().any(of);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// Whether the last 6 characters are the CRC-32 of the preceding characters in base 62.
fn checksum(token: &[u8]) -> bool {
    let Some((random, check)) = token.split_last_chunk::<6>() else {
        return false;
    };
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut left = crc32(random);
    let mut expected = [b'0'; 6];
    for digit in expected.iter_mut().rev() {
        *digit = DIGITS.get(left as usize % 62).copied().unwrap_or_default();
        left /= 62;
    }
    expected == *check
}

/// Returns the CRC-32 of ISO 3309, as in gzip.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// Maximum length of a Slack token in bytes.
const TOKEN: usize = 512;

/// Matches a Slack token with the dash after its prefix at `dash`: `xoxb-` and similar prefixes, `xapp-`.
pub(in super::super) fn slack(text: &[u8], dash: usize) -> Option<Span> {
    let start = dash.checked_sub(4)?;
    let prefix = text.get(start..dash)?;
    let known = matches!(
        prefix,
        [
            b'x',
            b'o',
            b'x',
            b'a' | b'b' | b'c' | b'd' | b'e' | b'o' | b'p' | b'r' | b's'
        ]
    ) || prefix == b"xapp";
    if !known || !begins_token(text, start) {
        return None;
    }
    let limit = text.len().min(dash + TOKEN);
    let token = run(text.get(..limit).unwrap_or_default(), dash, |byte| {
        alphanumeric(byte) || byte == b'-' || byte == b'.'
    });
    let end = dash + run_back_trimmed(token);
    let fits = token.len() >= 16 && token.iter().filter(|byte| byte.is_ascii_digit()).count() >= 4;
    fits.then_some(start..end)
}

/// Returns the length of a token without trailing full stops.
fn run_back_trimmed(token: &[u8]) -> usize {
    token.len() - run_back(token, token.len(), usize::MAX, |byte| byte == b'.')
}

/// Matches a Stripe secret with an underscore of its prefix at `underscore`: `sk_live_`, `rk_test_` and
/// similar prefixes, `whsec_`. Keys with the prefix `pk_` are public.
pub(in super::super) fn stripe(text: &[u8], underscore: usize) -> Option<Span> {
    if let Some(start) = underscore.checked_sub(5)
        && starts(text, start, b"whsec_")
    {
        let token = run(text, underscore + 1, |byte| {
            alphanumeric(byte) || b"+/=".contains(&byte)
        });
        let random = varied(token) || scrambled(token);
        let fits = token.len() >= 24 && random && begins_token(text, start);
        return fits.then_some(start..underscore + 1 + token.len());
    }
    let start = underscore.checked_sub(2)?;
    let known = matches!(text.get(start..underscore)?, b"sk" | b"rk");
    let mode = starts(text, underscore, b"_live_") || starts(text, underscore, b"_test_");
    if !known || !mode || !begins_token(text, start) {
        return None;
    }
    let body = underscore + b"_live_".len();
    let token = run(text, body, |byte| alphanumeric(byte) || byte == b'_');
    let fits = token.len() >= 16 && token.iter().any(u8::is_ascii_digit) || scrambled(token);
    fits.then_some(start..body + token.len())
}

/// Whether 20 or more letters look random. One key of 24 characters in 60 has no digit; words have at most one capital
/// letter, at their beginning.
pub(super) fn scrambled(token: &[u8]) -> bool {
    let pairs = |of: fn(&u8) -> bool| {
        let both = |pair: &&[u8]| pair.iter().all(of);
        token.windows(2).filter(both).count()
    };
    // A small letter between two capital letters.
    let alone = token.windows(3).any(|three| match three {
        [first, small, last] => {
            first.is_ascii_uppercase() && small.is_ascii_lowercase() && last.is_ascii_uppercase()
        }
        _ => false,
    });
    let mut letters: Vec<u8> = token.to_vec();
    letters.sort_unstable();
    letters.dedup();
    token.len() >= 20
        && token.iter().all(u8::is_ascii_alphabetic)
        && letters.len() >= 10
        && token.iter().any(u8::is_ascii_lowercase)
        && (pairs(u8::is_ascii_uppercase) > 1 || alone)
}

/// Maximum distance of the end of a private key, in bytes; an RSA key of 16384 bits takes 13 KB. Without the bound,
/// each of many beginnings without an end would search the whole text.
const KEY: usize = 16 << 10;

/// Matches a PEM private key (RFC 7468) whose dashes begin at `start`. The match ends at the end of the key, or at the
/// end of the text if the end of the key is missing or too far.
pub(in super::super) fn private_key(text: &[u8], start: usize) -> Option<Span> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    if !starts(text, start, BEGIN) {
        return None;
    }
    let label_start = start + BEGIN.len();
    let label = run(text, label_start, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '
    });
    let private = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    let body = label_start + label.len();
    if !private || !starts(text, body, b"-----") {
        return None;
    }
    let limit = text.len().min(body + KEY);
    let rest = text.get(body + 5..limit).unwrap_or_default();
    let end = memchr::memmem::find(rest, b"-----END ").and_then(|end| {
        let after = rest.get(end + 9..).unwrap_or_default();
        let label = after.get(..after.len().min(64)).unwrap_or_default();
        Some(body + 5 + end + 9 + memchr::memmem::find(label, b"-----")? + 5)
    });
    Some(start..end.unwrap_or(text.len()))
}
