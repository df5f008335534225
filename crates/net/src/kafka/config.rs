//! Connection settings of the Kafka exporter and receiver.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::open_regular;
use tributary_config::units::Duration;
use tributary_config::{Problems, Secret};
use tributary_otlp::Signal;

/// Connection settings of one component.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'c> {
    /// Value of `brokers`.
    pub brokers: &'c [String],
    /// Value of `protocol_version`.
    pub protocol_version: &'c str,
    /// Value of `client_id`.
    pub client_id: &'c str,
    /// Value of `resolve_canonical_bootstrap_servers_only`.
    pub resolve_canonical_names: bool,
    /// Value of `conn_idle_timeout`.
    pub idle_timeout: Duration,
    /// Value of `metadata`.
    pub metadata: &'c ClusterMetadata,
    /// Value of `tls`.
    pub tls: Option<&'c Tls>,
    /// Value of `auth`.
    pub auth: &'c KafkaAuth,
}

/// Defines a section with the keys of a connection to Kafka, their defaults, `connection()` and `signal()`. The keys are
/// listed here once for all components that have them.
#[macro_export]
macro_rules! kafka_section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {
            signals: $Signal:ty,
            $($(#[$doc:meta])* $key:ident: $Type:ty = $default:expr,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            /// Bootstrap brokers, as `host:port`. Default: `localhost:9092`.
            pub brokers: Vec<String>,
            /// Minimum Kafka version of the brokers. Clients and brokers negotiate the version of each request, so
            /// this setting only rejects versions that are too old: the first supported one is 0.11. Default:
            /// `2.1.0`.
            pub protocol_version: String,
            /// Client id in the logs, metrics and quotas of the brokers. Default: `otel-collector`.
            pub client_id: String,
            /// Whether to replace the names in `brokers` by their canonical names, as Kerberos requires. Default:
            /// false.
            pub resolve_canonical_bootstrap_servers_only: bool,
            /// Time after which an idle connection is closed; 0 disables the timeout. Default: 9m.
            pub conn_idle_timeout: ::tributary_config::units::Duration,
            /// Refresh of the metadata of topics and brokers.
            pub metadata: $crate::kafka::ClusterMetadata,
            /// TLS to the brokers. Default: off, plaintext.
            pub tls: ::tributary_config::Section<$crate::kafka::Tls>,
            /// Authentication to the brokers. Default: none.
            pub auth: $crate::kafka::KafkaAuth,
            /// Topics and encoding of traces. Default: topic `otlp_spans`.
            pub traces: $Signal,
            /// Topics and encoding of metrics. Default: topic `otlp_metrics`.
            pub metrics: $Signal,
            /// Topics and encoding of logs. Default: topic `otlp_logs`.
            pub logs: $Signal,
            /// Topics and encoding of profiles. Default: topic `otlp_profiles`.
            pub profiles: $Signal,
            $($(#[$doc])* pub $key: $Type,)*
        }

        impl Default for $Section {
            fn default() -> Self {
                $Section {
                    brokers: $crate::kafka::default_brokers(),
                    protocol_version: "2.1.0".to_owned(),
                    client_id: "otel-collector".to_owned(),
                    resolve_canonical_bootstrap_servers_only: false,
                    conn_idle_timeout: ::tributary_config::units::Duration::secs(9 * 60),
                    metadata: Default::default(),
                    tls: ::tributary_config::Section(None),
                    auth: Default::default(),
                    traces: Default::default(),
                    metrics: Default::default(),
                    logs: Default::default(),
                    profiles: Default::default(),
                    $($key: $default,)*
                }
            }
        }

        impl $Section {
            /// Returns the settings of the connections to the brokers.
            pub fn connection(&self) -> $crate::kafka::Connection<'_> {
                $crate::kafka::Connection {
                    brokers: &self.brokers,
                    protocol_version: &self.protocol_version,
                    client_id: &self.client_id,
                    resolve_canonical_names: self.resolve_canonical_bootstrap_servers_only,
                    idle_timeout: self.conn_idle_timeout,
                    metadata: &self.metadata,
                    tls: self.tls.as_ref(),
                    auth: &self.auth,
                }
            }

            /// Returns the topics and encoding of a signal.
            pub fn signal(&self, signal: ::tributary_otlp::Signal) -> &$Signal {
                match signal {
                    ::tributary_otlp::Signal::Traces => &self.traces,
                    ::tributary_otlp::Signal::Metrics => &self.metrics,
                    ::tributary_otlp::Signal::Logs => &self.logs,
                    ::tributary_otlp::Signal::Profiles => &self.profiles,
                }
            }
        }
    };
}

/// Metadata of topics and brokers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterMetadata {
    /// Interval at which topics, partitions and their leaders are queried if nothing has failed. New topics that match
    /// a pattern are found within this time. From 10ms to 1h. Default: 10m.
    pub refresh_interval: Duration,
}

