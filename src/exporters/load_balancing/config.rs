//! Configuration of the `load_balancing` exporter.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::protocol::MemberProtocol;
use crate::queue::{QueueConfig, RetryConfig};
use tributary_config::Unread;
use tributary_config::units::{Duration, Endpoint};
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::discovery::is_targets_file;
use tributary_otlp::Signal;

/// Sends OTLP over gRPC to several members. Items with the same routing key go to the same member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Source of the routing key. Default: `traceID` for traces, `service` for the other signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<RoutingKey>,
    /// Attributes that form the key with `routing_key: attributes`. Each attribute is looked up in
    /// the resource, then in the scope, then in the span, log record, data point or profile. For
    /// spans, `span.kind` and `span.name` count as attributes; for log records, `log.severity` and
    /// `log.body` do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routing_attributes: Vec<String>,
    /// Protocol settings of the connections to the members.
    pub protocol: MemberProtocol,
    /// Source of the member list: exactly one of `static`, `dns` and `file`. Required.
    pub resolver: Resolver,
    /// Limit of the data in flight to one member, in percent of the average over all members; 0, or at least 101. Data
    /// above the limit goes to the next member of its key. 0 means no limit: a key then keeps its member until the list
    /// of members changes. Default: 0. (The Collector has no such key; the name is Envoy's.)
    pub hash_balance_factor: u32,
    /// Pause before a failed member is tried again. (The Collector has no such key.)
    pub member_backoff: MemberBackoff,
    /// Time limit of one attempt over all members that are tried. 0 means no limit; the `timeout`
    /// of `protocol.otlp` still applies to each member. Default: 0.
    pub timeout: Duration,
    /// Sending queue. With `enabled: false`, senders wait while their data is sent. Default: on.
    pub sending_queue: Section<QueueConfig>,
    /// Retries of data that no member accepts. Default: on.
    pub retry_on_failure: Section<RetryConfig>,
}

/// Source of the routing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RoutingKey {
    /// The resource attribute `service.name`.
    #[serde(rename = "service")]
    Service,
    /// The trace id of a span or log record. A log record without a trace id is routed by its
    /// service.
    #[serde(rename = "traceID")]
    TraceId,
    /// All attributes of the resource.
    #[serde(rename = "resource")]
    Resource,
    /// The name of the metric.
    #[serde(rename = "metric")]
    Metric,
    /// The series of a data point: the resource, the scope, the metric and the attributes of the
    /// point.
    #[serde(rename = "streamID")]
    StreamId,
    /// The attributes listed in `routing_attributes`.
    #[serde(rename = "attributes")]
    Attributes,
    /// The series of a profile: all attributes of the resource and the sample type.
    #[serde(rename = "profile_series")]
    ProfileSeries,
}

/// Source of the member list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resolver {
    /// A fixed list of members.
    #[serde(rename = "static", skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Static>,
    /// Members from the addresses of a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// Members from a file that another program writes. (The Collector has no such resolver.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<File>,
    /// Not supported: use `dns` with the name of a headless service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k8s: Option<Unread>,
    /// Not supported: use `dns` with the name of the service in the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_cloud_map: Option<Unread>,
}

/// A fixed list of members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Static {
    /// Addresses of the members, as `host:port`, at least one. The default port is 4317. All senders must spell a
    /// member's address in the same way, because the keys of a member depend on the address. Required.
    pub hostnames: Vec<String>,
}

/// A host name whose addresses are the members, such as the name of a headless service of
/// Kubernetes. The system's resolver looks up the name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    /// Host name to resolve. With TLS, the certificates of the members must be valid for this name
    /// unless `server_name_override` is set. Required.
    pub hostname: String,
    /// Port of all members. Default: 4317.
    pub port: String,
    /// Interval between two lookups of the name. Default: 5s.
    pub interval: Duration,
    /// Time limit of one lookup. Default: 1s.
    pub timeout: Duration,
}

