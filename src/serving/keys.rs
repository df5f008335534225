//! The keys of an HTTP server, listed once for all receivers that have one.

/// Defines a section with the keys of an HTTP server, their defaults, and further keys of its own.
macro_rules! http_server_section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {
            $(#[$on:meta])*
            endpoint = $endpoint:expr,
            $($(#[$doc:meta])* $key:ident: $Type:ty = $default:expr,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            $(#[$on])*
            pub endpoint: tributary_config::Endpoint,
            /// Kind of socket. Only `tcp` is supported. Default: `tcp`.
            pub transport: String,
            /// TLS of the server. Default: off, plain text.
            pub tls: tributary_config::Section<tributary_net::tls::ServerTls>,
            /// Authentication of clients. Default: none, every client that reaches the address is accepted.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub auth: Option<crate::component::auth::Auth>,
            $($(#[$doc])* pub $key: $Type,)*
            /// Maximum size of a body in bytes, both as sent and after decompression; 0 means the default. Default:
            /// 20971520 (20 MiB).
            pub max_request_body_size: usize,
            /// Cross-origin requests from browsers. Default: off, cross-origin requests are not allowed.
            pub cors: tributary_config::Section<crate::serving::cors::Cors>,
            /// Maximum number of concurrent requests on one HTTP/2 connection; 0 means the default. Default: 1000. (The
            /// Collector has no such key.)
            pub max_concurrent_streams: u32,
            /// Accepted values of `Content-Encoding`; the empty string stands for uncompressed bodies. Default: `""`,
            /// `gzip`, `zstd`, `zlib`, `snappy`, `deflate`, `lz4`, `x-snappy-framed`.
            pub compression_algorithms: Vec<String>,
            /// Longest time for a whole request body to arrive; 0 means no fixed limit. `limits` sets the minimum
            /// transfer rate of a body. Default: 0s.
            pub read_timeout: tributary_config::units::Duration,
            /// Longest time for an HTTP/1 request head to arrive after its first byte. `limits.header_timeout` applies
            /// too. Default: 1m.
            pub read_header_timeout: tributary_config::units::Duration,
            /// Longest time from the request head to the response; 0 means no limit. After this time the data is not
            /// accepted and the client gets status 503. Default: 0s.
            pub write_timeout: tributary_config::units::Duration,
            /// Time without a request after which a connection is closed; 0 means never. The default is above the usual
            /// export interval of SDKs. Default: 5m.
            pub idle_timeout: tributary_config::units::Duration,
            /// Whether HTTP/1 connections stay open between requests. Default: true.
            pub keep_alives_enabled: bool,
            /// Whether the request headers stay with the data, for processors and exporters that use them. Default:
            /// false.
            pub include_metadata: bool,
            /// Headers to add to every response. Default: none.
            pub response_headers: tributary_config::Headers,
            /// Limits on clients. (The Collector has no such key.)
            pub limits: tributary_net::server::Limits,
        }

        impl Default for $Section {
            fn default() -> Self {
                use tributary_config::units::Duration;
                $Section {
                    endpoint: tributary_config::Endpoint($endpoint.to_owned()),
                    transport: crate::serving::TCP.to_owned(),
                    tls: tributary_config::Section(None),
                    auth: None,
                    $($key: $default,)*
                    max_request_body_size: crate::serving::DEFAULT_BODY,
                    cors: tributary_config::Section(None),
                    max_concurrent_streams: crate::serving::DEFAULT_STREAMS,
                    compression_algorithms: crate::serving::encoding::HTTP_NAMES.map(str::to_owned).to_vec(),
                    read_timeout: Duration::default(),
                    read_header_timeout: Duration::secs(60),
                    write_timeout: Duration::default(),
                    idle_timeout: Duration::secs(300),
                    keep_alives_enabled: true,
                    include_metadata: false,
                    response_headers: tributary_config::Headers::default(),
                    limits: tributary_net::server::Limits::default(),
                }
            }
        }

        impl $Section {
            /// Returns the maximum size of a body in bytes.
            pub(crate) fn max_body(&self) -> usize {
                match self.max_request_body_size {
                    0 => crate::serving::DEFAULT_BODY,
                    size => size,
                }
            }

            /// Returns the options of the server without those that the files of `tls` and the host determine.
            pub(crate) fn server_options(&self) -> tributary_net::server::ServerOptions {
                tributary_net::server::ServerOptions {
                    protocol: tributary_net::server::Protocol::Either,
                    keep_alive: self.keep_alives_enabled,
                    max_concurrent_streams: crate::serving::or(
                        self.max_concurrent_streams,
                        crate::serving::DEFAULT_STREAMS,
                    ),
                    header_timeout: self.read_header_timeout.unless_zero(),
                    max_idle: self.idle_timeout.unless_zero(),
                    limits: self.limits.clone(),
                    ..tributary_net::server::ServerOptions::default()
                }
            }

            /// Checks the keys of the server. `example` is an endpoint for the message about a missing one.
            fn validate_server(&self, example: &str, problems: &mut tributary_config::Problems) {
                crate::serving::validate_socket(&self.endpoint, &self.transport, example, problems);
                if let Some(tls) = &*self.tls {
                    problems.within("tls", tls);
                }
                problems.within("limits", &self.limits);
                let (auth, host) = (self.auth.as_ref(), self.endpoint.host());
                crate::component::auth::warn_about_plaintext(auth, self.tls.is_some(), host, problems);
                crate::serving::validate_encodings(&self.compression_algorithms, problems);
                if let Some(cors) = &*self.cors {
                    problems.within("cors", cors);
                }
            }
        }
    };
}

pub(crate) use http_server_section;
