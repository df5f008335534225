//! Exporters of the collector's own telemetry, in OpenTelemetry's declarative configuration schema, versions 0.3 and 1.0.
//!
//! Times are numbers in milliseconds, as in that schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use http::{HeaderName, HeaderValue};
use tributary_config::{Headers, Problems, Unread, Validate};
use tributary_net::client::parse_url;
use tributary_net::percent::percent_decoded;
use tributary_net::tls::ClientTls;

/// Destination of the collector's own telemetry: exactly one exporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PushExporter {
    /// OTLP over HTTP or gRPC, as `protocol` says (schema 0.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<PushOtlp>,
    /// OTLP over HTTP (schema 1.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_http: Option<PushOtlp>,
    /// OTLP over gRPC (schema 1.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_grpc: Option<PushOtlp>,
    /// Output to stdout. Not supported: use the endpoint of metrics or `output_paths` of logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<Unread>,
}

/// Address and settings of an OTLP server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PushOtlp {
    /// `http/protobuf`, `http/json` or `grpc`; only in the section `otlp`. Default: `http/protobuf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<PushProtocol>,
    /// URL of the server. Over HTTP, a URL without a path gets the path of the signal. Over gRPC, `host:port` is accepted too.
    /// Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Headers added to every request, as a list of `name` and `value` or as a map. Default: none.
    pub headers: Headers,
    /// Headers as one text, `name=value,name=value`, with percent-encoded values; `headers` has precedence. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_list: Option<tributary_config::Secret>,
    /// Compression of requests: `gzip` or `none`. Default: `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<PushCompression>,
    /// Time limit of an export in milliseconds, retries included. Above 0. Default: 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Encoding of requests over HTTP: `protobuf` or `json`. Default: `protobuf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<PushEncoding>,
    /// Whether gRPC uses plaintext when the endpoint has no scheme. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    /// File with the trusted certificate authorities (PEM), in schema 0.3. Default: the system's authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// File with the client certificate (PEM), in schema 0.3. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<String>,
    /// File with the key of the client certificate (PEM), in schema 0.3. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// Files for TLS, in schema 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<PushTls>,
    /// Temporality of sums and histograms. Only `cumulative`, the default, is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporality_preference: Option<PushTemporality>,
    /// Form of histograms. Only `explicit_bucket_histogram`, the default, is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_histogram_aggregation: Option<PushHistogram>,
}

/// Files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PushTls {
    /// File with the trusted certificate authorities (PEM). Default: the system's authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// File with the client certificate (PEM). Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<String>,
    /// File with the key of the client certificate (PEM). Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// Whether gRPC uses plaintext when the endpoint has no scheme. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
}

/// Protocol of an OTLP exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PushProtocol {
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP.
    #[serde(rename = "http/json")]
    HttpJson,
    /// Protobuf over gRPC.
    #[serde(rename = "grpc", alias = "grpc/protobuf")]
    Grpc,
}

/// Compression of own telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PushCompression {
    /// gzip (RFC 1952).
    Gzip,
    /// No compression.
    None,
}

/// Encoding over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PushEncoding {
    /// Binary protobuf.
    Protobuf,
    /// OTLP/JSON.
    Json,
}

/// Temporality of sums and histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushTemporality {
    /// Totals since the start of the process.
    Cumulative,
    /// Differences since the previous export. Not supported.
    Delta,
    /// Differences for some instruments. Not supported.
    #[serde(alias = "lowmemory")]
    LowMemory,
}

/// Form of histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushHistogram {
    /// Buckets with configured bounds.
    ExplicitBucketHistogram,
    /// Exponential buckets. Not supported.
    Base2ExponentialBucketHistogram,
}

/// Transport of own telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// HTTP with binary protobuf, or with JSON.
    Http {
        /// Whether requests are JSON.
        is_json: bool,
    },
    /// gRPC.
    Grpc,
}

