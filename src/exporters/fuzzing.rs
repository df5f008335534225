//! Entry points for fuzz targets: reading of exporters' responses, and printing of telemetry.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::debug::Verbosity;
pub use super::prometheus::pages;
use super::{debug, otlp_grpc, otlp_http, otlp_response};
use crate::queue::{Outcome, SendError};
use tributary_otlp::Decoded;

/// Returns the outcome in the frame of a gRPC response.
pub fn grpc_accepted(frame: &[u8]) -> Outcome {
    otlp_grpc::accepted(frame)
}

/// Returns the status in headers or trailers of gRPC.
pub fn grpc_status(headers: &HeaderMap) -> Option<Result<(), SendError>> {
    otlp_grpc::status_of(headers)
}

/// Formats a duration as `grpc-timeout`.
pub fn grpc_timeout(timeout: Duration) -> String {
    otlp_grpc::grpc_timeout(timeout)
}

/// Returns the outcome in an HTTP response of success.
pub fn http_accepted(headers: &HeaderMap, body: &[u8]) -> Result<Outcome, SendError> {
    otlp_http::accepted(&Uri::from_static("/v1/traces"), headers, body)
}

/// Returns the refusal in another HTTP response.
pub fn http_refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> SendError {
    otlp_http::refused(&Uri::from_static("/v1/traces"), status, headers, body)
}

/// Returns the value of `Retry-After`.
pub fn retry_after(value: &HeaderValue) -> Option<Duration> {
    otlp_http::retry_after(value)
}

/// Returns the value of `grpc-message`.
pub fn percent_decoded(value: &[u8]) -> String {
    otlp_response::percent_decoded(value)
}

/// Returns the value of a `-bin` header.
pub fn binary_header(value: &[u8]) -> Option<Vec<u8>> {
    otlp_response::binary_header(value)
}

/// Returns the text of the `debug` exporter below the counts, in the verbosities `normal` and `detailed`.
pub fn printed(decoded: &Decoded) -> [String; 2] {
    [Verbosity::Normal, Verbosity::Detailed].map(|verbosity| debug::rendered(decoded, verbosity))
}
