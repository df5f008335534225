//! The configuration of `otlp_grpc`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use crate::queue::{QueueConfig, RetryConfig};
use tributary_compression::Codec;
use tributary_compression::compress::CompressionParams;
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Headers, Problems, Section, Validate};
use tributary_net::client::{Balancing, split_host_port};
use tributary_net::tls::ClientTls;

/// Sends OTLP over gRPC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the server: `host:port`. The prefix `https://` forces TLS. `http://` and `dns:///` are accepted and
    /// have no effect: plaintext needs `tls: {insecure: true}`. Required.
    pub endpoint: String,
    /// TLS, on unless `insecure: true`.
    pub tls: ClientTls,
    /// Authentication to the server. Absent: only `headers` are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Compression of requests: `gzip`, `snappy`, `zstd` or `none`. Default: `gzip`.
    pub compression: Compression,
    /// Parameters of the compression.
    pub compression_params: CompressionParams,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// Time limit of one attempt; 0 is no limit. Default: 5s.
    pub timeout: Duration,
    /// HTTP/2 pings that notice dead connections. Default: off.
    pub keepalive: Section<Keepalive>,
    /// Bytes the server may send ahead of our reading (the HTTP/2 window), at least 65535. Default: 524288.
    pub read_buffer_size: u32,
    /// Bytes of a request that are queued in a connection ahead of the socket. Default: 524288.
    pub write_buffer_size: usize,
    /// Whether a request waits, up to `timeout`, while the server cannot be reached, instead of failing at once.
    /// Either way it is retried. Default: false.
    pub wait_for_ready: bool,
    /// The `user-agent` header. Default: `tributary/` and the version.
    pub user_agent: String,
    /// Distribution of connections over the addresses of the endpoint's host: `round_robin` (connections to all,
    /// requests in turn) or `pick_first` (the first that answers). Default: `round_robin`.
    pub balancer_name: Balancer,
    /// The `:authority` header. Default: the endpoint.
    pub authority: String,
    /// Number of connections to each address, 1 to 64. More than one helps when the network limits the throughput of
    /// one connection, or when a load balancer spreads connections, not requests. Default: 1.
    pub connections: usize,
    /// The queue in front. Default: on; `enabled: false` makes senders wait while their data is sent.
    pub sending_queue: Section<QueueConfig>,
    /// Retries. Default: on.
    pub retry_on_failure: Section<RetryConfig>,
}

/// A codec of gRPC requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&[""]))]
pub enum Compression {
    /// RFC 1952.
    #[default]
    Gzip,
    /// Snappy, framed.
    Snappy,
    /// RFC 8878.
    Zstd,
    /// No compression.
    #[serde(alias = "")]
    None,
}

/// HTTP/2 pings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// Time without received data after which a connection is pinged. Default: 10s.
    pub time: Duration,
    /// Time to wait for the answer to a ping before the connection counts as dead. Default: 10s.
    pub timeout: Duration,
    /// Whether connections without requests are pinged too. Servers may refuse that. Default: false.
    pub permit_without_stream: bool,
}

/// Distribution of connections over the addresses of the endpoint's host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balancer {
    /// Over all addresses.
    #[default]
    RoundRobin,
    /// To the first address that answers.
    PickFirst,
}

/// An endpoint taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) authority: &'a str,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            endpoint: String::new(),
            tls: ClientTls::default(),
            auth: None,
            compression: Compression::Gzip,
            compression_params: CompressionParams::default(),
            headers: Headers::default(),
            timeout: Duration::secs(5),
            keepalive: Section(None),
            read_buffer_size: 512 * 1024,
            write_buffer_size: 512 * 1024,
            wait_for_ready: false,
            user_agent: String::new(),
            balancer_name: Balancer::RoundRobin,
            authority: String::new(),
            connections: 1,
            sending_queue: Section(Some(QueueConfig::default())),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive {
            time: Duration::secs(10),
            timeout: Duration::secs(10),
            permit_without_stream: false,
        }
    }
}

impl Config {
    pub(super) fn target(&self) -> Result<Target<'_>, String> {
        let (tls, authority) = match self.endpoint.split_once("://") {
            None => (false, self.endpoint.as_str()),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(("dns", rest)) => (false, rest.trim_start_matches('/')),
            Some((scheme, _)) => {
                return Err(format!(
                    "scheme \"{scheme}\" is not supported; write host:port, http:// or https://"
                ));
            }
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.is_empty() {
            return Err("requires a non-empty \"endpoint\": write host:port".to_owned());
        }
        if authority.contains('/') {
            return Err(format!(
                "\"{authority}\" has a path, which gRPC cannot have"
            ));
        }
        let (host, port) = split_host_port(authority)?;
        Ok(Target {
            authority,
            host,
            port,
            tls: tls || !self.tls.is_plaintext(),
        })
    }
}

