//! Authentication of requests: the traits that authenticators implement, and the guard of a server.
//!
//! A server asks its authenticator about the headers of every request before it reads any of the body; a client lets
//! its authenticator add headers to every request. Both happen on the hot path, so neither allocates.

mod guard;

pub use guard::{Guard, Guarded, refusal};

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Tells from a request's headers who sent it.
pub trait ServerAuthenticator: Send + Sync + 'static {
    /// The header that carries credentials. It is taken away from every request that was let in, so that it is never
    /// kept with the data.
    fn header(&self) -> &HeaderName;

    /// What clients are told to come with: the value of `WWW-Authenticate` (RFC 9110, 11.6.1).
    fn challenge(&self) -> &HeaderValue;

    /// Who sent a request with these headers from this address.
    fn authenticate(&self, headers: &HeaderMap, peer: IpAddr) -> Verdict;
}

/// Adds what says who we are to an outgoing request.
pub trait ClientAuthenticator: Send + Sync + 'static {
    /// Adds the headers to those of a request, in the place of others of the same name.
    fn add(&self, headers: &mut HeaderMap);

    /// Another number once [`add`](Self::add) adds something else.
    fn version(&self) -> u64;

    /// Looks at once whether there are new credentials: a server has refused the ones that count now. May be called
    /// often.
    fn refresh(&self);
}

/// What a [`ServerAuthenticator`] says.
pub enum Verdict {
    /// It knows at once.
    Known(Result<Identity, Refused>),
    /// It needs more time than a worker that serves connections has.
    Pending(BoxFuture<'static, Result<Identity, Refused>>),
}

/// Who sent a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name the client authenticated with. None where credentials carry no name (bearer tokens).
    pub user: Option<Arc<str>>,
}

/// Why a request was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// There were no credentials.
    Missing,
    /// What was there could not be read as credentials of the expected kind.
    Malformed,
    /// The credentials are not valid.
    Wrong,
    /// Nobody knows: too many wrong ones came before, or too many wait to be checked. The same may be let in later.
    Busy,
}

impl Refused {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Refused; 4] = [
        Refused::Missing,
        Refused::Malformed,
        Refused::Wrong,
        Refused::Busy,
    ];

    /// The `reason` label of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Refused::Missing => "missing",
            Refused::Malformed => "malformed",
            Refused::Wrong => "wrong",
            Refused::Busy => "busy",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Missing => "the request has no credentials",
            Refused::Malformed => "the credentials cannot be read",
            Refused::Wrong => "the credentials are not valid",
            Refused::Busy => "too many credentials are being checked",
        })
    }
}
