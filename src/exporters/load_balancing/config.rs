//! Configuration of the `load_balancing` exporter.

mod resolver;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use self::resolver::{DEFAULT_PORT, check_address, with_port};
pub use self::resolver::{Dns, File, Resolver, Static};
use super::protocol::MemberProtocol;
use crate::queue::{QueueConfig, RetryConfig};
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Problems, Section, Validate};
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
        crate::queue::warn_about_retry_limit(queue, retry, problems);
    }

    fn blocks_pipelines(&self) -> bool {
        crate::queue::blocks_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.protocol.otlp.auth.iter();
        let auth = auth.map(|auth| auth.client_use(&["protocol", "otlp", "auth"]));
        auth.chain(self.sending_queue.iter().filter_map(QueueConfig::uses))
            .collect()
    }
}

#[cfg(test)]
mod tests;
