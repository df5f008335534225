//! OTLP over gRPC: `otlp_grpc`, alias `otlp`.
//!
//! The body is gRPC's five-byte frame header, followed by the unchanged bytes of the batch.

mod config;
pub(super) mod keys;

pub use config::{Balancer, ClientKeepalive, Config, GrpcCompression};

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use prost::Message;

use super::otlp_response::{binary_header, outcome, percent_decoded, refused, unless_renewed};
use crate::component::auth;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Terminal,
};
use crate::metric::shared;
use crate::pipeline::batch::Code;
use crate::pipeline::calls::CallMetrics;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, Settings};
use futures_util::future::BoxFuture;
use tributary_compression::compress::Compressor;
use tributary_config::ComponentId;
use tributary_net::Owner;
use tributary_net::auth::ClientAuthenticator;
use tributary_net::client::{
    Chunks, ConnectError, Connector, Pool, PoolSettings, RequestError, coalesce,
};
use tributary_net::rpc::Status;
use tributary_net::tls::rotation::RotatingClient;
use tributary_otlp::{Requests, Signal};

/// Maximum size of a response message: gRPC's default. The status follows the message, so a longer message fails the
/// call.
const RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "otlp_grpc",
    aliases: &["otlp"],
    "Sends OTLP requests over gRPC.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::TLS, shared::CALLS_OUT]
);

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let failed = |reason| BuildError(format!("exporter {}: {reason}", cx.id));
        let tls = self.tls_source(&cx.id).map_err(failed)?;
        let auth = auth::client(self.auth.as_ref(), cx)?;
        let exporter = Exporter::new(self, tls, auth).map_err(failed)?;
        let settings = Settings {
            queue: self.sending_queue.0.clone(),
            retry: self.retry_on_failure.0.clone(),
            timeout: *self.timeout,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(exporter);
        queue::terminal(cx, signals, &settings, &sender)
    }
}

/// Sends to one endpoint.
pub(super) struct Exporter {
    pool: Pool,
    /// The method of each signal.
    methods: [Uri; 4],
    headers: HeaderMap,
    auth: Option<Arc<dyn ClientAuthenticator>>,
    compressor: Option<Compressor>,
    calls: CallMetrics,
}

impl Config {
    /// Returns the TLS client of the connections, or `None` for plaintext. Exporters to several endpoints can share it.
    pub(super) fn tls_source(&self, id: &ComponentId) -> Result<Option<RotatingClient>, String> {
        if !self.target()?.tls {
            return Ok(None);
        }
        let owner = Owner::new(id, "exporter");
        let source = RotatingClient::new(&self.tls, &[b"h2"], owner);
        source.map(Some).map_err(|error| error.to_string())
    }
}

impl Exporter {
    /// Creates an exporter, which connects at the first request.
    pub(super) fn new(
        config: &Config,
        tls: Option<RotatingClient>,
        auth: Option<Arc<dyn ClientAuthenticator>>,
    ) -> Result<Self, String> {
        let target = config.target()?;
        let tls = match tls {
            Some(source) => {
                let name = config
                    .tls
                    .server_name(target.host)
                    .map_err(|error| error.to_string())?;
                Some((source, name))
            }
            None => None,
        };
        let mut headers = headers(config)?;
        if let Some(auth) = &auth {
            // Reserves room for the credentials in the copied headers; each request gets the current values.
            auth.add(&mut headers);
        }
        let authority = match config.authority.as_str() {
            "" => target.authority,
            authority => authority,
        };
        let scheme = if target.tls { "https" } else { "http" };
        let method = |signal: Signal| {
            let uri = format!("{scheme}://{authority}/{}/Export", service(signal));
            uri.parse()
                .map_err(|error| format!("authority \"{authority}\": {error}"))
        };
        let [traces, metrics, logs, profiles] = Signal::ALL;
        let compressor = config
            .compression
            .codec()
            .map(|codec| Compressor::new(codec, config.compression_params.level));
        Ok(Exporter {
            pool: Pool::new(
                Connector::new(target.host, target.port, tls),
                PoolSettings {
                    connections: config.connections,
                    balancing: config.balancer_name.balancing(),
                    keepalive: config.keepalive.as_ref().map(|keepalive| {
                        let ClientKeepalive { time, timeout, .. } = keepalive;
                        (**time, **timeout, keepalive.permit_without_stream)
                    }),
                    wait_for_ready: config.wait_for_ready,
                    receive_window: config.read_buffer_size,
                    send_buffer: config.write_buffer_size,
                },
            ),
            methods: [
                method(traces)?,
                method(metrics)?,
                method(logs)?,
                method(profiles)?,
            ],
            headers,
            auth,
            compressor,
            calls: CallMetrics::of_client(target.host, target.port),
        })
    }

    async fn call(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        let body = Chunks::new(batch.chunks.clone());
        let request = || {
            let mut request = Request::new(body.clone());
            *request.method_mut() = http::Method::POST;
            *request.version_mut() = http::Version::HTTP_2;
            *request.uri_mut() = self.methods[batch.signal.index()].clone();
            *request.headers_mut() = self.headers.clone();
            if let Some(auth) = &self.auth {
                auth.add(request.headers_mut());
            }
            request
        };
        let response = self.pool.send(request).await.map_err(|error| {
            let reason = match error {
                RequestError::Connect(ConnectError(reason)) => reason,
                broken => broken.to_string(),
            };
            refused(Code::Unavailable, &reason, None)
        })?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            return Err(http_refusal(head.status));
        }
        if let Some(error) = status_of(&head.headers) {
            return error.map(|()| Outcome::default());
        }
        let (message, trailers) = collect(body).await?;
        status_of(&trailers).unwrap_or_else(|| {
            let reason = "the server ended the response without grpc-status; is it a gRPC server?";
            Err(refused(Code::Unknown, reason, None))
        })?;
        Ok(accepted(&message))
    }
}

