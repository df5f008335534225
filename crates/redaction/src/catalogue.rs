//! Built-in detectors and their names, detector ids, and counts of hits.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A built-in detector. If two detectors find something at the same place, the one listed first names the hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detector {
    /// PEM blocks of private keys, with or without their end.
    PrivateKey,
    /// JSON Web Tokens: three parts, and the first decodes to a JSON object with `alg` (RFC 7519).
    Jwt,
    /// AWS access key ids (`AKIA...`, `ASIA...` and the rarer prefixes).
    AwsAccessKey,
    /// AWS secret access keys, after the name of such a key or after an access key id.
    AwsSecretKey,
    /// Google Cloud API keys (`AIza...`).
    GcpApiKey,
    /// Azure keys: storage account and shared access keys, shared access signatures, client secrets.
    AzureKey,
    /// GitHub tokens. A token of a kind with a checksum is verified if it resembles a placeholder.
    GithubToken,
    /// GitLab tokens (`glpat-` and similar prefixes).
    GitlabToken,
    /// npm access tokens (`npm_`).
    NpmToken,
    /// PyPI upload tokens (`pypi-`).
    PypiToken,
    /// Slack tokens and webhook URLs.
    SlackToken,
    /// Stripe secret and restricted keys, and webhook secrets.
    StripeKey,
    /// `Basic` credentials that decode to `user:password` (RFC 7617).
    BasicAuth,
    /// `Bearer` credentials (RFC 6750).
    BearerToken,
    /// User and password, or a token alone, in the authority of a URL (RFC 3986, section 3.2.1).
    UrlCredentials,
    /// Values after names such as `password=`, `api_key:`, `"token":`.
    AssignedSecret,
    /// E-mail addresses.
    Email,
    /// International bank account numbers with a known country, its length and a valid modulo 97 checksum (ISO
    /// 13616).
    Iban,
    /// Card numbers with a known prefix, a length of that issuer and a valid Luhn checksum; digits alone or grouped
    /// (ISO/IEC 7812).
    CreditCard,
    /// US social security numbers in their groups, except numbers that are never issued.
    UsSsn,
    /// MAC addresses of 6 bytes.
    MacAddress,
    /// IPv4 and IPv6 addresses, except loopback and unspecified ones such as 127.0.0.1 and `::1`.
    IpAddress,
    /// Telephone numbers: E.164, and common national forms.
    Phone,
    /// Home directories: `/home/NAME`, `/Users/NAME`, `C:\Users\NAME`.
    HomeDirectory,
    /// Long tokens that look random. Finds secrets unknown to other detectors, but also ids; off unless listed.
    HighEntropy,
}

impl Detector {
    /// All detectors, by priority.
    pub const ALL: [Detector; 25] = [
        Detector::PrivateKey,
        Detector::Jwt,
        Detector::AwsAccessKey,
        Detector::AwsSecretKey,
        Detector::GcpApiKey,
        Detector::AzureKey,
        Detector::GithubToken,
        Detector::GitlabToken,
        Detector::NpmToken,
        Detector::PypiToken,
        Detector::SlackToken,
        Detector::StripeKey,
        Detector::BasicAuth,
        Detector::BearerToken,
        Detector::UrlCredentials,
        Detector::AssignedSecret,
        Detector::Email,
        Detector::Iban,
        Detector::CreditCard,
        Detector::UsSsn,
        Detector::MacAddress,
        Detector::IpAddress,
        Detector::Phone,
        Detector::HomeDirectory,
        Detector::HighEntropy,
    ];

    /// Returns the detectors that are on by default: all except `high_entropy`.
    pub fn usual() -> impl Iterator<Item = Detector> {
        let all = Detector::ALL.into_iter();
        all.filter(|detector| *detector != Detector::HighEntropy)
    }

    /// Returns the id of the detector, the same in every scanner.
    pub fn id(self) -> DetectorId {
        DetectorId(self as u8)
    }

