//! Authentication of requests: the traits that authenticators implement, and the guard of a server.
//!
//! A server passes the headers of every request to its authenticator before it reads the body. A client lets its
//! authenticator add headers to every request. Both calls are on the hot path, so neither allocates.

mod guard;

pub use guard::{Guard, Guarded, refusal};

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Authenticates the clients of a server by request headers.
pub trait ServerAuthenticator: Send + Sync + 'static {
    /// Returns the name of the header that carries credentials. The header is removed from every accepted request, so
    /// that credentials are never kept with the data.
    fn header(&self) -> &HeaderName;

    /// Returns the challenge for unauthenticated clients: the value of `WWW-Authenticate` (RFC 9110, 11.6.1).
    fn challenge(&self) -> &HeaderValue;

    /// Authenticates a request with these headers from this address.
    fn authenticate(&self, headers: &HeaderMap, peer: IpAddr) -> Verdict;
}

/// Adds credentials to outgoing requests.
pub trait ClientAuthenticator: Send + Sync + 'static {
    /// Adds the credential headers to a request, replacing headers of the same name.
    fn add(&self, headers: &mut HeaderMap);

    /// Adds the credential headers to a request for the data of a client whose request had the headers `context`: lower
    /// case names with values. The default ignores the context.
    fn add_for(&self, _context: &BTreeMap<String, Vec<String>>, headers: &mut HeaderMap) {
        self.add(headers);
    }

    /// Returns the headers of clients, in lower case, that [`add_for`](Self::add_for) uses.
    fn context_headers(&self) -> &[String] {
        &[]
    }

    /// Returns a number that changes whenever [`add`](Self::add) adds something else.
    fn version(&self) -> u64;

    /// Checks for new credentials at once, because a server has refused the current ones. May be called often.
    fn refresh(&self);

    /// Returns the reason why there are no credentials at the moment. Requests are then not sent, but retried later.
    fn missing(&self) -> Option<String> {
        None
    }
}

/// Result of a [`ServerAuthenticator`].
pub enum Verdict {
    /// The result is available at once.
    Known(Result<UserIdentity, AuthFailure>),
    /// The check would block a serving thread for too long, and continues as a future.
    Pending(BoxFuture<'static, Result<UserIdentity, AuthFailure>>),
}

/// Identity of the sender of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserIdentity {
    /// User name that the client authenticated with. `None` for credentials without a name (bearer tokens).
    pub user: Option<Arc<str>>,
}

/// Reason why a request was not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthFailure {
    /// The request has no credentials.
    Missing,
    /// The credentials do not have the expected format.
    Malformed,
    /// The credentials are not valid.
    Wrong,
    /// The credentials were not checked: too many wrong credentials were sent before, or too many checks are pending. A
    /// retry may succeed.
    Busy,
}

impl AuthFailure {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [AuthFailure; 4] = [
        AuthFailure::Missing,
        AuthFailure::Malformed,
        AuthFailure::Wrong,
        AuthFailure::Busy,
    ];

    /// Returns the value of the metric label `reason`.
    pub const fn name(self) -> &'static str {
        match self {
            AuthFailure::Missing => "missing",
            AuthFailure::Malformed => "malformed",
            AuthFailure::Wrong => "wrong",
            AuthFailure::Busy => "busy",
        }
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthFailure::Missing => "the request has no credentials",
            AuthFailure::Malformed => "the credentials cannot be read",
            AuthFailure::Wrong => "the credentials are not valid",
            AuthFailure::Busy => "too many credentials are being checked",
        })
    }
}
