//! Settings of hyper's pooling client.

use std::collections::HashMap;
use std::time::Duration;

use http::uri::Authority;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::dial::Dialer;
use super::renewing::RenewingClient;
use crate::tls::rotation::RotatingClient;

/// Connection settings that the Collector's HTTP clients have.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// Maximum number of idle connections to each host.
    pub max_idle_per_host: usize,
    /// Time after which an idle connection is closed; `None` means never.
    pub idle_timeout: Option<Duration>,
    /// Idle time after which an HTTP/2 connection is pinged; `None` means never.
    pub ping_interval: Option<Duration>,
    /// Timeout of a ping.
    pub ping_timeout: Duration,
    /// HTTP/2 flow control window for data from the server, in bytes.
    pub window: u32,
    /// Maximum number of request bytes queued in an HTTP/2 connection; `None` means hyper's default.
    pub send_buffer: Option<usize>,
}

impl ClientOptions {
    /// Creates a client for these hosts. `tls` is the source of the TLS configuration, if any.
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
