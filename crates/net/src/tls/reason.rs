//! Reasons of failed TLS handshakes: the label `reason` of `tributary_tls_handshake_failures`.

/// Reason why a client was refused, or refused the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The client presented no certificate.
    NoCertificate,
    /// No trusted authority signed the client's certificate.
    UnknownAuthority,
    /// The client's certificate, or an issuing certificate, has expired.
    Expired,
    /// The client's certificate, or an issuing certificate, is not valid yet.
    NotYetValid,
    /// The client's names are not allowed.
    NameNotAllowed,
    /// The client's certificate, or an issuing certificate, was revoked.
    Revoked,
    /// No valid revocation list covers the client's certificate.
    RevocationUnknown,
    /// The client's certificate has another fault.
    BadCertificate,
    /// The client supports no TLS version of this server.
    Version,
    /// The two sides have no cipher suite, curve, signature scheme or protocol (ALPN) in common.
    Parameters,
    /// The client does not use TLS.
    Plaintext,
    /// The client refused the server's certificate.
    Distrusted,
    /// The client was too slow.
    Timeout,
    /// The client closed the connection.
    Closed,
    /// The client violates the TLS protocol.
    Protocol,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 15] = [
        Reason::NoCertificate,
        Reason::UnknownAuthority,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::NameNotAllowed,
        Reason::Revoked,
        Reason::RevocationUnknown,
        Reason::BadCertificate,
        Reason::Version,
        Reason::Parameters,
        Reason::Plaintext,
        Reason::Distrusted,
        Reason::Timeout,
        Reason::Closed,
        Reason::Protocol,
    ];

    /// Returns the value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::NoCertificate => "no_certificate",
            Reason::UnknownAuthority => "unknown_authority",
            Reason::Expired => "expired",
            Reason::NotYetValid => "not_yet_valid",
            Reason::NameNotAllowed => "name_not_allowed",
            Reason::Revoked => "revoked",
            Reason::RevocationUnknown => "revocation_unknown",
            Reason::BadCertificate => "bad_certificate",
            Reason::Version => "version",
            Reason::Parameters => "parameters",
            Reason::Plaintext => "plaintext",
            Reason::Distrusted => "distrusted",
            Reason::Timeout => "timeout",
            Reason::Closed => "closed",
            Reason::Protocol => "protocol",
        }
    }
}
