//! Matches tokens of package registries, GitLab and Azure.

use super::{Span, before, begins_token, byte, run, run_back, starts, word};

/// Maximum length of a token in bytes.
const TOKEN: usize = 512;

fn part(byte: u8) -> bool {
    word(byte) || byte == b'-'
}

/// Returns the bytes of a class from `start` on, at most [`TOKEN`].
fn token(text: &[u8], start: usize, of: impl Fn(u8) -> bool) -> &[u8] {
    let limit = text.len().min(start + TOKEN);
    run(text.get(..limit).unwrap_or_default(), start, of)
}

/// Whether a token has digits, or letters of both cases, like a random token.
fn random(token: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| token.iter().any(of);
    has(u8::is_ascii_alphabetic)
        && (has(u8::is_ascii_digit) || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase))
}

/// Matches a GitLab token with the dash of its prefix at `dash`: `glpat-` and at least 20 characters,
/// possibly in dotted parts (GitLab documentation, "Token prefixes").
pub(in super::super) fn gitlab(text: &[u8], dash: usize) -> Option<Span> {
    const PREFIXES: [&[u8]; 10] = [
        b"glpat", b"gldt", b"glptt", b"glrt", b"glcbt", b"glsoat", b"glft", b"glimt", b"glagent",
        b"glffct",
    ];
    let length = run_back(text, dash, 8, |byte| byte.is_ascii_lowercase());
    let start = dash - length;
    let prefix = text.get(start..dash)?;
    if !PREFIXES.contains(&prefix) || part(before(text, start)) {
        return None;
    }
    let body = token(text, dash + 1, part);
    let mut end = dash + 1 + body.len();
    if body.len() < 20 || !random(body) {
        return None;
    }
    for _ in 0..2 {
        let more = token(text, end + 1, |byte| byte.is_ascii_alphanumeric()).len();
        if byte(text, end) != b'.' || more < 2 {
            break;
        }
        end += 1 + more;
    }
    Some(start..end)
}

/// Matches an npm token with the underscore of its prefix at `underscore`: `npm_` and 36 letters and digits.
pub(in super::super) fn npm(text: &[u8], underscore: usize) -> Option<Span> {
    let start = underscore.checked_sub(3)?;
    if !starts(text, start, b"npm") || !begins_token(text, start) {
        return None;
    }
    let body = token(text, underscore + 1, |byte| byte.is_ascii_alphanumeric());
    let end = underscore + 1 + body.len();
    let varied = body.iter().any(u8::is_ascii_uppercase) && body.iter().any(u8::is_ascii_lowercase);
    (body.len() == 36 && !word(byte(text, end)) && varied && random(body)).then_some(start..end)
}

/// Matches a PyPI token with the dash of its prefix at `dash`: `pypi-` and a macaroon in base64url, which
/// begins with its version and location (PyPI documentation, "API tokens").
pub(in super::super) fn pypi(text: &[u8], dash: usize) -> Option<Span> {
    let start = dash.checked_sub(4)?;
    if !starts(text, start, b"pypi-Ag") || !begins_token(text, start) {
        return None;
    }
    let body = token(text, dash + 1, part);
    (body.len() >= 50 && random(body)).then_some(start..dash + 1 + body.len())
}

/// Matches the signature of an Azure shared access signature, with the `=` after `sig` at `sign`: 32 bytes in
/// base64, mostly percent-encoded.
pub(in super::super) fn azure_signature(text: &[u8], sign: usize) -> Option<Span> {
    let start = sign.checked_sub(3)?;
    if !starts(text, start, b"sig") || word(before(text, start)) {
        return None;
    }
    let body = token(text, sign + 1, |byte| {
        byte.is_ascii_alphanumeric() || b"%+/=-_".contains(&byte)
    });
    let has = |of: fn(&u8) -> bool| body.iter().any(of);
    let fits = body.len() >= 43 && has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase);
    fits.then_some(sign + 1..sign + 1 + body.len())
}

/// Matches an Azure client secret with its tilde at `tilde`: 3 characters, a digit, `Q~` and 31 to 34
/// characters.
pub(in super::super) fn azure_client(text: &[u8], tilde: usize) -> Option<Span> {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.~-".contains(&byte);
    let start = tilde.checked_sub(5)?;
    let fits = byte(text, tilde - 1) == b'Q'
        && byte(text, tilde - 2).is_ascii_digit()
        && text.get(start..tilde - 2)?.iter().all(|byte| part(*byte))
        && !part(before(text, start));
    if !fits {
        return None;
    }
    let body = token(text, tilde + 1, part);
    // A full stop at the end of a sentence.
    let dots = run_back(body, body.len(), 3, |byte| byte == b'.');
    let length = body.len() - dots;
    (31..=34)
        .contains(&length)
        .then_some(start..tilde + 1 + length)
}
