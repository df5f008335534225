//! The detectors by name.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A built-in detector. Where two of them find something at the same place, the one that is listed first names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detector {
    /// PEM blocks of private keys, with or without their end.
    PrivateKey,
    /// JSON Web Tokens: three parts, and the first decodes to a JSON object with `alg` (RFC 7519).
    Jwt,
    /// Access key ids of AWS (`AKIA...`, `ASIA...` and the rarer prefixes).
    AwsAccessKey,
    /// Secret access keys of AWS, behind the name of such a key or behind an access key id.
    AwsSecretKey,
    /// API keys of Google Cloud (`AIza...`).
    GcpApiKey,
    /// Keys of Azure: of storage accounts and shared access, signatures of shared access, client secrets.
    AzureKey,
    /// Tokens of GitHub; those with a checksum must have the right one.
    GithubToken,
    /// Tokens of GitLab (`glpat-` and the like).
    GitlabToken,
    /// Access tokens of npm (`npm_`).
    NpmToken,
    /// Upload tokens of PyPI (`pypi-`).
    PypiToken,
    /// Tokens and web hooks of Slack.
    SlackToken,
    /// Secret and restricted keys of Stripe, and the secrets of its web hooks.
    StripeKey,
    /// `Basic` credentials: what follows decodes to `user:password` (RFC 7617).
    BasicAuth,
    /// `Bearer` credentials (RFC 6750).
    BearerToken,
    /// User and password, or a token alone, in the authority of a URL (RFC 3986, section 3.2.1).
    UrlCredentials,
    /// Values behind names such as `password=`, `api_key:`, `"token":`.
    AssignedSecret,
    /// E-mail addresses.
    Email,
    /// International bank account numbers: known country, its length, checksum 97 (ISO 13616).
    Iban,
    /// Card numbers: known prefix, its lengths, Luhn checksum; digits alone or grouped (ISO/IEC 7812).
    CreditCard,
    /// Social security numbers of the US, in their groups, without those that are never given out.
    UsSsn,
    /// MAC addresses of 6 bytes.
    MacAddress,
    /// Addresses of IP version 4 and 6; not those that belong to nobody, such as 127.0.0.1 and `::1`.
    IpAddress,
    /// Telephone numbers: E.164, and common national forms.
    Phone,
    /// Home directories: `/home/NAME`, `/Users/NAME`, `C:\Users\NAME`.
    HomeDirectory,
    /// Long tokens that look random. Finds what no other detector knows, and ids too: off unless listed.
    HighEntropy,
}

impl Detector {
    /// All of them, by priority.
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

    /// All but `high_entropy`.
    pub fn usual() -> impl Iterator<Item = Detector> {
        let all = Detector::ALL.into_iter();
        all.filter(|detector| *detector != Detector::HighEntropy)
    }

    /// Its id, the same in every scanner.
    pub fn id(self) -> DetectorId {
        DetectorId(self as u8)
    }

    /// Its name in the configuration and in metrics.
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

/// A detector of a scanner, built in or custom. Below [`Detector::ALL`]`.len()`: [`Detector::id`]; from there on the
/// custom ones, in the order of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DetectorId(pub(super) u8);

impl DetectorId {
    /// How many there can be.
    pub const COUNT: usize = 64;
    /// How many custom ones a scanner can have.
    pub const CUSTOM: usize = DetectorId::COUNT - Detector::ALL.len();

    /// The custom detector at a position of the configuration, if there can be one.
    pub fn custom(position: usize) -> Option<DetectorId> {
        let index = Detector::ALL.len().checked_add(position)?;
        let index = u8::try_from(index).ok()?;
        (usize::from(index) < DetectorId::COUNT).then_some(DetectorId(index))
    }

    /// From 0 to [`DetectorId::COUNT`], for tables.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// How often each detector has found something. Counts only: no text is ever kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hits {
    counts: [u32; DetectorId::COUNT],
    /// One bit per detector, so that the usual "none" is one comparison.
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
    /// Adds one.
    pub fn add(&mut self, id: DetectorId) {
        if let Some(count) = self.counts.get_mut(id.index()) {
            *count = count.saturating_add(1);
            self.present |= 1 << id.0;
        }
    }

    /// How often `id` has found something.
    pub fn count(&self, id: DetectorId) -> u32 {
        self.counts.get(id.index()).copied().unwrap_or_default()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// Those that have found something, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (DetectorId, u32)> + '_ {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let id = DetectorId(u8::try_from(left.trailing_zeros()).ok()?);
            left = left.checked_sub(1)? & left;
            Some((id, self.count(id)))
        })
    }

    /// Forgets all counts.
    pub fn clear(&mut self) {
        *self = Hits::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ids_and_the_order_of_the_list_agree() {
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
