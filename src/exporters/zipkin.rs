//! The `zipkin` exporter: spans of Zipkin v2 over HTTP.

mod config;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode, Uri};
use tributary_otlp::{Requests, Signal};
use tributary_span_formats::zipkin::{RenderError, ZipkinEncoding, render};

pub use self::config::{Config, ZipkinFormat};
use super::otlp_http::{Payload, retry_after};
use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Origin, Stability, Terminal,
};
use crate::metric::shared;
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue::{Fault, Outcome, SendError};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "zipkin",
    aliases: &[],
    "Sends spans to Zipkin, as JSON or protobuf over HTTP.",
    &[(Signal::Traces, Stability::Beta)],
    collector: Origin::Contrib,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::TLS]
);

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let payload = Spans {
            encoding: match self.format {
                ZipkinFormat::Json => ZipkinEncoding::Json,
                ZipkinFormat::Proto => ZipkinEncoding::Proto,
            },
            default_service_name: self.default_service_name.clone(),
        };
        self.client()
            .build_with(Some(Box::new(payload)), cx, signals)
    }
}

/// Renders batches as lists of spans.
struct Spans {
    encoding: ZipkinEncoding,
    default_service_name: String,
}

impl Payload for Spans {
    fn content_type(&self) -> &'static str {
        match self.encoding {
            ZipkinEncoding::Json => "application/json",
            ZipkinEncoding::Proto => "application/x-protobuf",
        }
    }

    fn encode(&self, requests: &Requests, memory: &OutputMemory) -> Result<Bytes, SendError> {
        let name = &self.default_service_name;
        match render(requests.parts(), self.encoding, name, memory) {
            Ok(body) => Ok(body.into()),
            Err(RenderError::Full(_)) => Err(SendError::no_memory(memory)),
            Err(error @ RenderError::InvalidId) => Err(SendError::permanent(
                Code::InvalidArgument,
                Fault::Content,
                format!("cannot render the batch for Zipkin: {error}"),
            )),
        }
    }

    /// A response of 5xx is temporary: Zipkin responds with 500 while its storage is unavailable.
    fn outcome(
        &self,
        url: &Uri,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Outcome, SendError> {
        if status.is_success() {
            return Ok(Outcome::default());
        }
        let number = status.as_u16();
        let url = url.to_string();
        let url = tributary_config::without_url_secrets(&url);
        let reason = format!("Zipkin at {url} responded with HTTP status {number}");
        let (code, fault) = match number {
            408 | 429 | 500..=599 => {
                return Err(SendError {
                    throttle: headers.get(RETRY_AFTER).and_then(retry_after),
                    ..SendError::transient(Code::Unavailable, reason)
                });
            }
            400 | 422 => (Code::InvalidArgument, Fault::Content),
            401 => (Code::Unauthenticated, Fault::Elsewhere),
            403 => (Code::PermissionDenied, Fault::Elsewhere),
            404 | 405 | 415 => (Code::Unimplemented, Fault::Elsewhere),
            413 => (Code::ResourceExhausted, Fault::Size),
            _ => (Code::Unknown, Fault::Elsewhere),
        };
        Err(SendError::permanent(code, fault, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_retried_if_temporary() {
        let spans = Spans {
            encoding: ZipkinEncoding::Json,
            default_service_name: String::new(),
        };
        let url = Uri::from_static("http://zipkin:9411/api/v2/spans");
        let outcome = |status: u16| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, "7".parse().unwrap());
            spans.outcome(&url, StatusCode::from_u16(status).unwrap(), &headers)
        };
        assert_eq!(outcome(202), Ok(Outcome::default()));
        for status in [408, 429, 500, 503] {
            let error = outcome(status).unwrap_err();
            assert!(error.retryable, "{error}");
            assert_eq!(error.throttle.map(|delay| delay.as_secs()), Some(7));
        }
        for (status, fault) in [
            (400, Fault::Content),
            (413, Fault::Size),
            (401, Fault::Elsewhere),
            (302, Fault::Elsewhere),
        ] {
            let error = outcome(status).unwrap_err();
            assert_eq!((error.retryable, error.fault), (false, fault), "{error}");
        }
    }
}
