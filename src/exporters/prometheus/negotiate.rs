//! Content negotiation: chooses the format that the client prefers.

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) syntax: Syntax,
    /// The requested version of the syntax, if there are several.
    version: Version,
    /// Whether names may contain any character.
    pub(super) utf8: bool,
    /// Whether the client specified the escaping of names.
    escaping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics, as text.
    OpenMetrics,
    /// Length-prefixed messages of `io.prometheus.client`.
    Protobuf,
}

/// Versions: OpenMetrics 0.0.1 and 1.0.0, text 0.0.4 and 1.0.0. The later ones support quoted
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Old,
    New,
}

impl Format {
    /// The format that every client supports.
    pub(super) const TEXT: Format = Format {
        syntax: Syntax::Text,
        version: Version::Old,
        utf8: false,
        escaping: false,
    };

    /// Returns the format for these request headers. Among equal preferences, the first one wins.
    pub(super) fn negotiate(headers: &HeaderMap, open_metrics: bool) -> Self {
        let mut best: Option<(f32, Format)> = None;
        for range in elements(headers, ACCEPT.as_str()) {
            let Some(format) = Format::of(range, open_metrics) else {
                continue;
            };
            let quality = quality(range);
            if quality > 0.0 && best.is_none_or(|(best, _)| quality > best) {
                best = Some((quality, format));
            }
        }
        best.map_or(Format::TEXT, |(_, format)| format)
    }

    /// Returns the value of `Content-Type`.
    pub(super) fn content_type(self) -> HeaderValue {
        let base = match (self.syntax, self.version) {
            (Syntax::Text, Version::Old) => "text/plain; version=0.0.4; charset=utf-8",
            (Syntax::Text, Version::New) => "text/plain; version=1.0.0; charset=utf-8",
            (Syntax::OpenMetrics, Version::Old) => {
                "application/openmetrics-text; version=0.0.1; charset=utf-8"
            }
            (Syntax::OpenMetrics, Version::New) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
            (Syntax::Protobuf, _) => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        };
        let escaping = match (self.escaping, self.utf8) {
            (false, _) => "",
            (true, true) => "; escaping=allow-utf-8",
            (true, false) => "; escaping=underscores",
        };
        HeaderValue::try_from(format!("{base}{escaping}"))
            .unwrap_or(HeaderValue::from_static("text/plain"))
    }

    /// Returns the format of a media range if it is supported.
    fn of(range: &str, open_metrics: bool) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next()?.to_ascii_lowercase();
        let parameter = |name: &str| {
            let mut parameters = range
                .split(';')
                .skip(1)
                .filter_map(|part| part.split_once('='));
            let (_, value) = parameters.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
            Some(value.trim().trim_matches('"'))
        };
        let (version, escaping) = (parameter("version"), parameter("escaping"));
        let (syntax, version) = match (media.as_str(), version) {
            ("*/*" | "text/*", _) => (Syntax::Text, Version::Old),
            ("text/plain", None | Some("0.0.4")) => (Syntax::Text, Version::Old),
            ("text/plain", Some("1.0.0")) => (Syntax::Text, Version::New),
            ("application/openmetrics-text", None | Some("0.0.1")) if open_metrics => {
                (Syntax::OpenMetrics, Version::Old)
            }
            ("application/openmetrics-text", Some("1.0.0")) if open_metrics => {
                (Syntax::OpenMetrics, Version::New)
            }
            ("application/vnd.google.protobuf", _)
                if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && parameter("encoding").is_none_or(|encoding| encoding == "delimited") =>
            {
                (Syntax::Protobuf, Version::New)
            }
            _ => return None,
        };
        Some(Format {
            syntax,
            version,
            utf8: escaping == Some("allow-utf-8"),
            escaping: escaping.is_some(),
        })
    }
}

/// Whether the client accepts gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut codings = elements(headers, ACCEPT_ENCODING.as_str());
    codings.any(|coding| {
        let name = coding.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("gzip") && quality(coding) > 0.0
    })
}

/// Returns the elements of a list, over all headers of that name.
fn elements<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
}

/// Returns the weight of an element (RFC 9110, 12.4.2).
fn quality(element: &str) -> f32 {
    let mut parameters = element
        .split(';')
        .skip(1)
        .filter_map(|part| part.split_once('='));
    let weight = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str, open_metrics: bool) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::try_from(accept).unwrap());
        let format = Format::negotiate(&headers, open_metrics);
        format.content_type().to_str().unwrap().to_owned()
    }

    const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
    const PROTOBUF: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

    /// The `Accept` headers of Prometheus 2.42 and 3.0, with and without native histograms.
    #[test]
    fn prometheus_gets_preferred_format() {
        let old = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                   text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(negotiated(old, false), TEXT);
        let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert_eq!(negotiated(old, true), open);
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,".to_owned();
        assert_eq!(negotiated(&format!("{native}{old}"), true), PROTOBUF);
        let new = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                   application/openmetrics-text;version=0.0.1;q=0.4,\
                   text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let text = "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8";
        assert_eq!(negotiated(new, false), text);
        assert_eq!(
            negotiated(new, true),
            format!("{open}; escaping=allow-utf-8")
        );
    }

    #[test]
    fn everybody_else_gets_the_text_format() {
        for accept in [
            "",
            "*/*",
            "text/html",
            "application/json;q=x",
            "text/plain;q=0",
            "application/vnd.google.protobuf",
        ] {
            assert_eq!(negotiated(accept, true), TEXT, "{accept}");
        }
    }

    #[test]
    fn gzip_requires_accept_encoding() {
        for (value, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(takes_gzip(&headers), expected, "{value}");
        }
    }
}
