//! E-mail addresses.

use super::{Span, byte, run, run_back};

/// The most bytes of an address before its `@` (RFC 5321 allows 64; what is longer is private too).
const LOCAL: usize = 254;

/// Endings of files and units that look like a host after `@`: `logo@2x.png`, `getty@tty1.service`.
const NOT_DOMAINS: [&str; 24] = [
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "bmp", "js", "mjs", "cjs", "css", "ts",
    "tsx", "json", "map", "service", "socket", "target", "timer", "mount", "slice", "scope",
    "device",
];

/// The address around an `@`: a local part without quotes (RFC 5321, section 4.1.2), and a host with at least two
/// labels of which the last is made of letters.
pub(in super::super) fn email(text: &[u8], at: usize) -> Option<Span> {
    let local_part =
        |byte: u8| byte.is_ascii_alphanumeric() || b"._%+-'".contains(&byte) || byte >= 0x80;
    let mut start = at - run_back(text, at, LOCAL, local_part);
    // Quotes and dots around an address are not part of it.
    while start < at && matches!(byte(text, start), b'.' | b'\'' | b'-' | b'%' | b'+') {
        start += 1;
    }
    let local = text.get(start..at)?;
    if local.is_empty()
        || !local
            .iter()
            .any(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80)
    {
        return None;
    }
    let host = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    // A host of any letters, or else other letters behind a host, as in texts without spaces.
    address(text, start, at, |byte| host(byte) || byte >= 0x80)
        .or_else(|| address(text, start, at, host))
}

/// The address from `start` on, whose host after the `@` is made of such bytes.
fn address(text: &[u8], start: usize, at: usize, host: impl Fn(u8) -> bool) -> Option<Span> {
    let local = text.get(start..at)?;
    let limit = text.len().min(at + 1 + LOCAL);
    let domain = run(text.get(..limit)?, at + 1, host);
    let trimmed = domain.iter().rposition(u8::is_ascii_alphanumeric)? + 1;
    let domain = domain.get(..trimmed)?;
    let end = at + 1 + trimmed;
    let domain = std::str::from_utf8(domain).ok()?;
    let (name, last) = domain.rsplit_once('.')?;
    let letters = last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_alphabetic());
    let known_last = letters || last.to_ascii_lowercase().starts_with("xn--");
    let labels = name.split('.').all(|label| {
        !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-')
    });
    if !known_last || !labels {
        return None;
    }
    if NOT_DOMAINS
        .iter()
        .any(|word| last.eq_ignore_ascii_case(word))
        || is_version(domain)
    {
        return None;
    }
    // The address of a repository, and the user of a URL: the latter is for `url_credentials` to judge.
    let repository = local == b"git" && byte(text, end) == b':';
    (!repository && !is_user_of_url(text, at)).then_some(start..end)
}

/// Whether a host is rather a version, as in `net@v0.17.0-rc.beta`.
fn is_version(domain: &str) -> bool {
    let mut bytes = domain.bytes();
    let first = match bytes.next() {
        Some(b'v' | b'V') => bytes.next(),
        first => first,
    };
    first.is_some_and(|byte| byte.is_ascii_digit())
        && bytes.find(|byte| !byte.is_ascii_digit()) == Some(b'.')
        && domain
            .split('.')
            .nth(1)
            .is_some_and(|second| second.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether all from the `://` of a URL to the `@` is what users and passwords are written with (RFC 3986, section 3.2.1,
/// without the characters that rather separate what follows from the URL: `&`, `;`, `,` and the like).
fn is_user_of_url(text: &[u8], at: usize) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._~%+:-".contains(&byte);
    let start = at - run_back(text, at, 256, inside);
    text.get(start.saturating_sub(3)..start) == Some(b"://")
}
