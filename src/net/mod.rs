//! What every server and client shares: listening sockets, the accept loop, connections, TLS.

pub mod client;
pub mod listeners;
pub mod rpc;
pub mod server;
pub mod tls;