/// TLS to the brokers, by OpenSSL. When a file changes, a new client connects with the new files. If the new files
/// cannot be used, the old client stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Whether to use plaintext, unless certificate authorities are given. Default: false.
    pub insecure: bool,
    /// Whether to accept any certificate of the brokers. An attacker on the network can then read and change the data.
    /// Default: false.
    pub insecure_skip_verify: bool,
    /// File with the trusted certificate authorities (PEM). Default: the system's authorities.
    pub ca_file: PathBuf,
    /// Trusted certificate authorities as PEM text. Cannot be combined with `ca_file`.
    pub ca_pem: String,
    /// File with certificate revocation lists (PEM) for the brokers' certificates. (The Collector has no such key.)
    pub crl_file: PathBuf,
    /// File with the client certificate chain (PEM), for mutual TLS.
    pub cert_file: PathBuf,
    /// Client certificate chain as PEM text. Cannot be combined with `cert_file`.
    pub cert_pem: String,
    /// File with the private key of the client certificate (PEM, unencrypted).
    pub key_file: PathBuf,
    /// Private key as PEM text. Cannot be combined with `key_file`.
    pub key_pem: Secret,
}

/// Authentication at the brokers, in addition to a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaAuth {
    /// SASL with user and password. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
}

/// SASL with a user and a password.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sasl {
    /// User name. Required.
    pub username: String,
    /// Password. Required.
    pub password: Secret,
    /// SASL mechanism. `PLAIN` sends the password itself, so use it with TLS only. `SCRAM-SHA-256` and `SCRAM-SHA-512`
    /// prove knowledge of the password without sending it. Default: `PLAIN`.
    pub mechanism: Mechanism,
}

/// SASL mechanism.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// RFC 4616: sends the password.
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    /// RFC 7677: challenge and response with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// Challenge and response with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

/// Encoding of record values. Records do not declare their encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordEncoding {
    /// An OTLP request in protobuf.
    #[default]
    OtlpProto,
    /// An OTLP request in OTLP/JSON.
    OtlpJson,
}

impl Default for ClusterMetadata {
    fn default() -> Self {
        ClusterMetadata {
            refresh_interval: Duration::secs(600),
        }
    }
}

impl Mechanism {
    /// Returns the registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Returns the default topic of a signal, as in the Collector.
pub const fn default_topic(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "otlp_spans",
        Signal::Metrics => "otlp_metrics",
        Signal::Logs => "otlp_logs",
        Signal::Profiles => "otlp_profiles",
    }
}

/// Returns the default brokers, as in the Collector.
pub fn default_brokers() -> Vec<String> {
    vec!["localhost:9092".to_owned()]
}

