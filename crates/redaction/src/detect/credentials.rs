//! Matches credentials in HTTP headers and URLs.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::keys::scrambled;
use super::{Span, before, begins_token, byte, run, run_back, starts, word};

const OPTIONAL_PADDING: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
/// Base64 with or without padding.
static STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, OPTIONAL_PADDING);
/// Base64url with or without padding.
static URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, OPTIONAL_PADDING);

/// Decodes base64 of either alphabet (RFC 4648), with or without padding, even if truncated.
pub(in super::super) fn base64(token: &[u8]) -> Option<Vec<u8>> {
    let (engine, token) = encoded(token)?;
    engine.decode(token).ok()
}

/// Like [`base64`], into a buffer of three bytes for every four of the token. Returns the decoded length.
pub(in super::super) fn base64_into(token: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let (engine, token) = encoded(token)?;
    engine.decode_slice(token, buffer).ok()
}

/// Returns the alphabet of a token, and its decodable part.
fn encoded(token: &[u8]) -> Option<(&'static GeneralPurpose, &[u8])> {
    let engine = match token.iter().any(|byte| matches!(byte, b'-' | b'_')) {
        true => &URL_SAFE,
        false => &STANDARD,
    };
    // A single last character encodes no whole byte: the token was truncated.
    let whole = match token.len() % 4 {
        1 => token.len() - 1,
        _ => token.len(),
    };
    Some((engine, token.get(..whole)?))
}

/// Maximum length of a token header that is decoded, in bytes.
const HEADER: usize = 4096;

/// Maximum number of bytes of a URL's authority that are read after `://`.
pub(in super::super) const AUTHORITY: usize = 1024;

/// Whether a byte may occur in a part of a JSON Web Token.
fn base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Matches a JSON Web Token that begins at `start` with `ey` or `ew` (`{` and a quote or white space): the
/// header decodes to a JSON object with `alg` (RFC 7515, section 4.1.1), and a second part follows. The
/// signature, or the parts of an encrypted token, may be truncated.
pub(in super::super) fn jwt(text: &[u8], start: usize) -> Option<Span> {
    if before(text, start) == b'-'
        || !begins_token(text, start)
        || !matches!(byte(text, start + 1), b'y' | b'w')
    {
        return None;
    }
    let header = run(
        text.get(..text.len().min(start + HEADER))
            .unwrap_or_default(),
        start,
        base64url,
    );
    let mut end = start + header.len();
    if byte(text, end) != b'.' {
        return None;
    }
    let decoded = URL_SAFE.decode(header).ok()?;
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&decoded).ok()?;
    if !object.get("alg")?.is_string() {
        return None;
    }
    let payload = run(text, end + 1, base64url).len();
    // `"alg":"dir"` leaves the second part of an encrypted token empty.
    if payload < 2 && !object.contains_key("enc") {
        return None;
    }
    end += 1 + payload;
    for _ in 0..3 {
        if byte(text, end) != b'.'
            || !(base64url(byte(text, end + 1)) || byte(text, end + 1) == b'.')
        {
            break;
        }
        end += 1 + run(text, end + 1, base64url).len();
    }
    Some(start..end)
}

/// Returns the token after the space at `space`, if the word before the space is `Bearer`: the `b64token` of RFC 6750,
/// section 2.1. A token differs from an English word by a length of 12 or more and a digit, or by 20 random-looking
/// letters. Words and numbers between dashes are a name: `instance-17-restarted`.
pub(in super::super) fn bearer(text: &[u8], space: usize) -> Option<Span> {
    let start = scheme(text, space, b"bearer")?;
    let token = run(text, start, |byte| {
        byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte)
    });
    let padding = run(text, start + token.len(), |byte| byte == b'=').len();
    // A full stop at the end of a sentence.
    let dots = run_back(token, token.len(), usize::MAX, |byte| byte == b'.');
    let padding = if dots > 0 { 0 } else { padding };
    let token = token.get(..token.len() - dots)?;
    let fits = token.len() >= 12 && token.iter().any(u8::is_ascii_digit) && !is_name(token)
        || scrambled(token);
    fits.then_some(start..start + token.len() + padding)
}

/// Whether a token consists of lower-case words and numbers with separators between them.
fn is_name(token: &[u8]) -> bool {
    let mut parts = token.split(|byte| b"-._~+/".contains(byte));
    let word = |part: &[u8]| part.iter().all(u8::is_ascii_lowercase);
    parts.clone().any(|part| part.len() > 2 && word(part))
        && parts.all(|part| word(part) || part.iter().all(u8::is_ascii_digit))
}

