//! The server's side of a handshake, and explanations of failures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, Error, PeerIncompatible, ServerConfig};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate;
use super::names::Pattern;
use super::notes::{self, Notes};
use super::reason::Reason;

/// A client that was refused, or that refused the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("TLS handshake: {text}")]
pub struct TlsRefusal {
    /// Reason in short form.
    pub reason: Reason,
    /// Explanation for the operator: the remedy, and the side that needs it.
    pub text: String,
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// One side has to be reconfigured.
    #[error(transparent)]
    TlsRefusal(#[from] TlsRefusal),
    /// An ordinary network error.
    #[error(transparent)]
    Network(#[from] io::Error),
}

/// Performs the handshake. A refused client is sent the reason before this returns, for at most a second.
///
/// # Errors
///
/// The handshake failed.
pub async fn accept<S>(config: Arc<ServerConfig>, stream: S) -> Result<TlsStream<S>, AcceptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let accepted = TlsAcceptor::from(config).accept(stream).into_fallible();
    let (outcome, notes) = notes::taken(accepted).await;
    match outcome {
        Ok(stream) => Ok(stream),
        Err((error, stream)) => {
            end(stream).await;
            Err(explain(error, notes))
        }
    }
}

/// Returns the identity of the client from its verified certificate, or `None` if no certificate was requested.
pub fn identity<S>(stream: &TlsStream<S>) -> Option<Arc<str>> {
    identity_of(stream.get_ref().1.peer_certificates()?.first()?)
}

/// Returns the identity in a verified certificate.
pub fn identity_of(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    identity_among(certificate, &[])
}

/// Returns the identity in a verified certificate. If `allowed` is not empty, only allowed names are considered.
pub(super) fn identity_among(
    certificate: &CertificateDer<'_>,
    allowed: &[Pattern],
) -> Option<Arc<str>> {
    let fields = certificate::describe(certificate).ok()?;
    // A certificate without names is identified by its serial number.
    Some(
        fields
            .identity_among(allowed)
            .map_or_else(|| fields.title().into(), Arc::from),
    )
}

/// Closes a connection so that the client can read the last message. Closing with unread data would reset the
/// connection and destroy the message: under TLS 1.3, a client sends its first request before it knows the result of
/// the handshake.
pub async fn end<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let closing = async {
        let _ = stream.shutdown().await;
        let mut left = MAX_UNREAD_BYTES;
        let mut buffer = vec![0; 4 << 10];
        while left > 0 {
            match stream.read(&mut buffer).await {
                Ok(read @ 1..) => left = left.saturating_sub(read),
                _ => break,
            }
        }
    };
    let _ = timeout(MAX_CLOSING_TIME, closing).await;
}

fn explain(error: io::Error, notes: Notes) -> AcceptError {
    if let Some((reason, text)) = notes.refused {
        return TlsRefusal { reason, text }.into();
    }
    let inner = error.get_ref();
    let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => refused(
                Reason::Closed,
                "the client closed the connection during the handshake; the client's log may have the \
                 reason".to_owned(),
            ),
            _ => error.into(),
        };
    };
    let (reason, text) = match tls {
        Error::NoCertificatesPresented => (
            Reason::NoCertificate,
            "the client sent no certificate, which tls::client_ca_file requires: set tls::cert_file and \
             tls::key_file at the client"
                .to_owned(),
        ),
        Error::AlertReceived(alert) => describe_alert(*alert),
        Error::PeerIncompatible(why) => incompatible(why),
        Error::NoApplicationProtocol => (
            Reason::Parameters,
            "the client offers only protocols (ALPN) that this port does not support".to_owned(),
        ),
        Error::InvalidMessage(_) => {
            (Reason::Protocol, format!("the client violates the TLS protocol: {tls}"))
        }
        other => (Reason::Protocol, other.to_string()),
    };
    refused(reason, text)
}

fn refused(reason: Reason, text: String) -> AcceptError {
    TlsRefusal { reason, text }.into()
}

fn incompatible(why: &PeerIncompatible) -> (Reason, String) {
    match why {
        PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::ServerDoesNotSupportTls12Or13 => (
            Reason::Version,
            "the client offers only TLS versions that are disabled here: enable TLS 1.3 at the client, or set \
             tls::min_version to \"1.2\" here"
                .to_owned(),
        ),
        other => (
            Reason::Parameters,
            format!(
                "client and server have no TLS parameters in common ({other:?}): compare tls::cipher_suites, \
                 tls::curve_preferences and the type of the certificate's key with those of the client"
            ),
        ),
    }
}

/// Interprets the alert with which a client ended the handshake.
fn describe_alert(alert: AlertDescription) -> (Reason, String) {
    match alert {
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError => (
            Reason::Distrusted,
            format!(
                "the client does not trust this server's certificate (alert: {alert:?}): set tls::ca_file at the \
                 client to the authority, and connect by a name in the certificate; or change tls::cert_file here"
            ),
        ),
        AlertDescription::ProtocolVersion => (
            Reason::Version,
            "the client requires another TLS version: check tls::min_version and tls::max_version on both \
             sides".to_owned(),
        ),
        other => (Reason::Closed, format!("the client aborted the handshake (alert: {other:?})")),
    }
}

const MAX_CLOSING_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes read from a refused client: more than most connections have in flight.
const MAX_UNREAD_BYTES: usize = 1 << 20;
