//! `pyroscope`: pushes profiles to Pyroscope, by `push.v1.PusherService/Push` over Connect.
//!
//! A batch becomes one request, with a series for each set of labels. The client over HTTP is the one of `otlp_http`.

mod config;
mod response;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use metrics::{Counter, counter};

pub use self::config::Config;
use self::response::{is_too_old, refused};
use super::otlp_http::Exporter as HttpExporter;
use super::otlp_response::unless_renewed;
use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Origin, Stability, Terminal,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue::{self, Encoded, Fault, Outcome, SendError, Settings};
use crate::serving::connect::PROTO;
use tributary_net::auth::ClientAuthenticator;
use tributary_otlp::{Requests, Signal};
use tributary_profiles::{Compactor, decoded_bytes};
use tributary_pyroscope::series::write_request;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "pyroscope",
    aliases: &[],
    "Pushes profiles to Pyroscope.",
    &[(Signal::Profiles, Stability::Alpha)],
    collector: Origin::Own,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::TLS, METRICS]
);

/// Metrics of this component.
const METRICS: &[Metric] = &[metric::counter(
    "tributary_exporter_pyroscope_too_old_requests",
    "Number of requests that Pyroscope refused because a profile is outside of its ingestion window. Profiles of such a \
     request are sent again in halves until those at fault are alone",
)];

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let mut http = HttpExporter::build(&self.transport(), cx, signals)?;
        let headers = &mut http.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTO));
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static("1"));
        if !self.tenant.is_empty() {
            let tenant = HeaderValue::try_from(&self.tenant);
            let tenant = tenant.map_err(|error| BuildError(format!("tenant: {error}")))?;
            headers.insert(TENANT, tenant);
        }
        let settings = Settings {
            queue: self.sending_queue.0.clone(),
            retry: self.retry_on_failure.0.clone(),
            timeout: *self.timeout,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(Pusher {
            http,
            max_labels: self.max_labels,
            too_old: counter!(
                "tributary_exporter_pyroscope_too_old_requests",
                "exporter" => cx.id.to_string()
            ),
        });
        queue::terminal(cx, signals, &settings, &sender)
    }
}

/// Sender of batches.
struct Pusher {
    http: HttpExporter,
    max_labels: usize,
    too_old: Counter,
}

impl Pusher {
    async fn call(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        // Without series there is nothing to send.
        if batch.bytes() == 0 {
            return Ok(Outcome::default());
        }
        let answer = self.http.post(batch).await?;
        if answer.head.status.is_success() {
            return Ok(Outcome::default());
        }
        let error = refused(
            answer.url,
            answer.head.status,
            &answer.head.headers,
            &answer.body,
        );
        if is_too_old(&answer.body) {
            self.too_old.increment(1);
        }
        Err(error)
    }
}

impl queue::Sender for Pusher {
    fn encode(
        &self,
        _: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let take = |bytes| memory.take(bytes).map_err(|_| SendError::no_memory(memory));
        let unfit = |error: &dyn std::fmt::Display| {
            let reason = format!("cannot encode the batch: {error}");
            SendError::permanent(Code::Internal, Fault::Content, reason)
        };
        let mut compactor = Compactor::new();
        for request in requests.parts() {
            take(decoded_bytes(request))?;
            compactor
                .add_encoded(request)
                .map_err(|error| unfit(&error))?;
        }
        let request = write_request(compactor.finish(), self.max_labels, take)?;
        if request.is_empty() {
            return Ok(Vec::new());
        }
        self.http.compressed(Bytes::from(request), memory)
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

/// Header with the version of the Connect protocol.
const PROTOCOL_VERSION: &str = "connect-protocol-version";
/// Header with the tenant, in lower case.
const TENANT: &str = "x-scope-orgid";