/// Default time limit of an export in milliseconds (declarative configuration schema, `OtlpHttpExporter.timeout`).
const TIMEOUT: u64 = 10_000;

impl PushExporter {
    /// Returns the exporter and its transport; `None` in an invalid configuration.
    pub fn selected(&self) -> Option<(Transport, &PushOtlp)> {
        let is_json = |otlp: &PushOtlp| otlp.encoding == Some(PushEncoding::Json);
        if let Some(otlp) = &self.otlp {
            let transport = match otlp.protocol {
                Some(PushProtocol::Grpc) => Transport::Grpc,
                Some(PushProtocol::HttpJson) => Transport::Http { is_json: true },
                _ => Transport::Http {
                    is_json: is_json(otlp),
                },
            };
            return Some((transport, otlp));
        }
        let http = self.otlp_http.as_ref().map(|otlp| {
            let is_json = is_json(otlp);
            (Transport::Http { is_json }, otlp)
        });
        http.or_else(|| self.otlp_grpc.as_ref().map(|otlp| (Transport::Grpc, otlp)))
    }

    fn sections(&self) -> [(&'static str, Option<&PushOtlp>); 3] {
        [
            ("otlp", self.otlp.as_ref()),
            ("otlp_http", self.otlp_http.as_ref()),
            ("otlp_grpc", self.otlp_grpc.as_ref()),
        ]
    }
}

impl PushOtlp {
    /// Returns the time limit of an export.
    pub fn time_limit(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.timeout.unwrap_or(TIMEOUT))
    }

    /// Returns the headers of both keys.
    pub fn all_headers(&self) -> Headers {
        let mut headers = self.headers.clone();
        for (name, value) in self.listed_headers().flatten() {
            let is_known = |(known, _): (&str, &str)| known.eq_ignore_ascii_case(name);
            if !headers.iter().any(is_known) {
                headers.0.push((name.to_owned(), value.as_str().into()));
            }
        }
        headers
    }

    /// Returns the pairs of `headers_list`; `None` for a malformed pair. Values are percent-encoded, as in W3C Baggage.
    fn listed_headers(&self) -> impl Iterator<Item = Option<(&str, String)>> {
        let list = self.headers_list.iter();
        let pairs = list.flat_map(|list| list.reveal().split(','));
        let pairs = pairs.filter(|pair| !pair.trim().is_empty());
        pairs.map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = String::from_utf8(percent_decoded(value.trim())?).ok()?;
            let name = name.trim();
            let is_valid =
                HeaderName::try_from(name).is_ok() && HeaderValue::try_from(&value).is_ok();
            is_valid.then_some((name, value))
        })
    }

    /// Returns the TLS settings. `insecure` is that of gRPC.
    pub fn client_tls(&self) -> ClientTls {
        let tls = self.tls.clone().unwrap_or_default();
        let file = |new: Option<String>, old: &Option<String>| {
            new.or_else(|| old.clone()).unwrap_or_default().into()
        };
        ClientTls {
            insecure: self.endpoint.starts_with("http://")
                || tls.insecure.or(self.insecure).unwrap_or(false),
            ca_file: file(tls.ca_file, &self.certificate),
            cert_file: file(tls.cert_file, &self.client_certificate),
            key_file: file(tls.key_file, &self.client_key),
            ..ClientTls::default()
        }
    }
}

