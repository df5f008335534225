//! Handler of upload requests.

use std::io::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming as Body;
use metrics::counter;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::config::Config;
use super::uploads::{Incoming, Kind, Refused, Uploads};
use crate::pipeline::batch::Code;
use crate::serving::body::{BodyRate, Reader};
use crate::serving::front::may_be_sending;
use tributary_config::ComponentId;
use tributary_net::auth::Guard;
use tributary_net::server::{Handler, Peer, plain};
use tributary_symbols::BuildId;

/// Maximum number of concurrent uploads.
const AT_ONCE: usize = 8;
/// Retry delay, in seconds, for uploads beyond the limit.
const COME_BACK: u64 = 5;

/// Handler of uploads.
pub(super) struct Put {
    id: ComponentId,
    guard: Option<Guard>,
    uploads: Arc<Uploads>,
    max_upload: u64,
    body_rate: BodyRate,
    turns: Semaphore,
}

impl Put {
    pub(super) fn new(
        config: &Config,
        id: &ComponentId,
        guard: Option<Guard>,
        uploads: Uploads,
    ) -> Self {
        Put {
            id: id.clone(),
            guard,
            uploads: Arc::new(uploads),
            max_upload: config.max_upload_bytes.0,
            body_rate: BodyRate::new(&config.limits, None),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    async fn answer(&self, mut request: Request<Body>, peer: &Peer) -> Response<Full<Bytes>> {
        let sending = may_be_sending(&request);
        let answered = self.take(&mut request, peer).await;
        let (outcome, response) = match answered {
            Ok(id) => {
                info!(otelcol.component.id = %self.id, otelcol.component.kind = "extension", build_id = %id,
                    client.address = %peer.address, "Stored an uploaded file with symbols");
                ("taken", say(StatusCode::CREATED, "kept"))
            }
            Err(response) => {
                if sending {
                    peer.answered_early();
                }
                ("refused", response)
            }
        };
        counter!("tributary_extension_symbol_uploads", "extension" => self.id.to_string(), "outcome" => outcome).increment(1);
        response
    }

    async fn take(
        &self,
        request: &mut Request<Body>,
        peer: &Peer,
    ) -> Result<BuildId, Response<Full<Bytes>>> {
        if let Some(guard) = &self.guard {
            let admitted = guard.admit(request.headers_mut(), peer).await;
            admitted.map_err(|nack| match nack.retryable {
                true => come_back(StatusCode::TOO_MANY_REQUESTS, &nack.reason),
                false => {
                    let mut response = say(StatusCode::UNAUTHORIZED, &nack.reason);
                    let headers = response.headers_mut();
                    headers.insert(WWW_AUTHENTICATE, guard.challenge());
                    response
                }
            })?;
        }
        let (id, kind) = addressed(request).map_err(|refusal| *refusal)?;
        let headers = request.headers();
        if headers.contains_key(CONTENT_ENCODING) {
            let text = "Content-Encoding is not supported: send the file unencoded";
            return Err(say(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        let declared = headers.get(CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        if declared.is_some_and(|length: u64| length > self.max_upload) {
            return Err(self.too_large());
        }
        let Ok(_turn) = self.turns.try_acquire() else {
            let text = "too many uploads are in flight; retry later";
            return Err(come_back(StatusCode::SERVICE_UNAVAILABLE, text));
        };
        let uploads = self.uploads.clone();
        let begun = off_the_workers(move || uploads.begin()).await;
        let incoming = begun.map_err(|error| self.refuse(error.into()))?;
        let incoming = self.receive(request, peer, incoming).await?;
        let kept = self.uploads.keep(incoming, &id, kind).await;
        kept.map_err(|refused| self.refuse(refused))?;
        Ok(id)
    }

    /// Writes the body to the file while it arrives.
    async fn receive(
        &self,
        request: &mut Request<Body>,
        peer: &Peer,
        mut incoming: Incoming,
    ) -> Result<Incoming, Response<Full<Bytes>>> {
        let mut reader = Reader::new(request.body_mut(), peer, self.body_rate);
        let mut received = 0u64;
        loop {
            let piece = reader.chunk().await.map_err(|nack| match nack.code {
                Code::DeadlineExceeded => say(StatusCode::REQUEST_TIMEOUT, &nack.reason),
                _ => say(StatusCode::BAD_REQUEST, &nack.reason),
            })?;
            let Some(piece) = piece else {
                return Ok(incoming);
            };
            received += piece.len() as u64;
            if received > self.max_upload {
                return Err(self.too_large());
            }
            let claimed = self.uploads.claim(&mut incoming, piece.len() as u64);
            claimed.map_err(|refused| self.refuse(refused))?;
            let write = move || incoming.file.write_all(&piece).map(|()| incoming);
            let written = off_the_workers(write).await;
            incoming = written.map_err(|error| self.refuse(error.into()))?;
        }
    }

    fn too_large(&self) -> Response<Full<Bytes>> {
        let text = format!(
            "the file is larger than {} bytes; raise `max_upload_bytes` on this server",
            self.max_upload
        );
        say(StatusCode::PAYLOAD_TOO_LARGE, &text)
    }

    fn refuse(&self, refused: Refused) -> Response<Full<Bytes>> {
        let status = match refused {
            Refused::NoBuildId | Refused::OtherBuildId(_) => StatusCode::BAD_REQUEST,
            Refused::Full => StatusCode::INSUFFICIENT_STORAGE,
            Refused::NotChecked(_) | Refused::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            warn!(otelcol.component.id = %self.id, otelcol.component.kind = "extension", reason = %refused,
                "Cannot store an uploaded file with symbols");
        }
        say(status, &refused.to_string())
    }
}

impl Handler for Put {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Body>, peer: &Peer) -> Response<Full<Bytes>> {
        self.answer(request, peer).await
    }

    fn busy(&self, _: &Request<Body>) -> Response<Full<Bytes>> {
        let text = "too many requests are in flight; retry later";
        come_back(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

/// Returns the build id and the kind of file that a request names.
fn addressed(request: &Request<Body>) -> Result<(BuildId, Kind), Box<Response<Full<Bytes>>>> {
    let path = request.uri().path().strip_prefix("/symbols/");
    let (id, kind) = path
        .and_then(|path| match path.split_once('/') {
            None => Some((path, Kind::DebugInfo)),
            Some((id, "executable")) => Some((id, Kind::Executable)),
            Some(_) => None,
        })
        .ok_or_else(|| {
            let text =
                "404 page not found; upload to /symbols/BUILD_ID or /symbols/BUILD_ID/executable";
            Box::new(say(StatusCode::NOT_FOUND, text))
        })?;
    if request.method() != Method::PUT {
        let mut response = say(
            StatusCode::METHOD_NOT_ALLOWED,
            "the method is not supported; use PUT",
        );
        let headers = response.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static("PUT"));
        return Err(Box::new(response));
    }
    let id = id.parse();
    let id = id.map_err(|error| Box::new(say(StatusCode::BAD_REQUEST, &format!("{error}"))))?;
    Ok((id, kind))
}

/// Runs disk operations, which may block, outside of the workers.
async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("the collector is shutting down")))
}

fn say(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    plain(status, format!("{text}\n"))
}

fn come_back(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = say(status, text);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(COME_BACK));
    response
}
