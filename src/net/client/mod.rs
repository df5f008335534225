//! What the exporters that speak HTTP share: connecting, connection pools, bodies, headers.

mod body;
mod connect;
mod headers;
mod pool;

pub use body::{Chunks, coalesce};
pub use connect::{ConnectError, Connector, Stream, split_host_port};
pub use headers::Headers;
pub use pool::{Balancing, Pool, PoolSettings, RequestError};

#[cfg(test)]
pub(crate) mod test_server;
