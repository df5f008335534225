//! Discovery of servers at intervals.

use std::collections::BTreeSet;

use super::target::Target;
use crate::receivers::scraping::dns_sd::Dns;
use crate::receivers::scraping::file_sd::Files;
use crate::receivers::scraping::found::Found;
use tributary_config::ComponentId;

/// Sources of servers.
pub(super) enum Discovery {
    /// Files.
    Files(Files),
    /// DNS names.
    Dns(Dns),
}

impl Discovery {
    /// Returns the configured discovery; `None` for an endpoint.
    pub(super) fn of(target: &Target, id: &ComponentId) -> Option<Self> {
        let files = target.file_sd.as_ref();
        let files = files.map(|config| Discovery::Files(Files::new(config, id, false)));
        let dns = || {
            let config = target.dns_sd.as_ref()?;
            Some(Discovery::Dns(Dns::new(config.names(), id)))
        };
        files.or_else(dns)
    }

    /// Waits for the next refresh and returns the servers. The first refresh is immediate. The servers
    /// of unreadable files and unresolved names do not change.
    pub(super) async fn next(&mut self) -> BTreeSet<Found> {
        match self {
            Discovery::Files(files) => files.next().await,
            Discovery::Dns(dns) => dns.next().await,
        }
    }
}
