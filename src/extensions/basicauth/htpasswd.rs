//! Files of users and hashed passwords, as Apache's `htpasswd` writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::digest;
use sha_crypt::{PasswordHashRef, PasswordVerifier as _, ShaCrypt};
use subtle::ConstantTimeEq as _;

/// One user.
pub(super) struct Entry<'a> {
    /// The number of its line, from 1.
    pub(super) line: usize,
    pub(super) user: &'a str,
    pub(super) hash: Hash,
}

/// A password as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Hash {
    /// `$2a$`, `$2b$`, `$2y$`.
    Bcrypt(String),
    /// `$5$` and `$6$`, of SHA-256 and SHA-512.
    ShaCrypt(String),
    /// `$apr1$` and `$1$`.
    Md5 {
        magic: &'static str,
        salt: String,
        sum: String,
    },
    /// `{SHA}` without a salt, `{SSHA}` with one.
    Sha1 { sum: Vec<u8>, salt: Vec<u8> },
    /// As it is.
    Plain(String),
}

/// The users of a file, and what is wrong with lines that are none: their numbers and why. Empty lines and those that
/// begin with `#` are nothing.
pub(super) fn parse(text: &str) -> (Vec<Entry<'_>>, Vec<(usize, &'static str)>) {
    let (mut entries, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = match line.split_once(':') {
            None | Some(("", _)) => Err("a line is `user:hash`"),
            Some((user, hash)) => Hash::parse(hash).map(|hash| Entry {
                line: number,
                user,
                hash,
            }),
        };
        match entry {
            Ok(entry) => entries.push(entry),
            Err(reason) => wrong.push((number, reason)),
        }
    }
    (entries, wrong)
}

impl Hash {
    /// Reads what follows the user and the colon. What looks like no hash is a password as it is, as in the Collector.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(sum) = text.strip_prefix("{SHA}") {
            let sum = STANDARD.decode(sum).ok().filter(|sum| sum.len() == SHA1);
            let sum = sum.ok_or("{SHA} is followed by 20 bytes in base64")?;
            return Ok(Hash::Sha1 {
                sum,
                salt: Vec::new(),
            });
        }
        if let Some(sum) = text.strip_prefix("{SSHA}") {
            let sum = STANDARD.decode(sum).ok().filter(|sum| sum.len() > SHA1);
            let mut sum = sum.ok_or("{SSHA} is followed by 20 bytes and a salt in base64")?;
            let salt = sum.split_off(SHA1);
            return Ok(Hash::Sha1 { sum, salt });
        }
        for magic in ["$apr1$", "$1$"] {
            if let Some(rest) = text.strip_prefix(magic) {
                let (salt, sum) = rest
                    .split_once('$')
                    .filter(|(salt, sum)| salt.len() <= 8 && sum.len() == 22)
                    .ok_or("this is no complete MD5 hash")?;
                return Ok(Hash::Md5 {
                    magic,
                    salt: salt.to_owned(),
                    sum: sum.to_owned(),
                });
            }
        }
        if ["$2a$", "$2b$", "$2y$"]
            .iter()
            .any(|id| text.starts_with(id))
        {
            // 2^17 rounds take about ten seconds.
            let parts: bcrypt::HashParts = text
                .parse()
                .map_err(|_| "this is no complete bcrypt hash")?;
            return match parts.get_cost() {
                4..=17 => Ok(Hash::Bcrypt(text.to_owned())),
                _ => Err("the cost of a bcrypt hash must be from 4 to 17"),
            };
        }
        if text.starts_with("$5$") || text.starts_with("$6$") {
            let hash = Hash::ShaCrypt(text.to_owned());
            let rounds = text
                .split_once("rounds=")
                .and_then(|(_, rest)| rest.split('$').next()?.parse().ok())
                .unwrap_or(5000_u32);
            return match PasswordHashRef::new(text) {
                Ok(parts) if parts.fields().count() >= 2 && rounds <= 1_000_000 => Ok(hash),
                Ok(_) if rounds > 1_000_000 => Err("a SHA hash must have at most 1000000 rounds"),
                _ => Err("this is no complete SHA hash"),
            };
        }
        let unsupported = [
            "$2x$", "$y$", "$7$", "$gy$", "$argon2", "$scrypt$", "$pbkdf2",
        ];
        if unsupported.iter().any(|id| text.starts_with(id)) {
            return Err("this kind of hash is not supported; use bcrypt (`htpasswd -B`)");
        }
        match text {
            "" => Err("an empty password is not accepted"),
            // The hash would be the password.
            text if is_des(text) => Err(
                "this looks like a hash of DES, which is not supported; use bcrypt (`htpasswd -B`)",
            ),
            text => Ok(Hash::Plain(text.to_owned())),
        }
    }

    /// Whether checking takes longer than a worker that serves connections has: more than some microseconds.
    pub(super) fn is_slow(&self) -> bool {
        !matches!(self, Hash::Sha1 { .. } | Hash::Plain(_))
    }

    /// Whether it is this password. How long that takes does not depend on how much of it is right.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::ShaCrypt(hash) => PasswordHashRef::new(hash)
                .is_ok_and(|hash| ShaCrypt::default().verify_password(password, hash).is_ok()),
            Hash::Md5 { magic, salt, sum } => md5_crypt(password, magic, salt)
                .as_bytes()
                .ct_eq(sum.as_bytes())
                .into(),
            Hash::Sha1 { sum, salt } => {
                let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
                context.update(password);
                context.update(salt);
                context.finish().as_ref().ct_eq(sum).into()
            }
            Hash::Plain(expected) => {
                // Of equal lengths, whatever the passwords'.
                let sum = |text: &[u8]| digest::digest(&digest::SHA256, text);
                let (given, expected) = (sum(password), sum(expected.as_bytes()));
                given.as_ref().ct_eq(expected.as_ref()).into()
            }
        }
    }
}

