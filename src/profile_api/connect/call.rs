//! Requests and responses of the Connect protocol.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::error::ApiError;
use super::super::{Asked, json, response};
use crate::serving::connect::error_body;
pub(super) use crate::serving::connect::{Encoding, JSON, PROTO};
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;

/// Maximum size of a request, in bytes, after decompression: selectors are short.
pub(super) const LARGEST_REQUEST: usize = 1 << 20;

/// A request in its encoding.
pub(super) struct Call<'b> {
    pub(super) encoding: Encoding,
    body: Cow<'b, [u8]>,
}

/// Returns an error as Connect writes it.
pub(in super::super) fn error_response(error: &ApiError) -> Response<Bytes> {
    // Connect has a status for each code; 422 is none of them.
    let (code, status) = match error.status {
        StatusCode::BAD_REQUEST => ("invalid_argument", error.status),
        StatusCode::NOT_FOUND => ("not_found", error.status),
        StatusCode::NOT_IMPLEMENTED => ("unimplemented", error.status),
        StatusCode::SERVICE_UNAVAILABLE => ("unavailable", error.status),
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => {
            ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
        }
        StatusCode::INTERNAL_SERVER_ERROR => ("internal", error.status),
        status => ("unknown", status),
    };
    let body = error_body(code, &error.message);
    let mut response = response(status, JSON, body.into());
    error.add_headers(&mut response);
    response
}

impl<'b> Call<'b> {
    pub(super) fn of(
        asked: &Asked,
        headers: &HeaderMap,
        body: &'b Bytes,
    ) -> Result<Self, ApiError> {
        let encoding = Encoding::of(headers).ok_or_else(|| {
            ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("the content type must be {JSON} or {PROTO}"),
            )
        })?;
        let compressed = headers.get(header::CONTENT_ENCODING);
        let compressed = compressed.and_then(|value| value.to_str().ok());
        let body = match compressed.unwrap_or_default() {
            "" | "identity" => Cow::Borrowed(&**body),
            "gzip" => {
                let mut permit = asked.budget.empty_permit();
                let body = decompress(Codec::Gzip, body, LARGEST_REQUEST, &mut permit);
                let wrong = |error| ApiError::bad(format!("the request is not gzip: {error}"));
                body.map_err(wrong)?.into()
            }
            other => {
                return Err(ApiError::new(
                    StatusCode::NOT_IMPLEMENTED,
                    format!("the encoding `{other}` is not supported; use gzip or none"),
                ));
            }
        };
        if body.len() > LARGEST_REQUEST {
            let message = format!("the request is larger than {LARGEST_REQUEST} bytes");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Ok(Call { encoding, body })
    }

    pub(super) fn request<T: Message + Default + DeserializeOwned>(&self) -> Result<T, ApiError> {
        match self.encoding {
            Encoding::Json => serde_json::from_slice(&self.body)
                .map_err(|error| ApiError::bad(format!("the request is not valid: {error}"))),
            Encoding::Proto => T::decode(&*self.body)
                .map_err(|error| ApiError::bad(format!("the request is not valid: {error}"))),
        }
    }

    pub(super) fn answer<Q, A>(
        &self,
        method: impl FnOnce(Q) -> Result<A, ApiError>,
    ) -> Result<Response<Bytes>, ApiError>
    where
        Q: Message + Default + DeserializeOwned,
        A: Message + Serialize,
    {
        let answer = method(self.request()?)?;
        match self.encoding {
            Encoding::Json => json(&answer),
            Encoding::Proto => Ok(response(
                StatusCode::OK,
                PROTO,
                answer.encode_to_vec().into(),
            )),
        }
    }
}
