//! Errors as responses.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde::Serialize;

use super::response;
use tributary_profile_store::QueryError;
use tributary_profile_store::selector::SelectorError;

/// Seconds after which a client may ask again.
const RETRY_AFTER: u64 = 1;

/// Reason for a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    /// Error message, with the remedy.
    pub(super) message: String,
    allowed: Option<Method>,
}

#[derive(Serialize)]
struct Body<'e> {
    error: &'e str,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError {
            status,
            message: message.into(),
            allowed: None,
        }
    }

    /// The request has an error.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The same request may succeed later.
    pub(super) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    pub(super) fn not_allowed(method: &Method) -> Self {
        ApiError {
            allowed: Some(method.clone()),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("use the method {method}"),
            )
        }
    }

    /// Adds the headers that belong to the error.
    pub(super) fn add_headers(&self, response: &mut Response<Bytes>) {
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        let allowed = self.allowed.as_ref();
        if let Some(Ok(allowed)) = allowed.map(|method| HeaderValue::from_str(method.as_str())) {
            headers.insert(header::ALLOW, allowed);
        }
    }

    pub(super) fn response(&self) -> Response<Bytes> {
        let error = &self.message;
        // A map with text is always JSON.
        let body = serde_json::to_vec(&Body { error }).unwrap_or_default();
        let mut response = response(self.status, "application/json", body.into());
        self.add_headers(&mut response);
        response
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let status = match &error {
            QueryError::TooLarge { .. } | QueryError::TooSlow(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            QueryError::Busy => StatusCode::SERVICE_UNAVAILABLE,
            QueryError::SeveralTypes(_) | QueryError::TooManySteps => StatusCode::BAD_REQUEST,
            QueryError::Disk(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, error.to_string())
    }
}

impl From<SelectorError> for ApiError {
    fn from(error: SelectorError) -> Self {
        ApiError::bad(format!(
            "{error}; write a selector as in {{service_name=\"cart\", version=~\"1.4.*\"}}"
        ))
    }
}