/// A file that lists the members in the format of Prometheus' `file_sd_configs`: a list, as JSON or
/// YAML, of `{targets: ["host:port"]}`. Labels are ignored. Changes take effect within seconds. If
/// the file cannot be read or has no targets, the members stay the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Path of the file; must end with `.json`, `.yml` or `.yaml`. Required.
    pub path: PathBuf,
    /// Interval between two reads of the file if no change is noticed. Default: 5m.
    pub refresh_interval: Duration,
}

/// Pause before a failed member is tried again. The pause doubles with every consecutive failure.
/// If all other members have failed too, the member is tried despite the pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemberBackoff {
    /// Pause after the first failure. Default: 1s.
    pub initial_interval: Duration,
    /// Longest pause. Default: 30s.
    pub max_interval: Duration,
}

/// Default port of OTLP over gRPC.
pub(super) const DEFAULT_PORT: u16 = 4317;

impl Default for Config {
    fn default() -> Self {
        Config {
            routing_key: None,
            routing_attributes: Vec::new(),
            protocol: MemberProtocol::default(),
            resolver: Resolver::default(),
            hash_balance_factor: 0,
            member_backoff: MemberBackoff::default(),
            timeout: Duration::default(),
            sending_queue: Section(Some(QueueConfig::default())),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

impl Default for Dns {
    fn default() -> Self {
        Dns {
            hostname: String::new(),
            port: DEFAULT_PORT.to_string(),
            interval: Duration::secs(5),
            timeout: Duration::secs(1),
        }
    }
}

impl Default for File {
    fn default() -> Self {
        File {
            path: PathBuf::new(),
            refresh_interval: Duration::secs(300),
        }
    }
}

impl Default for MemberBackoff {
    fn default() -> Self {
        MemberBackoff {
            initial_interval: Duration::secs(1),
            max_interval: Duration::secs(30),
        }
    }
}

impl RoutingKey {
    /// Returns the name used in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            RoutingKey::Service => "service",
            RoutingKey::TraceId => "traceID",
            RoutingKey::Resource => "resource",
            RoutingKey::Metric => "metric",
            RoutingKey::StreamId => "streamID",
            RoutingKey::Attributes => "attributes",
            RoutingKey::ProfileSeries => "profile_series",
        }
    }

    /// Returns the signals that support this key.
    pub fn signals(self) -> &'static [Signal] {
        match self {
            RoutingKey::Service | RoutingKey::Resource | RoutingKey::Attributes => &Signal::ALL,
            RoutingKey::TraceId => &[Signal::Traces, Signal::Logs],
            RoutingKey::Metric | RoutingKey::StreamId => &[Signal::Metrics],
            RoutingKey::ProfileSeries => &[Signal::Profiles],
        }
    }

    /// Returns the Collector's default key of a signal.
    pub fn default_of(signal: Signal) -> Self {
        match signal {
            Signal::Traces => RoutingKey::TraceId,
            _ => RoutingKey::Service,
        }
    }
}

impl Dns {
    /// Returns the port, or `None` if the port is invalid.
    pub(super) fn port(&self) -> Option<u16> {
        self.port.parse().ok().filter(|port| *port != 0)
    }
}

/// Adds the default port to a member's address if the address has no port.
pub(super) fn with_port(hostname: &str) -> String {
    let given = Endpoint(hostname.to_owned());
    // An invalid address stays unchanged, so that `check_address` reports it.
    match given.check().is_ok() || hostname.contains("://") {
        true => given.0,
        false => Endpoint::new(hostname, DEFAULT_PORT).0,
    }
}

/// Checks a member's address; the error is a sentence for the user.
pub(super) fn check_address(address: &str) -> Result<(), String> {
    let endpoint = Endpoint(address.to_owned());
    endpoint.check()?;
    if endpoint.host().is_empty() || endpoint.port() == Some(0) {
        return Err(format!(
            "`{address}` is not a server address: write `host:port`"
        ));
    }
    Ok(())
}

