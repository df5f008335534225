//! Requests to metadata services: HTTP/1.1, one connection for each request, no redirects, no proxies.

use std::future::Future;
use std::path::PathBuf;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tributary_net::client::{Connector, full_error, host_of, parse_url};
use tributary_net::tls::rotation::RotatingClient;

/// Maximum size of a response, in bytes. The metadata of an ECS task with many containers has a few kilobytes.
const MAX_BODY: usize = 1 << 20;

/// Reason why a metadata service gave no metadata.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// The service cannot be reached, or did not respond in time.
    #[error("{0}")]
    Unreachable(String),
    /// The service responded with another status than 200.
    #[error("{url} responded with {status}{hint}")]
    Status {
        url: String,
        status: StatusCode,
        hint: &'static str,
    },
    /// The response is not the expected metadata.
    #[error("{0}")]
    Response(String),
}

impl ServiceError {
    /// Returns the status of the response, if there was one.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            ServiceError::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A metadata service.
pub(crate) struct Service {
    /// URL before the paths of requests, for messages and the `Host` header.
    base: String,
    authority: String,
    way: Way,
    deadline: Instant,
}

enum Way {
    Tcp(Connector),
    Unix(PathBuf),
}

/// A successful response.
pub(crate) struct MetadataResponse {
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Service {
    /// Creates the service at `base`, an `http://` URL, optionally with a path. Requests end at `deadline`.
    pub(crate) fn new(base: &str, deadline: Instant) -> Result<Self, ServiceError> {
        Self::over(base, deadline, None)
    }

    /// Creates the service at `base`. With `tls`, `base` is an `https://` URL.
    pub(crate) fn over(
        base: &str,
        deadline: Instant,
        tls: Option<RotatingClient>,
    ) -> Result<Self, ServiceError> {
        let invalid = |reason: String| ServiceError::Unreachable(reason);
        let url = parse_url(base).map_err(invalid)?;
        let host = host_of(&url);
        let port = url.port_u16().unwrap_or(match tls {
            Some(_) => 443,
            None => 80,
        });
        let tls = match tls {
            Some(source) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|error| invalid(error.to_string()))?;
                Some((source, name))
            }
            None if url.scheme_str() == Some("https") => {
                return Err(invalid(format!("{base} must begin with http://")));
            }
            None => None,
        };
        Ok(Service {
            base: base.trim_end_matches('/').to_owned(),
            authority: url
                .authority()
                .map_or_else(String::new, ToString::to_string),
            way: Way::Tcp(Connector::new(host, port, tls)),
            deadline,
        })
    }

    /// Creates the service behind a Unix socket.
    pub(crate) fn unix(socket: PathBuf, deadline: Instant) -> Self {
        Service {
            base: "http://localhost".to_owned(),
            authority: "localhost".to_owned(),
            way: Way::Unix(socket),
            deadline,
        }
    }

    /// Returns the same service with an earlier deadline for its requests.
    pub(crate) fn until(mut self, deadline: Instant) -> Self {
        self.deadline = self.deadline.min(deadline);
        self
    }

    /// Returns the time at which requests end.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sends a GET request.
    pub(crate) async fn get(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<MetadataResponse, ServiceError> {
        self.send(Method::GET, path, headers).await
    }

    /// Sends a request. Any status but 200 is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<MetadataResponse, ServiceError> {
        let url = format!("{}{path}", self.base);
        let request = self.request(method, &url, headers)?;
        let exchange = async {
            match &self.way {
                Way::Tcp(connector) => {
                    let failed = |error: tributary_net::client::ConnectError| {
                        ServiceError::Unreachable(format!("cannot connect to {url}: {error}"))
                    };
                    let addresses = connector.resolve().await.map_err(failed)?;
                    let stream = connector.connect(&addresses).await.map_err(failed)?;
                    self.exchange(TokioIo::new(stream), request, &url).await
                }
                Way::Unix(path) => {
                    let stream = UnixStream::connect(path).await.map_err(|error| {
                        let path = path.display();
                        ServiceError::Unreachable(format!("cannot connect to {path}: {error}"))
                    })?;
                    self.exchange(TokioIo::new(stream), request, &url).await
                }
            }
        };
        timeout_at(self.deadline, exchange)
            .await
            .unwrap_or_else(|_| {
                Err(ServiceError::Unreachable(format!(
                    "{url} did not respond in time"
                )))
            })
    }

    fn request(
        &self,
        method: Method,
        url: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Request<Empty<Bytes>>, ServiceError> {
        let invalid = |error: &dyn std::error::Error| {
            ServiceError::Unreachable(format!("cannot request {url}: {error}"))
        };
        let parsed: Uri = url.parse().map_err(|error| invalid(&error))?;
        let path = parsed.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, &self.authority)
            .body(Empty::new())
            .map_err(|error| invalid(&error))?;
        for (name, value) in headers {
            let value = HeaderValue::try_from(*value).map_err(|error| invalid(&error))?;
            let name = HeaderName::from_static(name);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    fn exchange(
        &self,
        stream: impl Read + Write + Send + Unpin + 'static,
        request: Request<Empty<Bytes>>,
        url: &str,
    ) -> impl Future<Output = Result<MetadataResponse, ServiceError>> {
        let broke = move |error: &(dyn std::error::Error + 'static)| {
            ServiceError::Unreachable(format!("{url}: {}", full_error(error)))
        };
        async move {
            let (mut sender, connection) = http1::handshake(stream)
                .await
                .map_err(|error| broke(&error))?;
            let connection = tokio::spawn(connection);
            let response = sender.send_request(request).await;
            let (head, body) = response.map_err(|error| broke(&error))?.into_parts();
            if head.status != StatusCode::OK {
                connection.abort();
                let hint = match head.status.is_redirection() {
                    true => "; redirects are not followed",
                    false => "",
                };
                return Err(ServiceError::Status {
                    url: url.to_owned(),
                    status: head.status,
                    hint,
                });
            }
            let body = Limited::new(body, MAX_BODY).collect().await;
            connection.abort();
            let body = body.map_err(|error| broke(&*error))?.to_bytes();
            Ok(MetadataResponse {
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        }
    }
}
