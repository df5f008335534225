//! The keys of an HTTP client with a sending queue, listed once for all exporters that have one.

/// Defines a configuration with its own keys, and the keys of an HTTP client and of a sending queue.
macro_rules! http_client_section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {
            $($(#[$doc:meta])* $key:ident: $Type:ty = $default:expr,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            $($(#[$doc])* pub $key: $Type,)*
            /// TLS settings for `https://` endpoints.
            pub tls: tributary_net::tls::ClientTls,
            /// Authentication to the server. Default: none, only `headers` are sent.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub auth: Option<crate::component::auth::Auth>,
            /// Proxy for all connections, as in `http://user:password@host:3128`; `https://` encrypts the connection to the proxy,
            /// by `tls`. HTTPS endpoints are reached by CONNECT. Variables such as `HTTPS_PROXY` have no effect. Default: none.
            pub proxy_url: String,
            /// Cookies of the servers, kept in memory and sent back to the host that set them, as load balancers with sticky
            /// sessions need it. Default: off.
            pub cookies: tributary_config::Section<crate::exporters::otlp_http::CookiesConfig>,
            /// Whether HTTP/2 is offered in the TLS handshake; plaintext is always HTTP/1.1. Default: true.
            pub force_attempt_http2: bool,
            /// Number of idle connections to keep in all; 0 is no limit. Default: 100.
            pub max_idle_conns: usize,
            /// Number of idle connections to keep to each host; 0 is no limit per host. Default: 0.
            pub max_idle_conns_per_host: usize,
            /// Number of concurrent requests to each host, which also bounds the HTTP/1.1 connections to the host; 0 is
            /// no limit. Default: 0.
            pub max_conns_per_host: usize,
            /// Time after which an idle connection is closed; 0 is never. Default: 1m30s.
            pub idle_conn_timeout: tributary_config::units::Duration,
            /// Whether every request gets a connection of its own. Default: false.
            pub disable_keep_alives: bool,
            /// Time without received data after which an HTTP/2 connection is pinged; 0 is never. Default: 0.
            pub http2_read_idle_timeout: tributary_config::units::Duration,
            /// Time to wait for the answer to a ping before the connection counts as dead. Above 0. Default: 15s.
            pub http2_ping_timeout: tributary_config::units::Duration,
            /// HTTP/2 receive window in bytes, at least 65535: bytes that the server may send before the collector reads them.
            /// 0 means 524288. Default: 0.
            pub read_buffer_size: u32,
            /// Bytes of a request that are queued in an HTTP/2 connection ahead of the socket; 0 is the default. HTTP/1.1
            /// writes bodies without a buffer. Default: 524288.
            pub write_buffer_size: u32,
            /// Sending queue. With `enabled: false`, senders wait while their data is sent. Default: on.
            pub sending_queue: tributary_config::Section<crate::queue::QueueConfig>,
            /// Retries after retryable failures. Default: on.
            pub retry_on_failure: tributary_config::Section<crate::queue::RetryConfig>,
        }

        impl Default for $Section {
            fn default() -> Self {
                $Section {
                    $($key: $default,)*
                    tls: tributary_net::tls::ClientTls::default(),
                    auth: None,
                    proxy_url: String::new(),
                    cookies: tributary_config::Section(None),
                    force_attempt_http2: true,
                    max_idle_conns: 100,
                    max_idle_conns_per_host: 0,
                    max_conns_per_host: 0,
                    idle_conn_timeout: tributary_config::units::Duration::secs(90),
                    disable_keep_alives: false,
                    http2_read_idle_timeout: tributary_config::units::Duration::secs(0),
                    http2_ping_timeout: tributary_config::units::Duration::secs(15),
                    read_buffer_size: 0,
                    write_buffer_size: 512 * 1024,
                    sending_queue: tributary_config::Section(Some(crate::queue::QueueConfig::default())),
                    retry_on_failure: tributary_config::Section(Some(crate::queue::RetryConfig::default())),
                }
            }
        }
    };
}

pub(crate) use http_client_section;
