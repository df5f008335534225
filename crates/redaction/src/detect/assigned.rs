//! Secrets behind the name of their key: `password=...`, `"api_key": "..."`, `AccountKey=...`.

use super::{Span, before, byte, run, run_back, starts};

/// The longest name of a key in bytes.
const KEY: usize = 48;

/// The longest value in bytes.
const VALUE: usize = 512;

/// A name and its value.
struct Assignment {
    /// Letters and digits of the name, in lower case.
    name: [u8; KEY],
    /// Letters and digits in `name`.
    length: usize,
    /// The first byte of the name in the text.
    start: usize,
    value: Span,
    /// Whether the value may be a word of a sentence: a colon and a space before it, and no quotes.
    prose: bool,
}

impl Assignment {
    /// The name.
    fn name(&self) -> &[u8] {
        self.name.get(..self.length).unwrap_or_default()
    }

    /// An assignment to a name whose last letter is at `last`.
    fn read(text: &[u8], last: usize) -> Option<Assignment> {
        let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let (first, next) = (byte(text, last + 1), byte(text, last + 2));
        let sign = |byte: u8| matches!(byte, b'=' | b':');
        // At most a quote, its backslash and a space before the sign.
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

/// Returns the place of the value behind the sign at `sign`, and true if it may be prose.
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
        // The backslash of the quote at the end.
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

/// Words that say that there is no value, or what is the matter with it.
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

/// Returns true for a value in place of another one: a mask, a variable, a parameter, a word about it.
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

/// Returns true for a value that looks as if a machine had made it.
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
    // Names of other things: `registry-credentials-1`, `/var/run/secrets/token`.
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

/// Returns true for a value that is more like a password than like a word of a sentence.
fn unlike_prose(value: &[u8]) -> bool {
    let letters = value.iter().all(u8::is_ascii_alphabetic);
    let cases = value.iter().skip(1).any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase);
    !letters && value.iter().any(u8::is_ascii_alphanumeric) || letters && cases
}

/// Returns true if a name that ends at `last` may be one of those that the matchers know. Most names that the anchors find are
/// not, and need not be read.
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

/// The value behind the name of a password, a key, a token or a secret. The last letter of the name is at `last`.
///
/// A password may be any value but a placeholder or a word of a sentence. Keys, tokens and secrets must look as if a machine
/// had made them: their names have other meanings too.
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
    // Paths and directories are called `pwd`.
    let path = name == b"pwd" || name == b"oldpwd";
    let fits = match password {
        true => !(path && value.starts_with(b"/")) && (!assignment.prose || unlike_prose(value)),
        false => made(value),
    };
    fits.then_some(assignment.value)
}

/// A secret access key of AWS behind its name, whose last letter is at `last`: 40 characters of base64.
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

/// Returns true for a value in the form of a secret access key.
pub(super) fn is_aws_secret(value: &[u8]) -> bool {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let has = |of: fn(&u8) -> bool| value.iter().any(of);
    value.len() == 40
        && value.iter().all(part)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && (has(u8::is_ascii_digit) || value.contains(&b'/') || value.contains(&b'+'))
}

/// A key of Azure behind its name, whose last letter is at `last`: `AccountKey=`, `SharedAccessKey=`, 32 or 64 bytes in base64.
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
