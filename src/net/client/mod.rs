//! What the exporters that speak HTTP share: connecting, connection pools, bodies, headers.

mod body;
mod connect;
mod pool;

pub use body::{Chunks, coalesce};
pub use connect::{ConnectError, Connector, Stream, split_host_port};
pub use pool::{Balancing, Pool, PoolSettings, RequestError};

pub use crate::config::units::Headers;

#[cfg(test)]
pub(crate) mod test_server;
