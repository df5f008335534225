//! Finding out which servers there are, again and again.

use std::collections::{BTreeMap, BTreeSet};

use super::dns_sd::Dns;
use super::file_sd::Files;
use super::target::Target;
use tributary_config::ComponentId;

/// A server that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Its `host:port`, or only the host.
    pub(super) address: String,
    /// The name it was found by, which is the one its certificate is for.
    pub(super) name: Option<String>,
    /// What is said about it. Names that begin with `__` are for this receiver.
    pub(super) labels: BTreeMap<String, String>,
}

/// Where servers are looked for.
pub(super) enum Discovery {
    /// In files.
    Files(Files),
    /// By names.
    Dns(Dns),
}

impl Discovery {
    /// What the configuration says, if it is not an endpoint.
    pub(super) fn of(target: &Target, id: &ComponentId) -> Option<Self> {
        let files = target.file_sd.as_ref();
        let files = files.map(|config| Discovery::Files(Files::new(config, id)));
        let dns = || {
            let config = target.dns_sd.as_ref()?;
            Some(Discovery::Dns(Dns::new(config, id)))
        };
        files.or_else(dns)
    }

    /// Waits until it is time to look (the first time that is at once), and looks. What cannot be read, or resolved,
    /// is as it was before.
    pub(super) async fn next(&mut self) -> BTreeSet<Found> {
        match self {
            Discovery::Files(files) => files.next().await,
            Discovery::Dns(dns) => dns.next().await,
        }
    }
}