/// Returns the token after the space at `space`, if the word before the space is `Basic` and the token decodes to user
/// and password.
pub(in super::super) fn basic(text: &[u8], space: usize) -> Option<Span> {
    let start = scheme(text, space, b"basic")?;
    let token = run(text, start, |byte| {
        byte.is_ascii_alphanumeric() || b"+/".contains(&byte)
    });
    let padding = run(text, start + token.len(), |byte| byte == b'=')
        .len()
        .min(2);
    let decoded = base64(token)?;
    // In any character set.
    let fits =
        decoded.len() >= 3 && decoded.contains(&b':') && !decoded.iter().any(u8::is_ascii_control);
    // Some lower-case words decode to a text with a colon by chance.
    let fits = fits && !token.iter().all(u8::is_ascii_lowercase);
    fits.then_some(start..start + token.len() + padding)
}

/// Returns the start of credentials after the name of their scheme and the space at `space`.
fn scheme(text: &[u8], space: usize, name: &[u8]) -> Option<usize> {
    let start = space.checked_sub(name.len())?;
    let there = text.get(start..space)?;
    if !there.eq_ignore_ascii_case(name) || word(before(text, start)) {
        return None;
    }
    let spaces = run(text, space, |byte| byte == b' ').len();
    (spaces <= 4).then_some(space + spaces)
}

/// Matches user and password before the host of a URL whose `://` is at `colon`. Also matches a user alone that looks
/// like a token: 16 or more characters with letters and digits. Excludes placeholders: empty, `xxxxx`, `%s`, `${...}`.
/// A password may contain unencoded `/`, `?` and `#`, unless only digits precede them, which are a port.
pub(in super::super) fn url(text: &[u8], colon: usize) -> Option<Span> {
    if !before(text, colon).is_ascii_alphanumeric() {
        return None;
    }
    let start = colon + 3;
    let limit = text
        .get(..text.len().min(colon + AUTHORITY))
        .unwrap_or_default();
    let url = limit.get(start..)?;
    let length = user_information(url)?;
    let user_information = url.get(..length)?;
    if matches!(user_information.first(), None | Some(b'*' | b'[')) {
        return None;
    }
    let fits = match user_information.iter().position(|byte| *byte == b':') {
        Some(position) => {
            let password = user_information.get(position + 1..).unwrap_or_default();
            !stands_for_password(password) || (password.is_empty() && token(user_information))
        }
        None => token(user_information),
    };
    fits.then_some(start..start + length)
}

/// Returns the length of the user information at the start of a URL's authority.
fn user_information(url: &[u8]) -> Option<usize> {
    let inside = |byte: u8| !b" \t\r\n\"'<>`\\|".contains(&byte);
    let part = |from: usize| run(url, from, |byte| inside(byte) && !b"/?#".contains(&byte));
    let authority = part(0);
    if let Some(at) = authority.iter().rposition(|byte| *byte == b'@') {
        return Some(at);
    }
    let colon = authority.iter().position(|byte| *byte == b':')?;
    let begun = authority.get(colon + 1..)?;
    if begun.iter().all(u8::is_ascii_digit) || stands_for_password(begun) {
        return None;
    }
    let rest = run(url, authority.len(), |byte| inside(byte) && byte != b'@');
    let at = authority.len() + rest.len();
    let last = part(at).iter().rposition(|byte| *byte == b'@')?;
    Some(at + last)
}

fn token(user: &[u8]) -> bool {
    let user = user.strip_suffix(b":").unwrap_or(user);
    user.len() >= 16
        && user.iter().any(u8::is_ascii_digit)
        && user.iter().any(u8::is_ascii_alphabetic)
        && !stands_for_password(user)
}

fn stands_for_password(password: &[u8]) -> bool {
    let all = |byte: u8| password.iter().all(|other| *other == byte);
    password.is_empty()
        || all(b'x')
        || all(b'X')
        || all(b'*')
        || all(b'.')
        || password.starts_with(b"****")
        || password.starts_with(b"[")
        || matches!(password, b"%s" | b"%v" | b"%d" | b"%q" | b"{}")
        || (matches!(password.first(), Some(b'$' | b'{')) && password.ends_with(b"}"))
}

/// Matches the path of a Slack webhook in the URL whose `://` is at `colon`: the path alone permits posting.
pub(in super::super) fn slack_hook(text: &[u8], colon: usize) -> Option<Span> {
    const HOST: &[u8] = b"hooks.slack.com/";
    let host = colon + 3;
    if !starts(text, host, HOST) {
        return None;
    }
    let start = host + HOST.len();
    let path = run(text, start, |byte| {
        byte.is_ascii_alphanumeric() || byte == b'/'
    });
    let fits = path.len() >= 24 && path.iter().any(u8::is_ascii_digit);
    fits.then_some(start..start + path.len())
}
