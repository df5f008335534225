//! Requests of any kind, well-formed or malformed, each on a separate connection.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;

use super::status::Status;
use super::{Signal, within};

/// The answer to an HTTP request.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    /// The trailers too, if there were any.
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Result of a gRPC call.
#[derive(Debug)]
pub struct Reply {
    pub code: i32,
    pub message: String,
    pub retry_after: Option<Duration>,
}

/// An HTTP/1.1 request.
pub async fn http(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response {
    let request = request(address, method, path, headers, body.into());
    within(&format!("an answer from {address}{path}"), async {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        collect(sender.send_request(request).await.unwrap()).await
    })
    .await
}

/// Sends a gRPC call with exactly this `body`, message prefix included.
pub async fn grpc(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Reply {
    let mut all = vec![("content-type", "application/grpc"), ("te", "trailers")];
    all.extend_from_slice(headers);
    let request = request(address, Method::POST, path, &all, body.into());
    let response = within(&format!("an answer from {address}{path}"), async {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
        tokio::spawn(connection);
        collect(sender.send_request(request).await.unwrap()).await
    })
    .await;
    assert_eq!(response.status, StatusCode::OK, "{response:?}");
    let details = response.header("grpc-status-details-bin").map(|details| {
        let bytes = STANDARD_NO_PAD.decode(details).unwrap();
        Status::decode(bytes.as_slice()).unwrap()
    });
    Reply {
        code: response.header("grpc-status").unwrap().parse().unwrap(),
        message: unescape(response.header("grpc-message").unwrap_or_default()),
        retry_after: details.and_then(|details| details.retry_after()),
    }
}

/// A gRPC message in its frame.
pub fn frame(compressed: bool, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    let mut frame = vec![u8::from(compressed)];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// Returns the gRPC method for exporting a signal.
pub fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Profiles => {
            "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
        }
    }
}

/// Returns the HTTP path for exporting a signal.
pub fn path(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/v1/traces",
        Signal::Metrics => "/v1/metrics",
        Signal::Logs => "/v1/logs",
        Signal::Profiles => "/v1development/profiles",
    }
}

fn request(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"));
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).unwrap()
}

async fn collect(response: http::Response<hyper::body::Incoming>) -> Response {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let mut headers = head.headers;
    headers.extend(body.trailers().cloned().unwrap_or_default());
    Response {
        status: head.status,
        headers,
        body: body.to_bytes(),
    }
}

/// Undoes the percent-encoding of `grpc-message`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let (digits, after) = after.split_at(2);
            let digits = std::str::from_utf8(digits).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = after;
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}
