//! Build ids, which identify binaries.

use std::fmt;
use std::str::FromStr;

/// The build id of a binary: the content of its `NT_GNU_BUILD_ID` note, or an id derived from Go's build id.
///
/// Build ids come from telemetry, untrusted files and URLs, and become parts of paths and URLs. Therefore an id is
/// stored as bytes and always written as lower-case hexadecimal digits, which cannot leave a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// Minimum length in bytes. Linkers write 8 (fast), 16 (md5, uuid) or 20 (sha1); 4 allows ids chosen by hand.
    pub const MIN_LENGTH: usize = 4;
    /// Maximum length in bytes: the length of SHA-512.
    pub const MAX_LENGTH: usize = 64;

    /// Creates an id from its bytes.
    ///
    /// # Errors
    /// Fails for fewer than [`MIN_LENGTH`](Self::MIN_LENGTH) or more than [`MAX_LENGTH`](Self::MAX_LENGTH) bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BuildIdError> {
        match bytes.len() {
            Self::MIN_LENGTH..=Self::MAX_LENGTH => Ok(BuildId(bytes.into())),
            length => Err(BuildIdError::Length(length)),
        }
    }

    /// Derives an id for a Go binary without a GNU build id: the SHA-256 of the Go build id. The Go build id is text of
    /// any length with slashes in it (`action/main/package/content`).
    pub fn from_go(id: &str) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
        BuildId(digest.as_ref().into())
    }

    /// Derives an id from the hexadecimal digits of a Go build id, as written by agents that support only GNU build
    /// ids. Returns `None` for other ids.
    pub fn from_go_digits(digits: &str) -> Option<Self> {
        // A Go build id has about 83 characters.
        if digits.len() > 512 {
            return None;
        }
        let text = String::from_utf8(bytes(digits)?).ok()?;
        // Longer than a digest that resembles text by chance.
        let is_go = text.len() > 32
            && text.contains('/')
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_go.then(|| BuildId::from_go(&text))
    }

    /// Bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for BuildId {
    type Err = BuildIdError;

    /// Parses hexadecimal digits in either case.
    fn from_str(text: &str) -> Result<Self, BuildIdError> {
        // Checked before any allocation.
        if text.len() > 2 * Self::MAX_LENGTH {
            return Err(BuildIdError::Length(text.len() / 2));
        }
        match bytes(text) {
            Some(bytes) => Self::from_bytes(&bytes),
            None => Err(BuildIdError::NotHexadecimal),
        }
    }
}

/// Parses pairs of hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| {
        let value = char::from(digit).to_digit(16);
        value.and_then(|value| u8::try_from(value).ok())
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect::<Option<_>>().filter(|_| rest.is_empty())
}

impl fmt::Display for BuildId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BuildId({self})")
    }
}

/// The reason why bytes or text are not a build id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildIdError {
    /// The number of bytes is too small or too large.
    #[error("invalid build id: {0} bytes, must be 4 to 64")]
    Length(usize),
    /// The text does not consist of pairs of hexadecimal digits.
    #[error("invalid build id: not pairs of hexadecimal digits")]
    NotHexadecimal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_normalized_to_lower_case() {
        let id: BuildId = "DEADbeef01".parse().unwrap();
        assert_eq!(id.as_bytes(), [0xde, 0xad, 0xbe, 0xef, 1]);
        assert_eq!(id.to_string(), "deadbeef01");
        assert_eq!(format!("{id:?}"), "BuildId(deadbeef01)");
        assert_eq!(BuildId::from_bytes(id.as_bytes()).unwrap(), id);
    }

    #[test]
    fn go_build_id_in_hexadecimal_is_equal() {
        let id = "aY3tXkYbqGfZ/8p0Qz-1hVJb3/S5o2/PZ_6W1bS";
        let digits: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(BuildId::from_go_digits(&digits), Some(BuildId::from_go(id)));
        let (cut, short) = (&digits[1..], &digits[..64]);
        for other in [id, cut, short, "deadbeef", ""] {
            assert_eq!(BuildId::from_go_digits(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_build_id_is_refused() {
        for text in [
            "../../etc/passwd",
            "abcdef0/",
            "abcdefg0",
            "abcdef012",
            "+1+1+1+1",
            " abcdef01",
            "\u{661}\u{661}\u{661}\u{661}",
        ] {
            assert_eq!(
                text.parse::<BuildId>(),
                Err(BuildIdError::NotHexadecimal),
                "{text}"
            );
        }
        for (digits, length) in [(0, 0), (6, 3), (130, 65), (1 << 20, 1 << 19)] {
            let error = "a".repeat(digits).parse::<BuildId>();
            assert_eq!(error, Err(BuildIdError::Length(length)));
        }
    }

    #[test]
    fn go_build_id_is_sha256_of_its_text() {
        // printf 'a/b' | sha256sum
        assert_eq!(
            BuildId::from_go("a/b").to_string(),
            "c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11"
        );
    }
}