impl queue::Sender for Exporter {
    fn encode(
        &self,
        _: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let (flag, len, parts) = match &self.compressor {
            None => (0, requests.len(), requests.parts().to_vec()),
            Some(compressor) => {
                let most = compressor.most_bytes(requests.parts());
                memory
                    .take(most)
                    .map_err(|_| SendError::no_memory(memory))?;
                let body = compressor.compress(requests.parts()).map_err(|error| {
                    let reason = format!("cannot compress the batch: {error}");
                    SendError::permanent(Code::Internal, Fault::Size, reason)
                })?;
                (1, body.len(), vec![body])
            }
        };
        let len = u32::try_from(len).map_err(|_| {
            let reason = format!("the batch has {len} bytes, more than gRPC's limit of 4 GiB");
            SendError::permanent(Code::ResourceExhausted, Fault::Size, reason)
        })?;
        let mut frame = BytesMut::with_capacity(5);
        frame.put_u8(flag);
        frame.put_u32(len);
        Ok(coalesce(std::iter::once(frame.freeze()).chain(parts)))
    }

    fn encodes_every_byte(&self) -> bool {
        self.compressor.is_some()
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let auth = self.auth.as_deref();
            let version = auth.map_or(0, ClientAuthenticator::version);
            let began = Instant::now();
            let result = self.call(batch).await;
            let code = result
                .as_ref()
                .map_or_else(|error| error.code, |_| Code::Ok);
            self.calls.ended(batch.signal, code, began.elapsed());
            unless_renewed(auth, version, result)
        })
    }
}

/// The service of each signal, from OTLP's protobuf definitions.
fn service(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "opentelemetry.proto.collector.trace.v1.TraceService",
        Signal::Metrics => "opentelemetry.proto.collector.metrics.v1.MetricsService",
        Signal::Logs => "opentelemetry.proto.collector.logs.v1.LogsService",
        Signal::Profiles => "opentelemetry.proto.collector.profiles.v1development.ProfilesService",
    }
}

/// Returns the headers of every request. The headers of the gRPC protocol come last, so that no configured header
/// replaces them.
fn headers(config: &Config) -> Result<HeaderMap, String> {
    let mut headers = config.headers.to_map();
    let user_agent = match config.user_agent.as_str() {
        "" => concat!("tributary/", env!("CARGO_PKG_VERSION")),
        text => text,
    };
    let user_agent = HeaderValue::from_str(user_agent)
        .map_err(|_| "user_agent has characters that are not allowed in a header".to_owned())?;
    headers.insert(USER_AGENT, user_agent);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if let Some(encoding) = config.compression.name() {
        let name = HeaderName::from_static("grpc-encoding");
        headers.insert(name, HeaderValue::from_static(encoding));
    }
    if !config.timeout.is_zero() {
        let name = HeaderName::from_static("grpc-timeout");
        let value = HeaderValue::from_str(&grpc_timeout(*config.timeout));
        headers.insert(name, value.map_err(|error| error.to_string())?);
    }
    Ok(headers)
}

/// Formats a timeout as at most eight digits and a unit:
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests>.
pub(super) fn grpc_timeout(timeout: Duration) -> String {
    const MAX_DIGITS_VALUE: u128 = 99_999_999;
    let units = [(timeout.as_micros(), 'u'), (timeout.as_millis(), 'm')];
    match units
        .into_iter()
        .find(|(count, _)| *count <= MAX_DIGITS_VALUE)
    {
        Some((count, unit)) => format!("{count}{unit}"),
        None => format!("{}S", u128::from(timeout.as_secs()).min(MAX_DIGITS_VALUE)),
    }
}

/// Returns the status in headers or trailers; `None` if it is missing.
pub(super) fn status_of(headers: &HeaderMap) -> Option<Result<(), SendError>> {
    let code = headers.get("grpc-status")?;
    let code = Code::from_bytes(code.as_bytes());
    if code == Code::Ok {
        return Some(Ok(()));
    }
    let message = headers
        .get("grpc-message")
        .map(|message| percent_decoded(message.as_bytes()))
        .unwrap_or_default();
    let details = headers
        .get("grpc-status-details-bin")
        .and_then(|details| binary_header(details.as_bytes()))
        .and_then(|details| Status::decode(details.as_slice()).ok());
    let delay = details.and_then(|details| details.retry_delay());
    Some(Err(refused(code, &message, delay)))
}

/// Returns the error for an HTTP status without a gRPC status:
/// <https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>.
fn http_refusal(status: StatusCode) -> SendError {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    let reason = format!("unexpected HTTP status code received from server: {status}");
    let mut error = refused(code, &reason, None);
    // A proxy sent this status, not the gRPC server.
    error.fault = Fault::Elsewhere;
    error
}

/// Reads the message's frame and the trailers.
async fn collect(body: Incoming) -> Result<(Bytes, HeaderMap), SendError> {
    let collected = Limited::new(body, RESPONSE_BYTES)
        .collect()
        .await
        .map_err(|error| {
            let reason = format!("the connection closed before the end of the response: {error}");
            refused(Code::Unavailable, &reason, None)
        })?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok((collected.to_bytes(), trailers))
}

/// Reads the outcome from the response message. The status was OK, so the data was accepted. An unreadable message (for
/// example compressed, although the request did not allow compression) means full success.
pub(super) fn accepted(frame: &[u8]) -> Outcome {
    match frame {
        [0, _, _, _, _, message @ ..] => outcome(message).unwrap_or_default(),
        _ => Outcome::default(),
    }
}

#[cfg(test)]
mod tests;
