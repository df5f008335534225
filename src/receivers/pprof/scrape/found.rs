//! Discovered servers.

use std::collections::BTreeMap;

/// A discovered server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// The server's `host:port`, or only the host.
    pub(super) address: String,
    /// Name by which the server was found, which its certificate must match.
    pub(super) name: Option<String>,
    /// Labels of the server. Names that begin with `__` are instructions to this receiver.
    pub(super) labels: BTreeMap<String, String>,
}
