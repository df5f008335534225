//! Content other than OTLP that the client sends.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};

use crate::pipeline::output_memory::OutputMemory;
use crate::queue::{Outcome, SendError};
use tributary_otlp::Requests;

/// The content of requests to a server of another protocol.
pub(in super::super) trait Payload: Send + Sync {
    /// Returns the content type of requests.
    fn content_type(&self) -> &'static str;

    /// Returns the body of the request for a batch, uncompressed.
    ///
    /// # Errors
    /// The batch cannot be expressed in the protocol, or there is no memory for the output.
    fn encode(&self, requests: &Requests, memory: &OutputMemory) -> Result<Bytes, SendError>;

    /// Returns the outcome of an attempt by the response.
    ///
    /// # Errors
    /// The server refused the request.
    fn outcome(
        &self,
        url: &Uri,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Outcome, SendError>;
}
