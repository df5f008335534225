//! Discovered servers.

use std::collections::BTreeMap;

/// A discovered server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::receivers) struct Found {
    /// The server's `host:port`, or only the host.
    pub(in crate::receivers) address: String,
    /// Name by which the server was found, which its certificate must match.
    pub(in crate::receivers) name: Option<String>,
    /// Labels of the server. Names that begin with `__` are instructions to this receiver.
    pub(in crate::receivers) labels: BTreeMap<String, String>,
}