impl Validate for Static {
    fn validate(&self, problems: &mut Problems) {
        if self.hostnames.is_empty() {
            problems.error(
                &["hostnames"],
                "must not be empty: list the addresses of the members",
            );
        }
        let mut seen: Vec<String> = Vec::new();
        for (at, hostname) in self.hostnames.iter().enumerate() {
            let at = at.to_string();
            let address = with_port(hostname);
            if let Err(message) = check_address(&address) {
                problems.error(&["hostnames", &at], message);
            } else if seen.contains(&address) {
                let message = format!("the member `{address}` is listed twice");
                problems.error(&["hostnames", &at], message);
            }
            seen.push(address);
        }
    }
}

impl Validate for Dns {
    fn validate(&self, problems: &mut Problems) {
        let endpoint = Endpoint(format!("{}:1", self.hostname));
        if self.hostname.is_empty() {
            problems.error(&["hostname"], "must be set");
        } else if self.hostname.contains(':') || endpoint.check().is_err() {
            let message = format!(
                "`{}` is not a host name: write the name alone, and the port in `port`",
                self.hostname
            );
            problems.error(&["hostname"], message);
        }
        if self.port().is_none() {
            problems.error(&["port"], "must be a number from 1 to 65535");
        }
        for (key, duration) in [("interval", self.interval), ("timeout", self.timeout)] {
            if duration.is_zero() {
                problems.error(&[key], "must be above 0");
            }
        }
    }
}

impl Validate for File {
    fn validate(&self, problems: &mut Problems) {
        if !is_targets_file(&self.path) {
            problems.error(
                &["path"],
                "must be a file that ends with .json, .yml or .yaml",
            );
        }
        if self.refresh_interval.is_zero() {
            problems.error(&["refresh_interval"], "must be above 0");
        }
    }
}

