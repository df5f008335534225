//! Matches e-mail addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Span, before, byte, run, run_back};

/// Maximum number of bytes before the `@`. RFC 5321 allows 64; longer local parts are private too.
const LOCAL: usize = 254;

/// Endings of files and units that look like a host after `@`: `logo@2x.png`, `getty@tty1.service`.
const NOT_DOMAINS: [&str; 24] = [
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "bmp", "js", "mjs", "cjs", "css", "ts",
    "tsx", "json", "map", "service", "socket", "target", "timer", "mount", "slice", "scope",
    "device",
];

/// The address around an `@`: a local part (RFC 5321, section 4.1.2), and a host with at least two labels of which the
/// last is made of letters, or an address in brackets.
pub(in super::super) fn email(text: &[u8], at: usize) -> Option<Span> {
    if before(text, at) == b'"' {
        return quoted(text, at);
    }
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
    if let Some(end) = address_literal(text, at + 1) {
        return Some(start..end);
    }
    // A host of any letters, or else other letters after a host, as in texts without spaces.
    address(text, start, at, |byte| host(byte) || byte >= 0x80)
        .or_else(|| address(text, start, at, host))
}

/// Bytes of the names of hosts.
fn host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-'
}

/// Matches an address whose local part is in quotes, with the `@` at `at`: `"jane doe"@example.com`.
fn quoted(text: &[u8], at: usize) -> Option<Span> {
    let inside = |byte: u8| byte >= b' ' && byte != b'"';
    let end = at.checked_sub(1)?;
    let length = run_back(text, end, 64, inside);
    let start = (end - length).checked_sub(1)?;
    let local = text.get(end - length..end)?;
    // Another value in quotes, as in JSON, begins with a separator.
    let is_value = local.iter().any(|byte| b",:{}[]".contains(byte));
    if byte(text, start) != b'"' || is_value || !local.iter().any(u8::is_ascii_alphanumeric) {
        return None;
    }
    address(text, start, at, host)
}

/// Returns the end of the address of a host in brackets at `start` (RFC 5321, section 4.1.3): `[192.0.2.1]`.
fn address_literal(text: &[u8], start: usize) -> Option<usize> {
    if byte(text, start) != b'[' {
        return None;
    }
    let limit = text.get(..text.len().min(start + 64)).unwrap_or_default();
    let inside = run(limit, start + 1, |byte| {
        byte.is_ascii_alphanumeric() || b".:".contains(&byte)
    });
    let literal = std::str::from_utf8(inside).ok()?;
    let is_address = match literal.strip_prefix("IPv6:") {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => literal.parse::<Ipv4Addr>().is_ok(),
    };
    let end = start + 1 + inside.len();
    (is_address && byte(text, end) == b']').then_some(end + 1)
}

/// Matches an address from `start` on, whose host after the `@` consists of the given bytes.
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
    // A repository address, or the user of a URL, which the detector `url_credentials` handles.
    let repository = local == b"git" && byte(text, end) == b':';
    (!repository && !is_user_of_url(text, at)).then_some(start..end)
}

/// Whether a host looks like a version, as in `net@v0.17.0-rc.beta`.
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

/// Whether the text between the `://` of a URL and the `@` may be user information (RFC 3986, section 3.2.1). Excludes
/// characters that usually separate the URL from other text, such as `&`, `;` and `,`.
fn is_user_of_url(text: &[u8], at: usize) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._~%+:-".contains(&byte);
    let start = at - run_back(text, at, 256, inside);
    text.get(start.saturating_sub(3)..start) == Some(b"://")
}
