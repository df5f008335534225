//! Certificate fields, for messages, gauges and the peer's identity.
//!
//! This module does not decide about trust, which is webpki's task. The texts come from the creator of the certificate,
//! so they are made printable and short.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer, ParsedExtension, X509Certificate, X509Name};

pub use super::names::Name;
use super::names::Pattern;

/// Maximum length in bytes of a text from a certificate.
pub const LONGEST_TEXT: usize = 256;
/// Maximum number of names kept from one certificate.
const MAX_NAMES: usize = 256;

/// Fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFields {
    /// Subject as `CN=a, O=b`; empty if the certificate has no subject.
    pub subject: String,
    /// Issuer, in the same form.
    pub issuer: String,
    /// Common name alone.
    pub common_name: Option<String>,
    /// Serial number in hexadecimal, bytes separated by colons, as openssl prints it.
    pub serial: String,
    /// Start of the validity period.
    pub not_before: SystemTime,
    /// End of the validity period.
    pub not_after: SystemTime,
    /// Subject alternative names, in the certificate's order.
    pub names: Vec<Name>,
    /// Whether the certificate may sign other certificates.
    pub is_authority: bool,
}

/// Error if a certificate cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate: {0}")]
pub struct CertificateError(String);

/// Parses the fields of a certificate without verifying it.
///
/// # Errors
/// The bytes are not a certificate.
pub fn describe(der: &CertificateDer<'_>) -> Result<CertificateFields, CertificateError> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| CertificateError(error.to_string()))?;
    let validity = certificate.validity();
    let mut names = Vec::new();
    let mut is_authority = false;
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(alternative) => {
                let found = alternative.general_names.iter();
                names.extend(found.filter_map(|general| name(general, printable)));
            }
            ParsedExtension::BasicConstraints(constraints) => is_authority = constraints.ca,
            _ => {}
        }
    }
    names.truncate(MAX_NAMES);
    let common_name = certificate.subject().iter_common_name().next();
    Ok(CertificateFields {
        subject: distinguished(certificate.subject()),
        issuer: distinguished(certificate.issuer()),
        common_name: common_name
            .and_then(|name| name.as_str().ok())
            .map(printable),
        serial: printable(&certificate.raw_serial_as_string()),
        not_before: moment(validity.not_before),
        not_after: moment(validity.not_after),
        names,
        is_authority,
    })
}

/// Returns the end of the validity period, or `None` if the certificate cannot be parsed.
pub(super) fn not_after(der: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(moment(certificate.validity().not_after))
}

/// Whether `wanted` accepts any subject alternative name, exactly as written. False if the certificate cannot be
/// parsed.
pub(super) fn any_name(der: &CertificateDer<'_>, mut wanted: impl FnMut(&Name) -> bool) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return false;
    };
    let extensions = certificate.extensions().iter();
    let mut alternatives = extensions.filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(alternative) => Some(alternative),
        _ => None,
    });
    alternatives.any(|alternative| {
        let names = alternative.general_names.iter();
        names
            .filter_map(|general| name(general, str::to_owned))
            .any(|name| wanted(&name))
    })
}

impl CertificateFields {
    /// Returns the client's identity if only `allowed` names may connect: the first allowed URI, else the first allowed
    /// host name. If `allowed` is empty, this is the [`identity`](Self::identity).
    pub(super) fn identity_among(&self, allowed: &[Pattern]) -> Option<&str> {
        let matching = || {
            let names = self.names.iter();
            names.filter(|name| allowed.iter().any(|pattern| pattern.matches(name)))
        };
        let uri = matching().find_map(|name| match name {
            Name::Uri(uri) => Some(uri.as_str()),
            _ => None,
        });
        let dns = || {
            matching().find_map(|name| match name {
                Name::Dns(dns) => Some(dns.as_str()),
                _ => None,
            })
        };
        uri.or_else(dns).or_else(|| self.identity())
    }

    /// Returns the identity: the first URI (a SPIFFE id), else the first host name, else the common name.
    pub fn identity(&self) -> Option<&str> {
        let uri = self.names.iter().find_map(|name| match name {
            Name::Uri(uri) => Some(uri.as_str()),
            _ => None,
        });
        let dns = || {
            self.names.iter().find_map(|name| match name {
                Name::Dns(dns) => Some(dns.as_str()),
                _ => None,
            })
        };
        let found = uri.or_else(dns).or(self.common_name.as_deref());
        found.filter(|identity| !identity.is_empty())
    }

    /// Returns a title for messages: the subject, else the identity, else the serial number.
    pub fn title(&self) -> String {
        match (self.subject.as_str(), self.identity()) {
            ("", Some(identity)) => format!("\"{identity}\""),
            ("", None) => format!("number {}", self.serial),
            (subject, _) => format!("\"{subject}\""),
        }
    }

