//! Matches secrets after the name of their key: `password=...`, `"api_key": "..."`, `AccountKey=...`.

use super::{Span, before, byte, run, run_back, starts};

/// Maximum length of a key name in bytes.
const KEY: usize = 48;

/// Maximum length of a value in bytes.
const VALUE: usize = 512;

/// A name and its value.
struct Assignment {
    /// Letters and digits of the name, in lower case.
    name: [u8; KEY],
    /// Number of letters and digits in `name`.
    length: usize,
    /// Start of the name in the text.
    start: usize,
    value: Span,
    /// Whether the value may be a word of a sentence: it follows a colon and a space, without quotes.
    prose: bool,
}

impl Assignment {
    fn name(&self) -> &[u8] {
        self.name.get(..self.length).unwrap_or_default()
    }

    /// Reads the assignment to a name whose last letter is at `last`.
    fn read(text: &[u8], last: usize) -> Option<Assignment> {
        let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let (first, next) = (byte(text, last + 1), byte(text, last + 2));
        let sign = |byte: u8| matches!(byte, b'=' | b':');
        // At most a quote, its backslash and a space precede the sign.
        let other = |byte: u8| !part(byte);
        let at = if sign(first) {
            last + 1
        } else if other(first) && sign(next) {
            last + 2
        } else if other(first) && other(next) && sign(byte(text, last + 3)) {
            last + 3
        } else {
            return None;
        };
        let between = text.get(last + 1..at)?;
        if !between.iter().all(|byte| b" \"'`\\]".contains(byte)) {
            return None;
        }
        let length = run_back(text, last + 1, KEY, part);
        let start = last + 1 - length;
        let mut name = [0; KEY];
        let mut filled = 0;
        for letter in text
            .get(start..=last)?
            .iter()
            .filter(|byte| byte.is_ascii_alphanumeric())
        {
            *name.get_mut(filled)? = letter.to_ascii_lowercase();
            filled += 1;
        }
        let (value, prose) = value(text, at)?;
        Some(Assignment {
            name,
            length: filled,
            start,
            value,
            prose,
        })
    }
}

/// Returns the range of the value after the sign at `sign`, and whether it may be prose.
fn value(text: &[u8], sign: usize) -> Option<(Span, bool)> {
    let text = text.get(..text.len().min(sign + VALUE)).unwrap_or_default();
    let mut at = sign + 1;
    // `=>`, `:=`
    if matches!(byte(text, at), b'=' | b'>') {
        at += 1;
    }
    let spaces = run(text, at, |byte| byte == b' ').len();
    if spaces > 4 {
        return None;
    }
    at += spaces;
    let escaped = byte(text, at) == b'\\' && matches!(byte(text, at + 1), b'"' | b'\'');
    at += usize::from(escaped);
    let quote = byte(text, at);
    if matches!(quote, b'"' | b'\'' | b'`') {
        let start = at + 1;
        let inside = run(text, start, |byte| byte != quote && byte != b'\n');
        let cut = usize::from(escaped && inside.ends_with(b"\\"));
        return Some((start..start + inside.len() - cut, false));
    }
    let inside = run(text, at, |byte| {
        byte > b' ' && !b"&;,\"'`<>|".contains(&byte)
    });
    let brackets = run_back(inside, inside.len(), 4, |byte| b")}].,:\\".contains(&byte));
    let end = at + inside.len() - brackets;
    Some((at..end, byte(text, sign) == b':' && spaces > 0))
}

/// Words that stand for a missing value or describe its state.
const WORDS: [&[u8]; 36] = [
    b"null",
    b"nil",
    b"none",
    b"undefined",
    b"true",
    b"false",
    b"yes",
    b"no",
    b"empty",
    b"unset",
    b"required",
    b"invalid",
    b"incorrect",
    b"wrong",
    b"missing",
    b"expired",
    b"changed",
    b"reset",
    b"redacted",
    b"masked",
    b"hidden",
    b"string",
    b"bearer",
    b"basic",
    b"token",
    b"password",
    b"secret",
    b"optional",
    b"unknown",
    b"default",
    b"present",
    b"valid",
    b"ok",
    b"failed",
    b"set",
    b"n/a",
];

/// Whether a value is a placeholder: a mask, a variable, a parameter, a word about the value.
fn stands_for(value: &[u8]) -> bool {
    let all = |byte: u8| value.iter().all(|other| other.eq_ignore_ascii_case(&byte));
    value.len() < 3
        || all(b'x')
        || all(b'*')
        || all(b'.')
        || all(b'-')
        || value.starts_with(b"****")
        || matches!(value.first(), Some(b'[' | b'<' | b'{' | b'%' | b'?' | b'(' | b'@'))
        || (matches!(value.first(), Some(b'$' | b':'))
            && value.iter().skip(1).all(|byte| byte.is_ascii_alphanumeric() || b"_{}():.-/".contains(byte)))
        || WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
        // `getPassword()`, `os.environ[...]`, `self.password`
        || value.ends_with(b"(") || value.ends_with(b"()")
        || [&b"os."[..], b"self.", b"this.", b"env.", b"process.", b"config.", b"var."].iter().any(|prefix| value.starts_with(prefix))
}

