//! Types of values in Prometheus' configuration.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use tributary_prometheus::duration;

/// A duration in Prometheus' notation: `15s`, `1m30s`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrometheusDuration(pub Duration);

impl TryFrom<String> for PrometheusDuration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = duration::parse(&text).map(PrometheusDuration);
        parsed.ok_or_else(|| {
            format!("`{text}` is not a duration of Prometheus: write `15s`, `1m30s` or `500ms`, for example")
        })
    }
}

impl From<PrometheusDuration> for String {
    fn from(duration: PrometheusDuration) -> Self {
        duration::format(duration.0)
    }
}

impl JsonSchema for PrometheusDuration {
    fn schema_name() -> Cow<'static, str> {
        "PrometheusDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "A duration in Prometheus' notation, such as `15s`, `1m30s` or `1d`."})
    }
}

/// An amount of bytes in Prometheus' notation: `10MB` and `10MiB` are both 10 times 1048576 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Base2Size(pub u64);

const UNITS: [(&str, u32); 6] = [
    ("E", 60),
    ("P", 50),
    ("T", 40),
    ("G", 30),
    ("M", 20),
    ("K", 10),
];

impl TryFrom<String> for Base2Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let invalid = || format!("`{text}` is not a size: write `10MB`, for example");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let unit = unit.strip_suffix('B').unwrap_or(unit);
        let unit = unit.strip_suffix('i').unwrap_or(unit);
        let shift = match unit {
            "" => 0,
            unit => {
                UNITS
                    .iter()
                    .find(|(name, _)| *name == unit)
                    .ok_or_else(invalid)?
                    .1
            }
        };
        let bytes = number.checked_mul(1 << shift).ok_or_else(invalid)?;
        Ok(Base2Size(bytes))
    }
}

impl From<Base2Size> for String {
    fn from(size: Base2Size) -> Self {
        let unit = UNITS
            .iter()
            .find(|(_, shift)| size.0 != 0 && size.0.is_multiple_of(1 << shift));
        match unit {
            Some((name, shift)) => format!("{}{name}iB", size.0 >> shift),
            None => format!("{}B", size.0),
        }
    }
}

impl JsonSchema for Base2Size {
    fn schema_name() -> Cow<'static, str> {
        "Base2Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "An amount of bytes, such as `10MB`; all units are powers of 1024."})
    }
}

/// Format that targets are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScrapeProtocol {
    /// Protobuf, the only format with native histograms.
    PrometheusProto,
    /// The draft of OpenMetrics.
    #[serde(rename = "OpenMetricsText0.0.1")]
    OpenMetricsText0_0_1,
    /// OpenMetrics.
    #[serde(rename = "OpenMetricsText1.0.0")]
    OpenMetricsText1_0_0,
    /// Prometheus' text format.
    #[serde(rename = "PrometheusText0.0.4")]
    PrometheusText0_0_4,
    /// Prometheus' text format with UTF-8 names.
    #[serde(rename = "PrometheusText1.0.0")]
    PrometheusText1_0_0,
}

impl ScrapeProtocol {
    /// Formats in Prometheus' default order.
    pub(in super::super) const DEFAULT: [ScrapeProtocol; 4] = [
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::PrometheusText1_0_0,
        ScrapeProtocol::PrometheusText0_0_4,
    ];

    /// Returns the media type in an `Accept` header.
    pub(in super::super) fn media_type(self) -> &'static str {
        match self {
            ScrapeProtocol::PrometheusProto => {
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
            }
            ScrapeProtocol::OpenMetricsText0_0_1 => "application/openmetrics-text;version=0.0.1",
            ScrapeProtocol::OpenMetricsText1_0_0 => "application/openmetrics-text;version=1.0.0",
            ScrapeProtocol::PrometheusText0_0_4 => "text/plain;version=0.0.4",
            ScrapeProtocol::PrometheusText1_0_0 => "text/plain;version=1.0.0",
        }
    }

    /// Whether the format has UTF-8 names, which the `Accept` header must ask for.
    pub(in super::super) fn has_escaping(self) -> bool {
        matches!(
            self,
            ScrapeProtocol::OpenMetricsText1_0_0 | ScrapeProtocol::PrometheusText1_0_0
        )
    }
}

/// Allowed names of metrics and labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NameScheme {
    /// All characters.
    #[default]
    Utf8,
    /// Letters, digits, underscores, and colons in names of metrics.
    Legacy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes, written) in [
            ("0", 0, "0B"),
            ("1500", 1500, "1500B"),
            ("10MB", 10 << 20, "10MiB"),
            ("10MiB", 10 << 20, "10MiB"),
            ("1GB", 1 << 30, "1GiB"),
            ("2K", 2048, "2KiB"),
        ] {
            let size = Base2Size::try_from(text.to_owned()).unwrap();
            assert_eq!((size.0, String::from(size).as_str()), (bytes, written));
        }
        for text in ["", "x", "1XB", "1.5MB", "-1", "99EB"] {
            assert!(Base2Size::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