    /// Returns the names for messages: `a, b, c`, or `none`.
    pub fn names_listed(&self) -> String {
        let mut list = String::new();
        for (at, name) in self.names.iter().enumerate() {
            if at == NAMES_SHOWN {
                let _ = write!(list, " and {} more", self.names.len() - at);
                break;
            }
            let _ = write!(list, "{}{name}", if at == 0 { "" } else { ", " });
        }
        match list.is_empty() {
            true => "none".to_owned(),
            false => list,
        }
    }
}

fn name(general: &GeneralName<'_>, text: impl Fn(&str) -> String) -> Option<Name> {
    match general {
        GeneralName::URI(uri) => Some(Name::Uri(text(uri))),
        GeneralName::DNSName(dns) => Some(Name::Dns(text(dns))),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| Ipv4Addr::from(bytes).into());
            let v6 = || <[u8; 16]>::try_from(*bytes).map(|bytes| Ipv6Addr::from(bytes).into());
            v4.or_else(|_| v6()).ok().map(Name::Ip)
        }
        _ => None,
    }
}

fn distinguished(name: &X509Name<'_>) -> String {
    printable(&name.to_string())
}

pub(super) fn moment(time: ASN1Time) -> SystemTime {
    let seconds = time.timestamp();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let moment = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(distance),
        false => SystemTime::UNIX_EPOCH.checked_add(distance),
    };
    moment.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Formats a moment as `2026-07-01 12:00:00 UTC`.
pub fn date(moment: SystemTime) -> String {
    let seconds = match moment.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()),
        Err(before) => i64::try_from(before.duration().as_secs()).map(|seconds| -seconds),
    };
    let parsed = seconds
        .ok()
        .and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    match parsed.map(|time| time.to_datetime()) {
        None => "a date out of range".to_owned(),
        Some(time) => format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
            time.year(),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute(),
            time.second()
        ),
    }
}

/// Escapes everything but printable ASCII, and cuts the text to [`LONGEST_TEXT`] bytes. The backslash is escaped too,
/// so that different short texts stay different.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(LONGEST_TEXT));
    for character in text.chars() {
        let before = shown.len();
        match character {
            ' '..='~' if character != '\\' => shown.push(character),
            _ => shown.extend(character.escape_default()),
        }
        if shown.len() > LONGEST_TEXT {
            shown.truncate(before.min(LONGEST_TEXT - 3));
            shown.push_str("...");
            break;
        }
    }
    shown
}

/// Maximum number of names listed in a message.
const NAMES_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn fields(common_name: &str, names: Vec<SanType>) -> CertificateFields {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !common_name.is_empty() {
            params
                .distinguished_name
                .push(DnType::CommonName, common_name);
        }
        params.subject_alt_names = names;
        params.not_before = rcgen::date_time_ymd(2020, 1, 2);
        params.not_after = rcgen::date_time_ymd(2031, 12, 31);
        params.serial_number = Some(vec![1, 2, 0xab].into());
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        describe(certificate.der()).unwrap()
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(Ia5String::try_from(text).unwrap())
    }

    fn dns(text: &str) -> SanType {
        SanType::DnsName(Ia5String::try_from(text).unwrap())
    }

    #[test]
    fn certificate_fields_have_names_and_validity() {
        let fields = fields(
            "agent",
            vec![dns("a.example"), SanType::IpAddress([10, 0, 0, 1].into())],
        );
        assert_eq!(fields.subject, "CN=agent");
        assert_eq!(fields.serial, "01:02:ab");
        assert_eq!(date(fields.not_before), "2020-01-02 00:00:00 UTC");
        assert_eq!(date(fields.not_after), "2031-12-31 00:00:00 UTC");
        assert_eq!(fields.names_listed(), "a.example, 10.0.0.1");
        assert!(!fields.is_authority);
        assert!(describe(&CertificateDer::from(b"junk".to_vec())).is_err());
    }

    #[test]
    fn identity_prefers_uri_then_host_name_then_common_name() {
        let spiffe = "spiffe://zone.example/ns/a/sa/agent";
        let table = [
            (
                fields("cn", vec![dns("a.example"), uri(spiffe), uri("urn:other")]),
                Some(spiffe),
            ),
            (
                fields("cn", vec![dns("a.example"), dns("b.example")]),
                Some("a.example"),
            ),
            (fields("cn", vec![]), Some("cn")),
            (fields("", vec![SanType::IpAddress([1; 4].into())]), None),
        ];
        for (fields, expected) in table {
            assert_eq!(fields.identity(), expected, "{fields:?}");
        }
    }

    #[test]
    fn certificate_texts_are_printable_and_short() {
        let evil = fields("line\nbreak \u{1b}[31m", vec![]);
        assert_eq!(evil.identity(), Some("line\\nbreak \\u{1b}[31m"));
        assert_ne!(printable("a\nb"), printable("a\\nb"));
        let long = printable(&"\u{202e}".repeat(1000));
        assert!(long.len() <= LONGEST_TEXT && long.ends_with("..."));
        assert_eq!(printable(&"x".repeat(LONGEST_TEXT)).len(), LONGEST_TEXT);
    }
}
