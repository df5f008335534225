//! The `zipkin` exporter: spans of Zipkin v2 over HTTP.

mod config;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use tributary_otlp::{Requests, Signal};
use tributary_span_formats::zipkin::{RenderError, ZipkinEncoding, render};

pub use self::config::{Config, ZipkinFormat};
use super::otlp_http::{Exporter as HttpExporter, retry_after};
use super::otlp_response::unless_renewed;
use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Origin, Stability, Terminal,
};
use crate::metric::shared;
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue::{self, Encoded, Fault, Outcome, SendError, Settings};
use tributary_net::auth::ClientAuthenticator;

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
        let mut http = HttpExporter::build(&self.client(), cx, signals)?;
        let (encoding, content_type) = match self.format {
            ZipkinFormat::Json => (ZipkinEncoding::Json, "application/json"),
            ZipkinFormat::Proto => (ZipkinEncoding::Proto, "application/x-protobuf"),
        };
        let content_type = HeaderValue::from_static(content_type);
        http.headers.insert(CONTENT_TYPE, content_type);
        let settings = Settings {
            queue: self.sending_queue.0.clone(),
            retry: self.retry_on_failure.0.clone(),
            timeout: *self.timeout,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(SpanSender {
            http,
            encoding,
            default_service_name: self.default_service_name.clone(),
        });
        queue::terminal(cx, signals, &settings, &sender)
    }
}

/// Sends batches as lists of spans.
struct SpanSender {
    http: HttpExporter,
    encoding: ZipkinEncoding,
    default_service_name: String,
}

impl SpanSender {
    async fn call(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        let answer = self.http.post(batch).await?;
        outcome(answer.url, answer.head.status, &answer.head.headers)
    }
}

impl queue::Sender for SpanSender {
    fn encode(
        &self,
        _: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let unfit = |error: &dyn std::fmt::Display| {
            let reason = format!("cannot render the batch for Zipkin: {error}");
            SendError::permanent(Code::InvalidArgument, Fault::Content, reason)
        };
        let name = &self.default_service_name;
        let body = render(requests.parts(), self.encoding, name, memory);
        let body = body.map_err(|error| match error {
            RenderError::RoomExhausted(_) => SendError::no_memory(memory),
            RenderError::InvalidId => unfit(&error),
        })?;
        self.http.compressed(Bytes::from(body), memory)
    }

    fn encodes_every_byte(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let auth = self.http.auth.as_deref();
            let version = auth.map_or(0, ClientAuthenticator::version);
            unless_renewed(auth, version, self.call(batch).await)
        })
    }
}

/// Returns the outcome of an attempt. A response of 5xx is temporary: Zipkin responds with 500 while its storage is
/// unavailable.
fn outcome(url: &Uri, status: StatusCode, headers: &HeaderMap) -> Result<Outcome, SendError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_retried_if_temporary() {
        let url = Uri::from_static("http://zipkin:9411/api/v2/spans");
        let of = |status: u16| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, "7".parse().unwrap());
            outcome(&url, StatusCode::from_u16(status).unwrap(), &headers)
        };
        assert_eq!(of(202), Ok(Outcome::default()));
        for status in [408, 429, 500, 503] {
            let error = of(status).unwrap_err();
            assert!(error.retryable, "{error}");
            assert_eq!(error.throttle.map(|delay| delay.as_secs()), Some(7));
        }
        for (status, fault) in [
            (400, Fault::Content),
            (413, Fault::Size),
            (401, Fault::Elsewhere),
            (302, Fault::Elsewhere),
        ] {
            let error = of(status).unwrap_err();
            assert_eq!((error.retryable, error.fault), (false, fault), "{error}");
        }
    }
}
