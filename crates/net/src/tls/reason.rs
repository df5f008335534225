//! Why a TLS handshake fails, in few words: the `reason` label of `tributary_tls_handshake_failures`.

/// Why a client was not let in, or did not want to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It showed no certificate.
    NoCertificate,
    /// No authority of ours signed its certificate.
    UnknownAuthority,
    /// Its certificate, or one above it, has expired.
    Expired,
    /// Its certificate, or one above it, is not valid yet.
    NotYetValid,
    /// Its names are not among those allowed.
    NameNotAllowed,
    /// Its certificate, or one above it, was revoked.
    Revoked,
    /// No valid revocation list says whether it was revoked.
    RevocationUnknown,
    /// Its certificate has another fault.
    BadCertificate,
    /// It speaks no version of TLS that we do.
    Version,
    /// We have no cipher suite, curve, signature scheme or protocol (ALPN) in common.
    Parameters,
    /// It does not speak TLS.
    Plaintext,
    /// It refused our certificate.
    Distrusted,
    /// It was too slow.
    Timeout,
    /// It closed the connection.
    Closed,
    /// It breaks the rules of TLS.
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

    /// The label's value.
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
