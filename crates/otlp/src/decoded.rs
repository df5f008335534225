//! Decoded requests, for operations that encoded requests do not support.

mod size;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

pub use self::size::{decoded_bytes, decoded_metric_bytes};
use crate::Signal;

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// A traces request.
    Traces(ExportTraceServiceRequest),
    /// A metrics request.
    Metrics(ExportMetricsServiceRequest),
    /// A logs request.
    Logs(ExportLogsServiceRequest),
    /// A profiles request.
    Profiles(ExportProfilesServiceRequest),
}

impl Decoded {
    /// Decodes a request of `signal`.
    pub fn decode(signal: Signal, request: &[u8]) -> Result<Self, prost::DecodeError> {
        Ok(match signal {
            Signal::Traces => Decoded::Traces(Message::decode(request)?),
            Signal::Metrics => Decoded::Metrics(Message::decode(request)?),
            Signal::Logs => Decoded::Logs(Message::decode(request)?),
            Signal::Profiles => Decoded::Profiles(Message::decode(request)?),
        })
    }

    /// Encodes the request.
    pub fn encode(&self) -> Bytes {
        match self {
            Decoded::Traces(request) => request.encode_to_vec(),
            Decoded::Metrics(request) => request.encode_to_vec(),
            Decoded::Logs(request) => request.encode_to_vec(),
            Decoded::Profiles(request) => request.encode_to_vec(),
        }
        .into()
    }
}
