//! The keys of an OTLP/gRPC client, listed once for all exporters that have one.

/// Defines a section with the keys of an OTLP/gRPC client, their defaults, and keys of its own before and after them.
macro_rules! grpc_client_section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {
            before: { $($(#[$doc:meta])* $key:ident: $Type:ty = $default:expr,)* }
            after: { $($(#[$last_doc:meta])* $last:ident: $Last:ty = $last_default:expr,)* }
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            $($(#[$doc])* pub $key: $Type,)*
            /// TLS settings. TLS is on unless `insecure: true` is set.
            pub tls: tributary_net::tls::ClientTls,
            /// Authentication to the server. Default: none, only `headers` are sent.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub auth: Option<crate::component::auth::Auth>,
            /// Compression of requests: `gzip`, `snappy`, `zstd` or `none`. Default: `gzip`.
            pub compression: crate::exporters::otlp_grpc::GrpcCompression,
            /// Compression level. (The Collector has no such key.)
            pub compression_params: tributary_compression::compress::CompressionParams,
            /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
            pub headers: tributary_config::Headers,
            /// Time limit of one attempt; 0 means no limit. Default: 5s.
            pub timeout: tributary_config::units::Duration,
            /// HTTP/2 pings that detect dead connections. Default: off.
            pub keepalive: tributary_config::Section<crate::exporters::otlp_grpc::ClientKeepalive>,
            /// HTTP/2 receive window in bytes, at least 65535: bytes that the server may send before the collector
            /// reads them. Default: 524288.
            pub read_buffer_size: u32,
            /// Bytes of a request that are buffered in a connection ahead of the socket. At least 1. Default:
            /// 524288.
            pub write_buffer_size: usize,
            /// Whether a request waits, up to `timeout`, for an unreachable server instead of failing at once. In both
            /// cases the request is retried. Default: false.
            pub wait_for_ready: bool,
            /// The `user-agent` header. Default: `tributary/` and the version.
            pub user_agent: String,
            /// Distribution of connections over the addresses of a host: `round_robin` (connections to all, requests
            /// in turn) or `pick_first` (the first that answers). Default: `round_robin`.
            pub balancer_name: crate::exporters::otlp_grpc::Balancer,
            /// The `:authority` header. Default: the address of the server.
            pub authority: String,
            /// Number of connections to each address, 1 to 64. More than one helps when the network limits the
            /// throughput of one connection, or when a load balancer spreads connections, not requests. Default: 1.
            /// (The Collector has no such key.)
            pub connections: usize,
            $($(#[$last_doc])* pub $last: $Last,)*
        }

        impl Default for $Section {
            fn default() -> Self {
                $Section {
                    $($key: $default,)*
                    tls: Default::default(),
                    auth: None,
                    compression: Default::default(),
                    compression_params: Default::default(),
                    headers: Default::default(),
                    timeout: tributary_config::units::Duration::secs(5),
                    keepalive: tributary_config::Section(None),
                    read_buffer_size: 512 * 1024,
                    write_buffer_size: 512 * 1024,
                    wait_for_ready: false,
                    user_agent: String::new(),
                    balancer_name: Default::default(),
                    authority: String::new(),
                    connections: 1,
                    $($last: $last_default,)*
                }
            }
        }
    };
}

pub(in crate::exporters) use grpc_client_section;