    /// Returns the name of the detector in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Detector::PrivateKey => "private_key",
            Detector::Jwt => "jwt",
            Detector::AwsAccessKey => "aws_access_key",
            Detector::AwsSecretKey => "aws_secret_key",
            Detector::GcpApiKey => "gcp_api_key",
            Detector::AzureKey => "azure_key",
            Detector::GithubToken => "github_token",
            Detector::GitlabToken => "gitlab_token",
            Detector::NpmToken => "npm_token",
            Detector::PypiToken => "pypi_token",
            Detector::SlackToken => "slack_token",
            Detector::StripeKey => "stripe_key",
            Detector::BasicAuth => "basic_auth",
            Detector::BearerToken => "bearer_token",
            Detector::UrlCredentials => "url_credentials",
            Detector::AssignedSecret => "assigned_secret",
            Detector::Email => "email",
            Detector::Iban => "iban",
            Detector::CreditCard => "credit_card",
            Detector::UsSsn => "us_ssn",
            Detector::MacAddress => "mac_address",
            Detector::IpAddress => "ip_address",
            Detector::Phone => "phone",
            Detector::HomeDirectory => "home_directory",
            Detector::HighEntropy => "high_entropy",
        }
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Identifies a detector of a scanner. Ids below [`Detector::ALL`]`.len()` are built-in detectors
/// ([`Detector::id`]); higher ids are custom detectors in the order of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DetectorId(pub(super) u8);

impl DetectorId {
    /// Maximum number of detectors of a scanner.
    pub const COUNT: usize = 64;
    /// Maximum number of custom detectors of a scanner.
    pub const CUSTOM: usize = DetectorId::COUNT - Detector::ALL.len();

    /// Returns the id of the custom detector at a position of the configuration, or `None` beyond the maximum.
    pub fn custom(position: usize) -> Option<DetectorId> {
        let index = Detector::ALL.len().checked_add(position)?;
        let index = u8::try_from(index).ok()?;
        (usize::from(index) < DetectorId::COUNT).then_some(DetectorId(index))
    }

    /// Index for tables, below [`DetectorId::COUNT`].
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// Hits per detector. Contains counts only, never text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hits {
    counts: [u32; DetectorId::COUNT],
    /// Bits, one per detector with hits, so that the usual empty case is one comparison.
    present: u64,
}

impl Default for Hits {
    fn default() -> Self {
        Hits {
            counts: [0; DetectorId::COUNT],
            present: 0,
        }
    }
}

impl Hits {
    /// Adds one hit of `id`.
    pub fn add(&mut self, id: DetectorId) {
        if let Some(count) = self.counts.get_mut(id.index()) {
            *count = count.saturating_add(1);
            self.present |= 1 << id.0;
        }
    }

    /// Returns the number of hits of `id`.
    pub fn count(&self, id: DetectorId) -> u32 {
        self.counts.get(id.index()).copied().unwrap_or_default()
    }

    /// Whether there are no hits.
    pub fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// Returns the detectors with hits and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DetectorId, u32)> + '_ {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let id = DetectorId(u8::try_from(left.trailing_zeros()).ok()?);
            left = left.checked_sub(1)? & left;
            Some((id, self.count(id)))
        })
    }

    /// Resets all counts.
    pub fn clear(&mut self) {
        *self = Hits::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detector_names_ids_and_order_agree() {
        for (position, detector) in Detector::ALL.into_iter().enumerate() {
            assert_eq!(detector.id().index(), position);
            let name = serde_json::to_value(detector).unwrap();
            assert_eq!(name, detector.name());
        }
    }

    #[test]
    fn hits_are_counted_by_detector() {
        let mut hits = Hits::default();
        assert!(hits.is_empty());
        assert_eq!(hits.iter().count(), 0);
        hits.add(Detector::Phone.id());
        hits.add(DetectorId(63));
        hits.add(Detector::Phone.id());
        let found: Vec<_> = hits.iter().collect();
        assert_eq!(found, [(Detector::Phone.id(), 2), (DetectorId(63), 1)]);
        hits.clear();
        assert!(hits.is_empty());
    }
}
