//! What the exporters that speak HTTP share: connecting, connection pools, bodies, headers.

mod body;
mod connect;
mod dial;
mod pool;
mod renewing;

pub use body::{Chunks, coalesce};
pub use connect::{ConnectError, Connector, Stream, split_host_port};
pub use dial::Dialer;
pub use pool::{Balancing, Pool, PoolSettings, RequestError};
pub use renewing::RenewingClient;

/// An error's text with all its causes, each once.
pub fn full_error(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.ends_with(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
pub(crate) mod test_server;
