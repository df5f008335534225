//! Files of users and hashed passwords, as Apache's `htpasswd` writes them.

use ring::digest;
use subtle::ConstantTimeEq as _;

pub(super) struct Entry<'a> {
    /// The number of its line, from 1.
    pub(super) line: usize,
    pub(super) user: &'a str,
    pub(super) hash: Hash,
}

/// Stored form of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Hash {
    /// `$2a$`, `$2b$`, `$2y$`.
    Bcrypt(String),
    /// Plain text.
    Plain(String),
}

/// The reason why a line has no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoEntry {
    #[error("the line is not `user:hash`")]
    Form,
    #[error("an empty password is not accepted")]
    Empty,
    #[error("{0} is not supported; use bcrypt (`htpasswd -B`)")]
    Unsupported(&'static str),
    #[error("the bcrypt hash is incomplete")]
    Incomplete,
    #[error("the cost of a bcrypt hash must be from 4 to 17")]
    Cost,
}

/// The first characters of hashes other than bcrypt, and their names. Without this list such a hash would be accepted as a
/// password in plain text.
const UNSUPPORTED: [(&str, &str); 13] = [
    ("$apr1$", "an MD5 hash of Apache (`$apr1$`)"),
    ("$1$", "an MD5 hash (`$1$`)"),
    ("$5$", "a SHA-256 hash (`$5$`)"),
    ("$6$", "a SHA-512 hash (`$6$`)"),
    ("{SHA}", "a SHA-1 hash (`{SHA}`)"),
    ("{SSHA}", "a SHA-1 hash (`{SSHA}`)"),
    ("$2x$", "a hash of an old, defective bcrypt (`$2x$`)"),
    ("$y$", "a yescrypt hash (`$y$`)"),
    ("$gy$", "a yescrypt hash (`$gy$`)"),
    ("$7$", "an scrypt hash (`$7$`)"),
    ("$scrypt$", "an scrypt hash (`$scrypt$`)"),
    ("$argon2", "an Argon2 hash (`$argon2`)"),
    ("$pbkdf2", "a PBKDF2 hash (`$pbkdf2`)"),
];

/// Returns the users of a file, and the invalid lines with their numbers and reasons. Skips empty lines and lines
/// that begin with `#`.
pub(super) fn parse(text: &str) -> (Vec<Entry<'_>>, Vec<(usize, NoEntry)>) {
    let (mut entries, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = match line.split_once(':') {
            None | Some(("", _)) => Err(NoEntry::Form),
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
    /// Reads the text after the user and the colon. A text that does not look like a hash is the password itself, as in
    /// the Collector.
    fn parse(text: &str) -> Result<Self, NoEntry> {
        let is_bcrypt = |id: &&str| text.starts_with(*id);
        if ["$2a$", "$2b$", "$2y$"].iter().any(is_bcrypt) {
            let parts: bcrypt::HashParts = text.parse().map_err(|_| NoEntry::Incomplete)?;
            // 2^17 rounds take about ten seconds.
            return match parts.get_cost() {
                4..=17 => Ok(Hash::Bcrypt(text.to_owned())),
                _ => Err(NoEntry::Cost),
            };
        }
        let mut unsupported = UNSUPPORTED.iter();
        if let Some((_, name)) = unsupported.find(|(id, _)| text.starts_with(id)) {
            return Err(NoEntry::Unsupported(name));
        }
        match text {
            "" => Err(NoEntry::Empty),
            text if is_des(text) => Err(NoEntry::Unsupported("a DES hash")),
            text => Ok(Hash::Plain(text.to_owned())),
        }
    }

    /// Whether a check takes longer than some microseconds, which is too long for a worker that serves connections.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self, Hash::Bcrypt(_))
    }

    /// Whether the text is the password. The time of the comparison does not depend on the length of the correct prefix.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::Plain(expected) => {
                // Sums have equal lengths, even if the passwords do not.
                let sum = |text: &[u8]| digest::digest(&digest::SHA256, text);
                let (given, expected) = (sum(password), sum(expected.as_bytes()));
                given.as_ref().ct_eq(expected.as_ref()).into()
            }
        }
    }
}

/// Whether a text has the form of traditional crypt(3), DES: 13 characters of its alphabet, as random as a hash.
fn is_des(text: &str) -> bool {
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let has = |of: fn(&u8) -> bool| text.as_bytes().iter().any(of);
    text.len() == 13
        && text.bytes().all(alphabet)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(|byte| !byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with crypt(3) of glibc.
    const MADE_ELSEWHERE: [&str; 3] = [
        "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
    ];

    #[test]
    fn hash_matches_its_password_and_no_other() {
        for text in MADE_ELSEWHERE.into_iter().chain(["secret"]) {
            let Ok(hash) = Hash::parse(text) else {
                panic!("{text} was not read");
            };
            assert!(hash.matches(b"secret"), "{text}");
            for other in ["Secret", "secret ", "secre", MADE_ELSEWHERE[0]] {
                assert!(!hash.matches(other.as_bytes()), "{text}: {other}");
            }
            assert_eq!(hash.is_slow(), text.starts_with('$'), "{text}");
        }
    }

    #[test]
    fn other_hashes_are_refused_by_name() {
        for (text, name) in [
            (
                "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
                "MD5 hash of Apache",
            ),
            ("$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1", "MD5 hash"),
            (
                "$5$salt$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi.",
                "SHA-256",
            ),
            ("$6$", "SHA-512"),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "SHA-1"),
            ("{SSHA}8bX4JQDfZqtTfvnQ4ssDmWb17/FTQUxU", "SHA-1"),
            ("$argon2id$v=19$m=1", "Argon2"),
            ("rqXexS6ZhobKA", "DES"),
        ] {
            let message = Hash::parse(text).err().map(|error| error.to_string());
            let message = message.unwrap_or_default();
            assert!(message.contains(name), "{text}: {message}");
            assert!(message.contains("`htpasswd -B`"), "{text}: {message}");
        }
    }

    #[test]
    fn invalid_line_is_reported_and_valid_lines_count() {
        let text = "
# comment: no user
plain:pass:word
  spaced:secret\r
no colon
:nameless
short:$2y$05$abc
costly:$2y$31$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a
md5:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/
empty:
";
        let (entries, wrong) = parse(text);
        let users: Vec<&str> = entries.iter().map(|entry| entry.user).collect();
        assert_eq!(users, ["plain", "spaced"]);
        assert!(entries[0].hash.matches(b"pass:word"));
        assert!(entries[1].hash.matches(b"secret"));
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [5, 6, 7, 8, 9, 10]);
    }
}