/// Returns true for a text in the form of traditional crypt(3), DES: 13 characters of its alphabet, as random as a hash.
fn is_des(text: &str) -> bool {
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let has = |of: fn(&u8) -> bool| text.as_bytes().iter().any(of);
    text.len() == 13
        && text.bytes().all(alphabet)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(|byte| !byte.is_ascii_alphabetic())
}

/// Bytes of a SHA-1 sum.
const SHA1: usize = 20;

/// MD5-based crypt(3), as FreeBSD 2.0 had it; Apache's differs in the magic only.
fn md5_crypt(password: &[u8], magic: &str, salt: &str) -> String {
    let salt = salt.as_bytes();
    let sum = |parts: &[&[u8]]| -> [u8; 16] {
        let mut hasher = Md5::new();
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finalize().into()
    };
    let alternate = sum(&[password, salt, password]);
    let mut hasher = Md5::new();
    hasher.update(password);
    hasher.update(magic.as_bytes());
    hasher.update(salt);
    for chunk in password.chunks(alternate.len()) {
        hasher.update(alternate.get(..chunk.len()).unwrap_or_default());
    }
    let first = password.get(..1).unwrap_or_default();
    let mut bits = password.len();
    while bits != 0 {
        hasher.update(if bits & 1 == 1 { &[0] } else { first });
        bits >>= 1;
    }
    let mut last: [u8; 16] = hasher.finalize().into();
    for round in 0..1000 {
        let odd = round % 2 == 1;
        last = sum(&[
            if odd { password } else { &last },
            if round % 3 != 0 { salt } else { &[] },
            if round % 7 != 0 { password } else { &[] },
            if odd { &last } else { password },
        ]);
    }
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut out = String::with_capacity(22);
    for [high, middle, low] in ORDER {
        let bits = [high, middle, low].map(|at| u32::from(last[at]));
        letters(bits[0] << 16 | bits[1] << 8 | bits[2], 4, &mut out);
    }
    letters(u32::from(last[11]), 2, &mut out);
    out
}

/// Six bits a letter, the lowest first.
fn letters(mut bits: u32, count: usize, out: &mut String) {
    const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for _ in 0..count {
        out.push(char::from(LETTERS[(bits & 63) as usize]));
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a password of more than sixteen bytes: with colon";

    /// Made with `openssl passwd`, `openssl dgst` and crypt(3) of glibc.
    const MADE_ELSEWHERE: [(&str, &str); 14] = [
        ("secret", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
        ("", "$apr1$xY$bVMvpp8If4uUZ6OAspxni1"),
        (LONG, "$apr1$8.Z/ab12$cOralKp7Zx.UVCD..XQrB/"),
        ("secret", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
        (LONG, "$1$12$6wtd2dtxhiKT/RM0Zr.6A0"),
        (
            "secret",
            "$5$saltstring$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi.",
        ),
        (
            "secret",
            "$5$rounds=1000$saltstring$AH5PD0i.riCRu4BNDy9v7OPV7u3dfLBApcXI6khquVA",
        ),
        (
            "secret",
            "$6$saltstring$AIsRs/Ee56G/tC8MEHhvReZTfx8u3rXXMl6eYrjCG9ibix19DxoMBLogdTET5Ukw9Sf7eZTITsuk0Ry5qulYz.",
        ),
        (
            "secret",
            "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        ),
        (
            "secret",
            "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        ),
        (
            "secret",
            "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        ),
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "{SSHA}8bX4JQDfZqtTfvnQ4ssDmWb17/FTQUxU"),
        ("secret", "secret"),
    ];

    #[test]
    fn hashes_made_elsewhere_match_their_password_and_no_other() {
        for (password, text) in MADE_ELSEWHERE {
            let Ok(hash) = Hash::parse(text) else {
                panic!("{text} was not read");
            };
            assert!(hash.matches(password.as_bytes()), "{text}");
            for other in ["Secret", "secret ", "secre", text]
                .iter()
                .filter(|it| **it != password)
            {
                assert!(!hash.matches(other.as_bytes()), "{text}: {other}");
            }
            assert_eq!(hash.is_slow(), text.starts_with('$'), "{text}");
        }
    }

    #[test]
    fn what_is_no_hash_is_told_by_line_and_the_rest_counts() {
        let text = "
# comment: no user
plain:pass:word
  spaced:secret\r
no colon
:nameless
short:$2y$05$abc
costly:$2y$31$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a
md5:$apr1$toolongsalt$h9FWgUz3n9YxylKLlR5SQ/
sha:{SHA}AAAA
rounds:$5$rounds=999999999$salt$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi.
six:$6$
argon:$argon2id$v=19$m=1
empty:
des:rqXexS6ZhobKA
";
        let (entries, wrong) = parse(text);
        let users: Vec<&str> = entries.iter().map(|entry| entry.user).collect();
        assert_eq!(users, ["plain", "spaced"]);
        assert!(entries[0].hash.matches(b"pass:word"));
        assert!(entries[1].hash.matches(b"secret"));
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
