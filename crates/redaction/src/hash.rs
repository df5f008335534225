//! Hash functions of the Collector's redaction processor, printed as lower-case hexadecimal digits.

use std::fmt;
use std::fmt::Write;

use md5::Digest;
use ring::{digest, hmac};

use super::SettingsError;
use super::settings::HashFunction;
use tributary_config::Secret;

/// A hash function with its key, if any. Never displays the key.
#[derive(Clone)]
pub struct Hasher {
    function: HashFunction,
    key: Option<hmac::Key>,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hasher({:?})", self.function)
    }
}

impl Hasher {
    /// Prepares a hash function. `key` applies to keyed functions only.
    ///
    /// # Errors
    ///
    /// Fails if the function needs a key and `key` is shorter than its hash: 32 bytes for HMAC-SHA-256, 64
    /// for HMAC-SHA-512 (RFC 2104, section 3; the Collector's limits).
    pub fn new(function: HashFunction, key: &Secret) -> Result<Hasher, SettingsError> {
        let keyed = |algorithm: hmac::Algorithm, name| {
            let least = algorithm.digest_algorithm().output_len();
            let key = key.reveal().as_bytes();
            if key.len() < least {
                return Err(SettingsError::Key {
                    function: name,
                    least,
                    actual: key.len(),
                });
            }
            Ok(Some(hmac::Key::new(algorithm, key)))
        };
        let key = match function {
            HashFunction::HmacSha256 => keyed(hmac::HMAC_SHA256, "hmac-sha256")?,
            HashFunction::HmacSha512 => keyed(hmac::HMAC_SHA512, "hmac-sha512")?,
            HashFunction::Md5 | HashFunction::Sha1 | HashFunction::Sha3 => None,
        };
        Ok(Hasher { function, key })
    }

    /// Returns the hash of a text in hexadecimal digits: 32 for MD5, 40 for SHA-1, 128 for HMAC-SHA-512, 64 for the
    /// other functions.
    pub fn hex(&self, text: &str) -> String {
        let text = text.as_bytes();
        match (&self.key, self.function) {
            (Some(key), _) => hex(hmac::sign(key, text).as_ref()),
            (None, HashFunction::Md5) => hex(&md5::Md5::digest(text)),
            (None, HashFunction::Sha1) => {
                hex(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text).as_ref())
            }
            (None, _) => hex(&sha3::Sha3_256::digest(text)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_reference_values() {
        // From the test suites of FIPS 202, RFC 1321, FIPS 180 and RFC 4231 (case 7 has a sufficiently long key).
        let hash = |function| {
            let hasher = Hasher::new(function, &Secret::default()).unwrap();
            hasher.hex("abc")
        };
        assert_eq!(hash(HashFunction::Md5), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            hash(HashFunction::Sha1),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert_eq!(
            hash(HashFunction::Sha3),
            "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"
        );
    }

    #[test]
    fn too_short_key_is_refused_and_masked() {
        let key = Secret::from("sesame");
        let error = Hasher::new(HashFunction::HmacSha256, &key).unwrap_err();
        assert_eq!(
            error.to_string(),
            "hmac_key must be at least 32 bytes long for hmac-sha256, and has 6"
        );
        let key = Secret::from("sesame-sesame-sesame-sesame-sesame-sesame");
        let hasher = Hasher::new(HashFunction::HmacSha256, &key).unwrap();
        assert!(!format!("{hasher:?}").contains("sesame"));
        assert_eq!(hasher.hex("abc").len(), 64);
        assert_ne!(hasher.hex("abc"), hasher.hex("abd"));
        assert!(Hasher::new(HashFunction::HmacSha512, &key).is_err());
    }
}
