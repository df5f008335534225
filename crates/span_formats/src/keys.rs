//! Names of tags and attributes with a meaning of their own.

pub(crate) const HTTP_STATUS: &str = "http.response.status_code";
pub(crate) const OLD_HTTP_STATUS: &str = "http.status_code";
pub(crate) const HTTP_MESSAGE: &str = "http.status_message";
pub(crate) const ERROR: &str = "error";
pub(crate) const SERVICE_NAME: &str = "service.name";
pub(crate) const SPAN_KIND: &str = "span.kind";
pub(crate) const STATUS_CODE: &str = "otel.status_code";
pub(crate) const STATUS_DESCRIPTION: &str = "otel.status_description";
pub(crate) const SCOPE_NAME: &str = "otel.scope.name";
pub(crate) const SCOPE_VERSION: &str = "otel.scope.version";
pub(crate) const TRACE_STATE: &str = "w3c.tracestate";
/// Service name of the Collector's exporters for resources without one.
pub(crate) const NO_SERVICE: &str = "OTLPResourceNoServiceName";
