//! Verification of the peer's certificate: webpki's decision, plus allowed names and explanations.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::certificate::{self, CertificateFields, date};
use super::names::Pattern;
use super::notes;
use super::reason::Reason;

#[derive(Debug)]
pub(super) struct ClientVerifier {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    /// Patterns of allowed names; empty to allow any name.
    pub(super) allowed: Vec<Pattern>,
    pub(super) words: Words,
    /// Expiry of the first of the revocation lists.
    pub(super) lists_end: Option<SystemTime>,
}

#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) inner: Arc<dyn ServerCertVerifier>,
    pub(super) words: Words,
}

/// Texts for explanations.
#[derive(Debug)]
pub(super) struct Words {
    /// Owner of the certificate: `client` or `server`.
    pub(super) whose: &'static str,
    /// Location of the trusted authorities.
    pub(super) authorities: String,
    /// File with the revocation lists.
    pub(super) lists: String,
    pub(super) allowed: String,
}

/// The methods that both traits of verifiers have, passed on to `self.inner`.
macro_rules! signatures_by_inner {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.inner
                .verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.inner
                .verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.inner.supported_verify_schemes()
        }
    };
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)
            .inspect_err(|error| self.words.note(error, end_entity))?;
        let is_allowed = |name: &_| self.allowed.iter().any(|pattern| pattern.matches(name));
        if !self.allowed.is_empty() && !certificate::any_name(end_entity, is_allowed) {
            let error = Error::from(CertificateError::ApplicationVerificationFailure);
            self.words.note(&error, end_entity);
            return Err(error);
        }
        notes::with(|notes| notes.good_until = self.good_until(end_entity, intermediates));
        Ok(verified)
    }

    signatures_by_inner!();
}

impl ClientVerifier {
    fn good_until(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Option<u64> {
        let mut end = certificate::not_after(end_entity)?;
        for intermediate in intermediates {
            end = end.min(certificate::not_after(intermediate)?);
        }
        end = self.lists_end.map_or(end, |lists| lists.min(end));
        let since = end.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .inspect_err(|error| self.words.note(error, end_entity))
    }

    signatures_by_inner!();

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.inner.root_hint_subjects()
    }
}

impl Words {
    /// Leaves a note that explains why this certificate is refused.
    fn note(&self, error: &Error, end_entity: &CertificateDer<'_>) {
        let Error::InvalidCertificate(error) = error else {
            let reason = match error {
                Error::InvalidCertRevocationList(_) => Reason::RevocationUnknown,
                _ => Reason::BadCertificate,
            };
            let text = format!("cannot check the {}'s certificate: {error}", self.whose);
            notes::with(|notes| notes.refused = Some((reason, text)));
            return;
        };
        let refused = match certificate::describe(end_entity) {
            Ok(fields) => self.explain(error, &fields),
            Err(unreadable) => (
                Reason::BadCertificate,
                format!("the {}'s certificate is {unreadable}", self.whose),
            ),
        };
        notes::with(|notes| notes.refused = Some(refused));
    }

    fn explain(&self, error: &CertificateError, fields: &CertificateFields) -> (Reason, String) {
        let Words {
            whose,
            authorities,
            lists,
            allowed,
        } = self;
        let title = fields.title();
        let which = |moment: SystemTime, of_leaf: SystemTime| match moment == of_leaf {
            true => format!("the {whose}'s certificate {title}"),
            false => format!("a certificate above the {whose}'s, {title},"),
        };
        let now = || date(SystemTime::now());
        match error {
            CertificateError::UnknownIssuer => {
                let text = format!(
                    "the {whose}'s certificate {title} was issued by \"{}\", which has no path to {authorities}: \
                     add its authority there, give the {whose} a certificate of one that is there, or have the {whose} \
                     send the intermediate certificates too",
                    fields.issuer
                );
                (Reason::UnknownAuthority, text)
            }
            // The authority was created again with the same name but another key.
            CertificateError::BadSignature => {
                let text = format!(
                    "the {whose}'s certificate {title} was issued by another \"{}\" than that in {authorities}: add \
                     its authority there, or give the {whose} a certificate of the one that is there",
                    fields.issuer
                );
                (Reason::UnknownAuthority, text)
            }
            CertificateError::ExpiredContext { not_after, .. } => {
                let end = moment(*not_after);
                let which = which(end, fields.not_after);
                (
                    Reason::Expired,
                    format!("{which} expired on {}: renew it", date(end)),
                )
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                let start = moment(*not_before);
                let text = format!(
                    "{} is not valid before {}, and the local time is {}: correct the clock, or wait",
                    which(start, fields.not_before),
                    date(start),
                    now()
                );
                (Reason::NotYetValid, text)
            }
            CertificateError::Revoked => {
                let text = format!(
                    "the {whose}'s certificate {title} with the serial number {}, or a certificate above it, is \
                     revoked by {lists}: issue a new certificate if the {whose} is legitimate",
                    fields.serial
                );
                (Reason::Revoked, text)
            }
            CertificateError::UnknownRevocationStatus => {
                let text = format!(
                    "{lists} has no list for an authority above the {whose}'s certificate {title}, which \"{}\" \
                     issued: add the lists of all authorities up to {authorities}",
                    fields.issuer
                );
                (Reason::RevocationUnknown, text)
            }
            CertificateError::ExpiredRevocationListContext { next_update, .. } => {
                let text = format!(
                    "cannot check whether the {whose}'s certificate {title} is revoked: a list in {lists} expired \
                     on {}; renew the list",
                    date(moment(*next_update))
                );
                (Reason::RevocationUnknown, text)
            }
            CertificateError::NotValidForNameContext { expected, .. } => {
                let text = format!(
                    "the {whose}'s certificate {title} is not for \"{}\" but for: {}; if this is the intended \
                     {whose}, set tls::server_name_override to one of these names",
                    expected.to_str(),
                    fields.names_listed()
                );
                (Reason::NameNotAllowed, text)
            }
            CertificateError::ApplicationVerificationFailure => {
                let text = format!(
                    "the {whose}'s certificate {title} has the names: {}; tls::allowed_client_names allows only: \
                     {allowed}",
                    fields.names_listed()
                );
                (Reason::NameNotAllowed, text)
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                let text = format!(
                    "the {whose}'s certificate {title} is not for {whose}s: issue one with the extended key usage \
                     {whose}Auth"
                );
                (Reason::BadCertificate, text)
            }
            other => {
                let text = format!("the {whose}'s certificate {title} is not acceptable: {other}");
                (Reason::BadCertificate, text)
            }
        }
    }
}

fn moment(time: UnixTime) -> SystemTime {
    let since = Duration::from_secs(time.as_secs());
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Accepts any certificate, for `insecure_skip_verify`. The peer must still prove possession of the key.
#[derive(Debug)]
pub(super) struct AcceptAny(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
