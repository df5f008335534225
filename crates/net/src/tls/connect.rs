//! The client's side of a handshake, and explanations of failures.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, ClientConfig, Error, PeerIncompatible};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::notes;

/// Reason why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeError {
    /// Description of the failure and its remedy.
    pub reason: String,
    /// Whether retries fail until a configuration or certificate is changed.
    pub is_permanent: bool,
}

/// Performs the handshake. Under TLS 1.3, the server checks the client's certificate only afterwards. See
/// [`explained`].
///
/// # Errors
/// There is no connection.
pub async fn connect<S>(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    stream: S,
) -> Result<TlsStream<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connecting = TlsConnector::from(config).connect(name, stream);
    let (outcome, notes) = notes::taken(connecting).await;
    outcome.map_err(|error| match notes.refused {
        Some((_, text)) => HandshakeError {
            reason: format!("invalid peer certificate: {text}"),
            is_permanent: true,
        },
        None => HandshakeError {
            is_permanent: is_permanent(&error),
            reason: explained(error).to_string(),
        },
    })
}

/// Whether retries fail for the same reason until a configuration or certificate is changed on either side.
pub fn is_permanent(error: &io::Error) -> bool {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::AlertReceived(
            AlertDescription::InternalError
            | AlertDescription::UserCanceled
            | AlertDescription::CloseNotify,
        )) => false,
        Some(
            Error::AlertReceived(_)
            | Error::PeerIncompatible(_)
            | Error::InvalidCertificate(_)
            | Error::InvalidMessage(_)
            | Error::NoApplicationProtocol,
        ) => true,
        _ => false,
    }
}

/// Adds advice to the error of a TLS connection. Other errors are returned unchanged.
pub fn explained(error: io::Error) -> io::Error {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    let advice = match tls {
        Some(Error::AlertReceived(alert)) => for_alert(*alert),
        Some(Error::InvalidMessage(_)) => {
            "if the server speaks plaintext, set tls::insecure to true"
        }
        Some(Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        )) => "if the server does not support TLS 1.3, set tls::min_version to \"1.2\"",
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection; if it speaks plaintext, set tls::insecure to true"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error} ({advice})"))
}

/// Explains an alert from a server (RFC 8446, 6.2).
fn for_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server requires a client certificate: set tls::cert_file and tls::key_file"
        }
        AlertDescription::UnknownCA => {
            "the server does not trust the authority of our certificate, or has no revocation list of it: set \
             tls::cert_file to a certificate of an authority that the server trusts, or add our authority to the \
             server's client_ca_file"
        }
        AlertDescription::DecryptError => {
            "the authority of our certificate has the same name as one that the server trusts, but another key: \
             renew tls::cert_file, or add our authority to the server's client_ca_file"
        }
        AlertDescription::CertificateExpired => {
            "our certificate has expired or is not valid yet by the server's clock: renew tls::cert_file, or check \
             the clocks"
        }
        AlertDescription::CertificateRevoked => {
            "our certificate has been revoked: set tls::cert_file to a new certificate"
        }
        AlertDescription::AccessDenied => {
            "the server does not allow the names in our certificate: check the server's allowed_client_names, or \
             set tls::cert_file to another certificate"
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "the server does not accept our certificate: check the server's log and tls::cert_file"
        }
        AlertDescription::ProtocolVersion => {
            "if the server does not support TLS 1.3, set tls::min_version to \"1.2\""
        }
        AlertDescription::HandshakeFailure => {
            "client and server have no TLS parameters in common, or the server requires a client certificate: \
             compare tls::min_version, tls::cipher_suites and tls::curve_preferences, and set tls::cert_file and \
             tls::key_file"
        }
        AlertDescription::InsufficientSecurity => {
            "the server requires other cipher suites: check tls::cipher_suites"
        }
        AlertDescription::NoApplicationProtocol => {
            "the server does not support our protocol on this port (ALPN): check whether the port is for OTLP/gRPC \
             or OTLP/HTTP"
        }
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for this name: check tls::server_name_override"
        }
        _ => "check the server's log",
    }
}