fn made(value: &[u8]) -> bool {
    let count = |of: fn(&u8) -> bool| value.iter().filter(|byte| of(byte)).count();
    let (digits, upper, lower) = (
        count(u8::is_ascii_digit),
        count(u8::is_ascii_uppercase),
        count(u8::is_ascii_lowercase),
    );
    if value.len() < 8
        || value
            .iter()
            .any(|byte| b"()[]{}\\".contains(byte) || *byte == b' ')
    {
        return false;
    }
    // Names of other objects: `registry-credentials-1`, `/var/run/secrets/token`.
    let words = value
        .split(|byte| b"-_./:".contains(byte))
        .filter(|word| word.len() > 2 && word.iter().all(u8::is_ascii_lowercase))
        .count();
    let pieces = value.split(|byte| b"-_./:".contains(byte)).count();
    if upper == 0 && words > 0 && 2 * words >= pieces && pieces > 1 {
        return false;
    }
    digits > 1 || (upper > 1 && lower > 1 && value.len() >= 16)
}

/// Whether a value resembles a password more than a word of a sentence.
fn unlike_prose(value: &[u8]) -> bool {
    let letters = value.iter().all(u8::is_ascii_alphabetic);
    let cases = value.iter().skip(1).any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase);
    !letters && value.iter().any(u8::is_ascii_alphanumeric) || letters && cases
}

/// Whether a matcher may know a name that ends at `last`. Most names at anchors are unknown and need not be read.
pub(in super::super) fn ends_name(text: &[u8], last: usize) -> bool {
    let end = last.checked_sub(2).and_then(|start| text.get(start..=last));
    let known = [
        &b"ord"[..],
        b"swd",
        b"pwd",
        b"ret",
        b"ken",
        b"key",
        b"ass",
        b"ase",
    ];
    end.is_some_and(|end| known.iter().any(|known| end.eq_ignore_ascii_case(known)))
}

/// Matches the value after the name of a password, a key, a token or a secret, whose last letter is at `last`.
///
/// A password may be any value except a placeholder or a word of a sentence. Keys, tokens and secrets must
/// look machine-made, because their names have other meanings too.
pub(in super::super) fn secret(text: &[u8], last: usize) -> Option<Span> {
    let assignment = Assignment::read(text, last)?;
    let name = assignment.name();
    let ends = |words: &[&[u8]]| words.iter().any(|word| name.ends_with(word));
    // `pass` alone, or as the last part: not `bypass`, `compass`.
    let pass = name.ends_with(b"pass") && {
        let separate = last.checked_sub(4).map_or(0, |at| byte(text, at));
        name.len() == 4 || matches!(separate, b'_' | b'-') || starts(text, last - 3, b"Pass")
    };
    let password = pass || ends(&[b"password", b"passwd", b"pwd", b"passphrase"]);
    let key = ends(&[
        b"secret",
        b"token",
        b"apikey",
        b"accesskey",
        b"secretkey",
        b"privatekey",
        b"authkey",
        b"accountkey",
        b"signingkey",
        b"encryptionkey",
        b"masterkey",
        b"sharedkey",
        b"appkey",
        b"licensekey",
        b"subscriptionkey",
    ]);
    if !password && !key {
        return None;
    }
    let value = text.get(assignment.value.clone())?;
    if stands_for(value) {
        return None;
    }
    // `pwd` also names paths and directories.
    let path = name == b"pwd" || name == b"oldpwd";
    let fits = match password {
        true => !(path && value.starts_with(b"/")) && (!assignment.prose || unlike_prose(value)),
        false => made(value),
    };
    fits.then_some(assignment.value)
}

/// Matches an AWS secret access key (40 characters of base64) after its name, whose last letter is at `last`.
pub(in super::super) fn aws_secret(text: &[u8], last: usize) -> Option<Span> {
    let assignment = Assignment::read(text, last)?;
    let name = assignment.name();
    let known = [
        &b"secretaccesskey"[..],
        b"secretkey",
        b"awssecret",
        b"awskey",
        b"awssecrettoken",
    ];
    if !known.iter().any(|known| name.ends_with(known)) {
        return None;
    }
    let value = text.get(assignment.value.clone())?;
    is_aws_secret(value).then_some(assignment.value)
}

/// Whether a value has the form of an AWS secret access key.
pub(super) fn is_aws_secret(value: &[u8]) -> bool {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let has = |of: fn(&u8) -> bool| value.iter().any(of);
    value.len() == 40
        && value.iter().all(part)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && (has(u8::is_ascii_digit) || value.contains(&b'/') || value.contains(&b'+'))
}

/// Matches an Azure key after its name, whose last letter is at `last`: `AccountKey=`, `SharedAccessKey=`, 32
/// or 64 bytes in base64.
pub(in super::super) fn azure_key(text: &[u8], last: usize) -> Option<Span> {
    let assignment = Assignment::read(text, last)?;
    let name = assignment.name();
    let known = [
        &b"accountkey"[..],
        b"sharedaccesskey",
        b"storagekey",
        b"azurekey",
        b"cosmoskey",
    ];
    if !known.iter().any(|known| name.ends_with(known)) || before(text, assignment.start) == b'$' {
        return None;
    }
    let value = text.get(assignment.value.clone())?;
    let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let body = run(value, 0, part).len();
    let padding = value.len() - body;
    let fits = (43..=88).contains(&body)
        && padding <= 2
        && value.iter().skip(body).all(|byte| *byte == b'=')
        && value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_uppercase);
    fits.then_some(assignment.value)
}