impl Compression {
    /// The codec.
    pub fn codec(self) -> Option<Codec> {
        match self {
            Compression::Gzip => Some(Codec::Gzip),
            Compression::Snappy => Some(Codec::SnappyFramed),
            Compression::Zstd => Some(Codec::Zstd),
            Compression::None => None,
        }
    }

    /// The value of `grpc-encoding`.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Compression::Gzip => Some("gzip"),
            Compression::Snappy => Some("snappy"),
            Compression::Zstd => Some("zstd"),
            Compression::None => None,
        }
    }
}

impl Balancer {
    pub(super) fn balancing(self) -> Balancing {
        match self {
            Balancer::RoundRobin => Balancing::RoundRobin,
            Balancer::PickFirst => Balancing::PickFirst,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        match self.target() {
            Ok(target) if !target.tls => {
                auth::warn_of_plaintext(self.auth.as_ref(), false, target.host, problems);
            }
            Ok(_) => self.tls.validate_for_tls("tls", problems),
            Err(reason) => problems.error(&["endpoint"], reason),
        }
        self.compression_params
            .validate(self.compression.codec(), problems);
        if let Some(keepalive) = &*self.keepalive {
            for (key, duration) in [("time", keepalive.time), ("timeout", keepalive.timeout)] {
                if duration.is_zero() {
                    problems.error(&["keepalive", key], "must be above 0");
                }
            }
        }
        if !(65_535..=i32::MAX.unsigned_abs()).contains(&self.read_buffer_size) {
            problems.error(&["read_buffer_size"], "must be from 65535 to 2147483647");
        }
        if self.write_buffer_size == 0 || u32::try_from(self.write_buffer_size).is_err() {
            problems.error(&["write_buffer_size"], "must be from 1 to 4294967295");
        }
        if !(1..=64).contains(&self.connections) {
            problems.error(&["connections"], "must be from 1 to 64");
        }
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
        if let Some(retry) = &*self.retry_on_failure {
            problems.within("retry_on_failure", retry);
        }
        let (queue, retry) = (self.sending_queue.as_ref(), self.retry_on_failure.as_ref());
        crate::queue::warn_of_giving_up(queue, retry, problems);
    }

    fn holds_up_pipelines(&self) -> bool {
        crate::queue::holds_up_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter().map(|auth| auth.client_use(&["auth"]));
        auth.chain(self.sending_queue.iter().filter_map(QueueConfig::uses))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        found.map(|problem| problem.path.join("::")).collect()
    }

    #[test]
    fn a_collectors_file_is_read() {
        let yaml = "
endpoint: http://tempo:4317
tls: {insecure: true}
compression: zstd
headers: {x-scope-orgid: a}
timeout: 10s
keepalive: {time: 20s, permit_without_stream: true}
read_buffer_size: 123456
wait_for_ready: true
balancer_name: pick_first
sending_queue: {queue_size: 5000, num_consumers: 4}
retry_on_failure: {max_elapsed_time: 0s}
";
        assert_eq!(problems(yaml), Vec::<String>::new());
    }

    #[test]
    fn the_scheme_decides_about_tls_only_when_it_is_https() {
        let target = |yaml: &str| {
            let config: Config = serde_yaml::from_str(yaml).unwrap();
            let target = config.target().map_err(|_| ())?;
            Ok((target.host.to_owned(), target.port, target.tls))
        };
        let a = |tls| Ok(("a".to_owned(), 1, tls));
        assert_eq!(target("endpoint: a:1"), a(true));
        assert_eq!(target("endpoint: http://a:1"), a(true));
        assert_eq!(target("endpoint: dns:///a:1"), a(true));
        assert_eq!(
            target("{endpoint: 'http://a:1/', tls: {insecure: true}}"),
            a(false)
        );
        assert_eq!(
            target("{endpoint: 'https://a:1', tls: {insecure: true}}"),
            a(true)
        );
        assert_eq!(target("endpoint: unix:///a"), Err(()));
        assert_eq!(target("endpoint: a:1/v1/traces"), Err(()));
        assert_eq!(target("endpoint: a"), Err(()));
    }

    #[test]
    fn every_rule_is_reported_at_its_key() {
        let yaml = "
tls: {insecure: true}
compression: snappy
compression_params: {level: 3}
keepalive: {time: 0s}
read_buffer_size: 0
write_buffer_size: 0
connections: 0
sending_queue: {num_consumers: 0}
retry_on_failure: {multiplier: 0}
";
        assert_eq!(
            problems(yaml),
            [
                "endpoint",
                "compression_params::level",
                "keepalive::time",
                "read_buffer_size",
                "write_buffer_size",
                "connections",
                "sending_queue::num_consumers",
                "retry_on_failure::multiplier",
            ]
        );
    }
}
