//! TLS versions, cipher suites and curves.

use std::sync::Arc;

use rustls::crypto::ring::{self, cipher_suite as suite, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::config::TlsVersion;
use super::error::{TlsError, problem};

/// All suites by Go's names, most preferred first. The order is Go's, except that AES-128 precedes AES-256, which costs
/// more without practical benefit.
static SUITES: [(&str, TlsVersion, SupportedCipherSuite); 9] = [
    (
        "TLS_AES_128_GCM_SHA256",
        TlsVersion::V1_3,
        suite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_AES_256_GCM_SHA384",
        TlsVersion::V1_3,
        suite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        TlsVersion::V1_3,
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        TlsVersion::V1_2,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        TlsVersion::V1_2,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        TlsVersion::V1_2,
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        TlsVersion::V1_2,
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        TlsVersion::V1_2,
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        TlsVersion::V1_2,
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The part of a section that selects protocol parameters.
pub(super) struct Parameters<'a> {
    pub(super) min: Option<TlsVersion>,
    pub(super) max: Option<TlsVersion>,
    pub(super) suites: &'a [String],
    pub(super) insecure_suites: bool,
    pub(super) curves: &'a [String],
}

impl Parameters<'_> {
    /// Returns the versions from the minimum to the maximum.
    ///
    /// # Errors
    /// The range is empty.
    pub(super) fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
        let (min, max) = self.range()?;
        let all = [
            (TlsVersion::V1_2, &rustls::version::TLS12),
            (TlsVersion::V1_3, &rustls::version::TLS13),
        ];
        let within = all
            .into_iter()
            .filter(|(version, _)| (min..=max).contains(version));
        Ok(within.map(|(_, version)| version).collect())
    }

    /// Returns the ring provider with the configured suites and curves.
    ///
    /// # Errors
    /// A suite or curve is not supported.
    pub(super) fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        self.check_insecure()?;
        Ok(Arc::new(CryptoProvider {
            cipher_suites: self.cipher_suites()?,
            kx_groups: self.kx_groups()?,
            ..ring::default_provider()
        }))
    }

    pub(super) fn mistakes(&self) -> Vec<TlsError> {
        let found = [
            self.range().map(drop),
            self.check_insecure(),
            self.cipher_suites().map(drop),
            self.kx_groups().map(drop),
        ];
        found.into_iter().filter_map(Result::err).collect()
    }

    fn check_insecure(&self) -> Result<(), TlsError> {
        match self.insecure_suites {
            true => {
                let reason = "insecure cipher suites are not supported; remove this key";
                Err(problem("include_insecure_cipher_suites", reason))
            }
            false => Ok(()),
        }
    }

    /// Returns a warning about listed suites that can never be used.
    pub(super) fn idle_suites(&self) -> Option<String> {
        let (min, _) = self.range().ok()?;
        let old = |name: &&String| version_of(name) == Some(TlsVersion::V1_2);
        match (min, self.suites.iter().find(old)) {
            (TlsVersion::V1_3, Some(name)) => Some(format!(
                "{name} is a TLS 1.2 suite, and min_version disables TLS 1.2, so it has no effect"
            )),
            _ => None,
        }
    }

    fn range(&self) -> Result<(TlsVersion, TlsVersion), TlsError> {
        let max = self.max.unwrap_or(TlsVersion::V1_3);
        let min = self.min.unwrap_or(TlsVersion::V1_2);
        match min > max {
            true => Err(problem("min_version", "must not be above max_version")),
            false => Ok((min, max)),
        }
    }

    /// Returns the suites. Go has no settings for TLS 1.3, so a list written for Go contains only suites of TLS 1.2 and
    /// must not disable TLS 1.3.
    fn cipher_suites(&self) -> Result<Vec<SupportedCipherSuite>, TlsError> {
        for name in self.suites {
            if version_of(name).is_none() {
                let known: Vec<_> = SUITES.iter().map(|(name, ..)| *name).collect();
                let reason = format!(
                    "`{name}` is not a supported cipher suite; use: {}",
                    known.join(", ")
                );
                return Err(problem("cipher_suites", reason));
            }
        }
        let mut chosen = Vec::with_capacity(SUITES.len());
        for version in [TlsVersion::V1_3, TlsVersion::V1_2] {
            let of_version = || SUITES.iter().filter(move |(_, of, _)| *of == version);
            let named = self
                .suites
                .iter()
                .filter_map(|name| of_version().find(|(known, ..)| known == name));
            let before = chosen.len();
            chosen.extend(named.map(|(.., suite)| *suite));
            if chosen.len() == before {
                chosen.extend(of_version().map(|(.., suite)| *suite));
            }
        }
        Ok(chosen)
    }

    fn kx_groups(&self) -> Result<Vec<&'static dyn SupportedKxGroup>, TlsError> {
        if self.curves.is_empty() {
            return Ok(ring::ALL_KX_GROUPS.to_vec());
        }
        let group = |name: &String| match name.as_str() {
            "X25519" => Ok(kx_group::X25519),
            "P256" => Ok(kx_group::SECP256R1),
            "P384" => Ok(kx_group::SECP384R1),
            _ => {
                let reason = format!("`{name}` is not supported; use: X25519, P256, P384");
                Err(problem("curve_preferences", reason))
            }
        };
        self.curves.iter().map(group).collect()
    }
}

fn version_of(name: &str) -> Option<TlsVersion> {
    let found = SUITES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, version, _)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(names: &[&str]) -> Result<Vec<String>, TlsError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let parameters = Parameters {
            min: None,
            max: None,
            suites: &names,
            insecure_suites: false,
            curves: &[],
        };
        let chosen = parameters.cipher_suites()?;
        Ok(chosen
            .iter()
            .map(|suite| format!("{:?}", suite.suite()))
            .collect())
    }

    #[test]
    fn every_suite_of_the_library_has_a_name() {
        for known in ring::ALL_CIPHER_SUITES {
            assert!(SUITES.iter().any(|(.., suite)| suite == known), "{known:?}");
        }
        for (name, version, suite) in SUITES {
            let text = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(name, text);
            assert_eq!(suite.tls13().is_some(), version == TlsVersion::V1_3);
        }
    }

    #[test]
    fn suites_are_selected_per_version() {
        let old = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        let chosen = suites(&[old]).unwrap();
        assert_eq!(chosen.len(), 4, "all of TLS 1.3 and the one named");
        assert_eq!(chosen.last().unwrap(), old);
        let chosen = suites(&["TLS_CHACHA20_POLY1305_SHA256"]).unwrap();
        assert_eq!(chosen.first().unwrap(), "TLS13_CHACHA20_POLY1305_SHA256");
        assert_eq!(chosen.len(), 1 + 6);
        let error = suites(&["TLS_RSA_WITH_RC4_128_SHA"]).unwrap_err();
        assert_eq!(error.key, "cipher_suites");
        assert!(error.reason.contains("use: TLS_AES_128"), "{error}");
    }
}