/// Converts a duration to whole milliseconds for librdkafka, rounding up so that no duration becomes 0.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Tls {
    /// Whether plaintext is configured.
    pub fn is_plaintext(&self) -> bool {
        self.insecure && self.ca_pem.is_empty() && self.ca_file.as_os_str().is_empty()
    }

    fn validate(&self, problems: &mut Problems) {
        let files = [
            ("ca_file", &self.ca_file, "ca_pem", self.ca_pem.is_empty()),
            ("crl_file", &self.crl_file, "", true),
            (
                "cert_file",
                &self.cert_file,
                "cert_pem",
                self.cert_pem.is_empty(),
            ),
            (
                "key_file",
                &self.key_file,
                "key_pem",
                self.key_pem.reveal().is_empty(),
            ),
        ];
        for (key, file, text_key, no_text) in files {
            if file.as_os_str().is_empty() {
                continue;
            }
            if !no_text {
                let reason =
                    format!("`{key}` and `{text_key}` cannot be combined: remove one of the two");
                problems.error(&["tls", key], reason);
            }
            if let Err(error) = open_regular(file) {
                problems.error(&["tls", key], error.to_string());
            }
        }
        let given = |file: &Path, text: &str| !file.as_os_str().is_empty() || !text.is_empty();
        let certificate = given(&self.cert_file, &self.cert_pem);
        let key = given(&self.key_file, self.key_pem.reveal());
        if certificate && !key {
            problems.error(
                &["tls"],
                "a certificate needs its private key: set `key_file` or `key_pem`",
            );
        }
        if key && !certificate {
            problems.error(
                &["tls"],
                "a private key needs its certificate: set `cert_file` or `cert_pem`",
            );
        }
    }
}

impl Connection<'_> {
    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some_and(|tls| !tls.is_plaintext())
    }

    /// Reports mistakes, including a build without the Kafka client.
    pub fn validate(&self, problems: &mut Problems) {
        if cfg!(not(feature = "kafka")) {
            problems.error(
                &[],
                "this collector was built without Kafka: build it with `cargo build --release --features kafka`",
            );
        }
        if self.brokers.is_empty() {
            problems.error(
                &["brokers"],
                "must be specified: list at least one, as in `kafka.example:9092`",
            );
        }
        for (at, broker) in self.brokers.iter().enumerate() {
            let is_address = !broker.is_empty()
                && !broker.contains("://")
                && !broker.contains(|letter: char| letter == ',' || letter.is_whitespace());
            if !is_address {
                let reason = format!(
                    "`{broker}` is not a broker address: write `host:port`, as in `kafka.example:9092`"
                );
                problems.error(&["brokers", &at.to_string()], reason);
            }
        }
        self.validate_version(problems);
        if !(10..=3_600_000).contains(&milliseconds(self.metadata.refresh_interval)) {
            problems.error(&["metadata", "refresh_interval"], "must be from 10ms to 1h");
        }
        if milliseconds(self.idle_timeout) > MAX_MILLISECONDS {
            problems.error(&["conn_idle_timeout"], "must be at most 596h");
        }
        if let Some(tls) = self.tls {
            tls.validate(problems);
        }
        if let Some(sasl) = &self.auth.sasl {
            for (key, value) in [
                ("username", sasl.username.as_str()),
                ("password", sasl.password.reveal()),
            ] {
                if value.is_empty() {
                    problems.error(&["auth", "sasl", key], "must be specified");
                }
            }
            if sasl.mechanism == Mechanism::Plain && !self.is_tls() {
                problems.warning(
                    &["auth", "sasl", "mechanism"],
                    "PLAIN without `tls` sends the password unencrypted: set `tls`, or a SCRAM mechanism",
                );
            }
        }
    }

    /// Checks the protocol version. Brokers and clients negotiate the version of each request, so the key can only
    /// demand too much.
    fn validate_version(&self, problems: &mut Problems) {
        let numbers: Result<Vec<u32>, _> =
            self.protocol_version.split('.').map(str::parse).collect();
        match numbers {
            Ok(numbers) if (2..=4).contains(&numbers.len()) => {
                if numbers.as_slice() < [0, 11].as_slice() {
                    problems.error(
                        &["protocol_version"],
                        "brokers before 0.11 are not supported, because they lack headers and idempotent producers",
                    );
                }
            }
            _ => problems.error(
                &["protocol_version"],
                "must be a Kafka version, as in `2.1.0`",
            ),
        }
    }
}

/// librdkafka stores times in 31 bits.
const MAX_MILLISECONDS: u64 = i32::MAX as u64;