impl Validate for PushExporter {
    fn validate(&self, problems: &mut Problems) {
        if self.console.is_some() {
            let message = "is not supported: export by `otlp_http` or `otlp_grpc`";
            problems.error(&["console"], message);
        }
        let sections = self.sections();
        let given: Vec<_> = sections
            .iter()
            .filter_map(|(name, otlp)| otlp.map(|otlp| (*name, otlp)))
            .collect();
        match given.as_slice() {
            [] if self.console.is_none() => {
                let message = "must have an exporter: add `otlp_http: {endpoint: URL}`";
                problems.error(&[], message);
            }
            [_, (second, _), ..] => {
                problems.error(&[second], "only one exporter is supported: remove this one");
            }
            _ => {}
        }
        for (name, otlp) in given {
            if name != "otlp" && otlp.protocol.is_some() {
                let message = "belongs to the exporter `otlp`: remove it";
                problems.error(&[name, "protocol"], message);
            }
            problems.within(name, otlp);
        }
        self.check_transport(problems);
        if let Some((Transport::Http { .. }, otlp)) = self.selected()
            && !otlp.endpoint.is_empty()
            && let Err(problem) = parse_url(&otlp.endpoint)
        {
            let section = sections.iter().find(|(_, otlp)| otlp.is_some());
            let name = section.map_or("otlp", |(name, _)| name);
            problems.error(&[name, "endpoint"], problem);
        }
    }
}

impl PushExporter {
    /// Reports keys that belong to the other transport.
    fn check_transport(&self, problems: &mut Problems) {
        let section = self.sections().into_iter().find(|(_, otlp)| otlp.is_some());
        let (Some((transport, otlp)), Some((name, _))) = (self.selected(), section) else {
            return;
        };
        if transport == Transport::Grpc {
            if otlp.encoding.is_some() {
                let message = "belongs to OTLP over HTTP: remove it";
                problems.error(&[name, "encoding"], message);
            }
            return;
        }
        let message = "belongs to OTLP over gRPC: begin the endpoint with http:// for plaintext";
        if otlp.insecure.is_some() {
            problems.error(&[name, "insecure"], message);
        }
        if otlp.tls.as_ref().is_some_and(|tls| tls.insecure.is_some()) {
            problems.error(&[name, "tls", "insecure"], message);
        }
    }
}

impl Validate for PushOtlp {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.is_empty() {
            problems.error(&["endpoint"], "requires a non-empty \"endpoint\"");
        }
        if self.timeout == Some(0) {
            problems.error(&["timeout"], "must be above 0 milliseconds");
        }
        if self.listed_headers().any(|pair| pair.is_none()) {
            let message = "must be `name=value,name=value` with percent-encoded values";
            problems.error(&["headers_list"], message);
        }
        if self
            .temporality_preference
            .is_some_and(|choice| choice != PushTemporality::Cumulative)
        {
            let message = "is not supported: own metrics are cumulative; remove it";
            problems.error(&["temporality_preference"], message);
        }
        if self.default_histogram_aggregation
            == Some(PushHistogram::Base2ExponentialBucketHistogram)
        {
            let message = "is not supported: own histograms have explicit buckets; remove it";
            problems.error(&["default_histogram_aggregation"], message);
        }
        let tls = self.client_tls();
        if !tls.is_plaintext() {
            tls.validate_for_tls("tls", problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::problems;

    #[test]
    fn listed_headers_are_decoded_and_yield_to_headers() {
        let otlp: PushOtlp = serde_yaml::from_str(
            "{headers: {Authorization: a}, headers_list: 'authorization=b, x-scope=Basic%20abc'}",
        )
        .unwrap();
        let headers = otlp.all_headers();
        let headers: Vec<_> = headers.iter().collect();
        assert_eq!(headers, [("Authorization", "a"), ("x-scope", "Basic abc")]);
    }

    #[test]
    fn keys_of_the_other_transport_are_refused() {
        let problems = problems::<PushExporter>;
        let http = "{otlp_http: {endpoint: 'http://a', insecure: true, tls: {insecure: true}}}";
        assert_eq!(
            problems(http),
            ["otlp_http::insecure", "otlp_http::tls::insecure"]
        );
        let grpc = "{otlp: {protocol: grpc, endpoint: 'a:1', encoding: json, insecure: true}}";
        assert_eq!(problems(grpc), ["otlp::encoding"]);
        let list = "{otlp_http: {endpoint: 'http://a', headers_list: 'a=b,c'}}";
        assert_eq!(problems(list), ["otlp_http::headers_list"]);
    }
}
