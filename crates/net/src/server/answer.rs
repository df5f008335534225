//! Response bodies that count as open until the client has received them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::buffered::BufferedBytes;
use super::client_limit::ClientLimit;
use super::peer::{Admitted, Peer};
use super::{BUSY_RETRY_AFTER, Handler};
use tributary_memory::clients::SMALL_ANSWER;

/// Responds to a request. Refuses requests without admission. Refuses requests with a large head or response while too
/// many large heads and responses are in memory.
pub(super) async fn answer<H: Handler>(
    handler: &H,
    request: Request<Incoming>,
    peer: &Peer,
    admitted: Option<Admitted>,
) -> Response<Answer<H::Body>> {
    if admitted.is_none() {
        return handler.busy(&request).map(Answer::unlimited);
    }
    if peer.is_gone() {
        return Response::new(Answer::nothing());
    }
    let Ok(head) = hold(peer, head_size(&request)) else {
        if request.version() < http::Version::HTTP_2 {
            peer.answered_early();
        }
        return handler.busy(&request).map(Answer::unlimited);
    };
    // Boxed, so that the future's memory is freed before the response waits for the client.
    let response = Box::pin(handler.handle(request, peer)).await;
    drop(head);
    let size = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    match hold(peer, size) {
        Ok(buffered) => response.map(|body| Answer {
            body: Some(body),
            buffered: buffered.map(Arc::new),
            _admitted: admitted,
        }),
        Err(TooMany) => {
            let mut response = Response::new(Answer::nothing());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            let after = HeaderValue::from(BUSY_RETRY_AFTER.as_secs());
            response.headers_mut().insert(RETRY_AFTER, after);
            response
        }
    }
}

/// Too many large heads and responses are in memory.
struct TooMany;

/// Takes the right to hold `bytes`. Small amounts need no right.
fn hold(peer: &Peer, bytes: usize) -> Result<Option<BufferedBytes>, TooMany> {
    if bytes <= SMALL_ANSWER {
        return Ok(None);
    }
    let buffered = peer.gate().begin_answer(peer, bytes);
    if buffered.is_none() {
        peer.report_limit(ClientLimit::RequestMemory);
    }
    buffered.map(Some).ok_or(TooMany)
}

/// Returns the memory use of a request's head, in bytes.
fn head_size(request: &Request<Incoming>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len());
    fields.sum::<usize>() + request.uri().path().len()
}

/// Body of a response. The request counts as open until the connection has the whole body. The bytes count until they
/// are sent.
pub(super) struct Answer<B> {
    body: Option<B>,
    buffered: Option<Arc<BufferedBytes>>,
    _admitted: Option<Admitted>,
}

impl<B> Answer<B> {
    fn unlimited(body: B) -> Self {
        Answer {
            body: Some(body),
            buffered: None,
            _admitted: None,
        }
    }

    fn nothing() -> Self {
        Answer {
            body: None,
            buffered: None,
            _admitted: None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        let Some(buffered) = &self.buffered else {
            return Poll::Ready(frame);
        };
        let frame = frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|data| {
                    Bytes::from_owner(Unsent {
                        data,
                        _buffered: buffered.clone(),
                    })
                })
            })
        });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// Unsent bytes of a response, which hyper and h2 keep after the body is dropped.
struct Unsent {
    data: Bytes,
    _buffered: Arc<BufferedBytes>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
