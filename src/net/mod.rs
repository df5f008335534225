//! What every server and client shares: listening sockets, the accept loop, connections, TLS.

pub mod client;
pub mod listeners;
pub mod rpc;
pub mod server;
pub mod tls;

use crate::config::ComponentId;

/// Whose server or client it is, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The component's id.
    pub id: ComponentId,
    /// What it is: `receiver`, `exporter`, `extension`, `service`.
    pub kind: &'static str,
}

impl Owner {
    /// The component `id` of `kind`.
    pub fn new(id: &ComponentId, kind: &'static str) -> Self {
        let id = id.clone();
        Owner { id, kind }
    }
}