impl Validate for Resolver {
    fn validate(&self, problems: &mut Problems) {
        if self.k8s.is_some() {
            let message = "the resolver `k8s` is not built in: use `dns`, with the name of a headless service, as in \
                           `members.telemetry.svc.cluster.local`";
            problems.error(&["k8s"], message);
        }
        if self.aws_cloud_map.is_some() {
            let message = "the resolver `aws_cloud_map` is not built in: use `dns`, with the name of the \
                           service, as in `service.namespace`";
            problems.error(&["aws_cloud_map"], message);
        }
        let known = [
            self.fixed.is_some(),
            self.dns.is_some(),
            self.file.is_some(),
        ];
        let refused = self.k8s.is_some() || self.aws_cloud_map.is_some();
        match known.iter().filter(|given| **given).count() {
            0 if !refused => {
                let message = "must have one of `static`, `dns`, `file`, which lists the members";
                problems.error(&[], message);
            }
            0 | 1 => {}
            _ => problems.error(
                &[],
                "has more than one of `static`, `dns`, `file`: keep one",
            ),
        }
        if let Some(fixed) = &self.fixed {
            problems.within("static", fixed);
        }
        if let Some(dns) = &self.dns {
            problems.within("dns", dns);
        }
        if let Some(file) = &self.file {
            problems.within("file", file);
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let by_attributes = self.routing_key == Some(RoutingKey::Attributes);
        if by_attributes && self.routing_attributes.is_empty() {
            let message = "must not be empty with `routing_key: attributes`: list the attributes that form the key";
            problems.error(&["routing_attributes"], message);
        }
        if !by_attributes && !self.routing_attributes.is_empty() {
            problems.error(&["routing_attributes"], "needs `routing_key: attributes`");
        }
        let hostnames = self
            .resolver
            .fixed
            .iter()
            .flat_map(|fixed| &fixed.hostnames);
        let sample = hostnames.map(|name| with_port(name)).next();
        let mut protocol = Problems::default();
        self.protocol
            .check(sample.as_deref().unwrap_or("member:4317"), &mut protocol);
        problems.extend(&["protocol"], protocol);
        problems.within("resolver", &self.resolver);
        let of_member = self.protocol.otlp.timeout;
        if !self.timeout.is_zero() && (of_member.is_zero() || self.timeout <= of_member) {
            let message = "must be longer than the `timeout` of `protocol.otlp`; otherwise a request that one \
                           member does not answer is never sent to another member";
            problems.warning(&["timeout"], message);
        }
        if (1..=100).contains(&self.hash_balance_factor) {
            let message = "must be 0 (no bound) or above 100: the average load of a member is 100%";
            problems.error(&["hash_balance_factor"], message);
        }
        let MemberBackoff {
            initial_interval,
            max_interval,
        } = self.member_backoff;
        if initial_interval.is_zero() {
            problems.error(&["member_backoff", "initial_interval"], "must be above 0");
        }
        if max_interval < initial_interval {
            let message = "must not be below initial_interval";
            problems.error(&["member_backoff", "max_interval"], message);
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
        let auth = self.protocol.otlp.auth.iter();
        let auth = auth.map(|auth| auth.client_use(&["protocol", "otlp", "auth"]));
        auth.chain(self.sending_queue.iter().filter_map(QueueConfig::uses))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        crate::testing::problems::<Config>(yaml)
    }

    #[test]
    fn a_collectors_file_is_read() {
        let yaml = "
routing_key: service
protocol: {otlp: {timeout: 1s, tls: {insecure: true}, sending_queue: {enabled: false}}}
resolver: {static: {hostnames: ['backend-1:4317', backend-2, '::1']}}
timeout: 10s
retry_on_failure: {enabled: true, max_elapsed_time: 0s}
sending_queue: {queue_size: 5000}
";
        assert_eq!(problems(yaml), Vec::<String>::new());
        let yaml = "
protocol: {otlp: {tls: {insecure: true}}}
resolver: {dns: {hostname: members.local, port: 5317}}
";
        assert_eq!(problems(yaml), Vec::<String>::new());
    }

    #[test]
    fn every_rule_is_reported_at_its_key() {
        let yaml = "
routing_attributes: [a]
protocol:
  otlp:
    endpoint: 'a:1'
    compression_params: {level: 99}
    sending_queue: {queue_size: 1}
    retry_on_failure: {}
resolver:
  static: {hostnames: ['a:1', 'a:1', 'http://b', ':1', 'c:0']}
  dns: {hostname: 'a:1', port: 0, interval: 0s, timeout: 0s}
  file: {path: members.txt, refresh_interval: 0s}
  k8s: {service: a}
hash_balance_factor: 100
member_backoff: {initial_interval: 0s}
sending_queue: {num_consumers: 0}
retry_on_failure: {multiplier: 0}
";
        assert_eq!(
            problems(yaml),
            [
                "routing_attributes",
                "protocol::otlp::endpoint",
                "protocol::otlp::sending_queue",
                "protocol::otlp::retry_on_failure",
                "protocol::otlp::compression_params::level",
                "resolver::k8s",
                "resolver",
                "resolver::static::hostnames::1",
                "resolver::static::hostnames::2",
                "resolver::static::hostnames::3",
                "resolver::static::hostnames::4",
                "resolver::dns::hostname",
                "resolver::dns::port",
                "resolver::dns::interval",
                "resolver::dns::timeout",
                "resolver::file::path",
                "resolver::file::refresh_interval",
                "hash_balance_factor",
                "member_backoff::initial_interval",
                "sending_queue::num_consumers",
                "retry_on_failure::multiplier",
            ]
        );
        assert_eq!(
            problems("{routing_key: attributes}"),
            ["routing_attributes", "resolver"]
        );
        let backoff =
            "{resolver: {static: {hostnames: [a]}}, member_backoff: {max_interval: 500ms}}";
        assert_eq!(problems(backoff), ["member_backoff::max_interval"]);
    }
}
