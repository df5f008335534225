//! How hyper's pooling client behaves.

use std::collections::HashMap;
use std::time::Duration;

use http::uri::Authority;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::dial::Dialer;
use super::renewing::RenewingClient;
use crate::tls::rotation::RotatingClient;

/// What the Collector's HTTP clients let their users say about connections.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// How many idle connections are kept to each host.
    pub max_idle_per_host: usize,
    /// How long an idle connection is kept; none is forever.
    pub idle_timeout: Option<Duration>,
    /// How long an HTTP/2 connection may be silent before it is pinged; none is never.
    pub ping_interval: Option<Duration>,
    /// How long to wait for the answer to a ping.
    pub ping_timeout: Duration,
    /// Bytes the server may send ahead of our reading over HTTP/2.
    pub window: u32,
    /// Bytes of a request that are queued in an HTTP/2 connection; none is hyper's default.
    pub send_buffer: Option<usize>,
}

impl ClientOptions {
    /// A client for these hosts, whose TLS, if any, comes from `tls`.
    pub fn client(
        &self,
        hosts: HashMap<Authority, Connector>,
        tls: Option<RotatingClient>,
    ) -> RenewingClient {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_max_idle_per_host(self.max_idle_per_host)
            .pool_idle_timeout(self.idle_timeout)
            .http2_initial_stream_window_size(self.window)
            .http2_initial_connection_window_size(self.window)
            .http2_keep_alive_interval(self.ping_interval)
            .http2_keep_alive_timeout(self.ping_timeout)
            .http2_keep_alive_while_idle(true);
        if let Some(bytes) = self.send_buffer {
            builder.http2_max_send_buf_size(bytes);
        }
        RenewingClient::new(builder, Dialer::new(hosts), tls)
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            max_idle_per_host: 100,
            idle_timeout: Some(Duration::from_secs(90)),
            ping_interval: None,
            ping_timeout: Duration::from_secs(15),
            window: 512 * 1024,
            send_buffer: None,
        }
    }
}
