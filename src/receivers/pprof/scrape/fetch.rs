//! Fetches a profile over HTTP.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Uri};

use super::failure::Failure;
use crate::receivers::scraping::client::{BodyBounds, ScrapeClient};
use crate::serving::body::ReceivedBytes;
use futures_util::future::BoxFuture;
use tributary_config::Headers;

/// A body as received.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) held: ReceivedBytes,
    /// Content type according to the server; empty if it sends none.
    pub(super) content_type: String,
}

/// Fetcher of profiles; tests of the schedule replace the HTTP client.
pub(super) trait Fetch: Send + Sync + 'static {
    /// Returns the body of a successful response.
    fn fetch<'a>(
        &'a self,
        url: &'a Uri,
        bounds: &'a BodyBounds,
    ) -> BoxFuture<'a, Result<Fetched, Failure>>;
}

/// Returns the headers of every request. Configured headers replace the default ones.
pub(super) fn headers(configured: &Headers) -> HeaderMap {
    let mut headers = configured.to_map();
    let agent = concat!("tributary/", env!("CARGO_PKG_VERSION"));
    let ours = headers.entry(USER_AGENT);
    ours.or_insert(HeaderValue::from_static(agent));
    // A pprof file is already compressed.
    let ours = headers.entry(ACCEPT_ENCODING);
    ours.or_insert(HeaderValue::from_static("identity"));
    headers
}

async fn get(client: &ScrapeClient, url: &Uri, bounds: &BodyBounds) -> Result<Fetched, Failure> {
    let received = client.get(url, &HeaderMap::new(), bounds).await?;
    let encoding = received.header(&CONTENT_ENCODING);
    // Some servers declare the gzip compression of the pprof file itself; the body is the same.
    if !matches!(encoding.as_str(), "" | "identity" | "gzip" | "x-gzip") {
        return Err(Failure::Encoding(encoding));
    }
    let content_type = received.header(&CONTENT_TYPE);
    if received.held.bytes.is_empty() {
        return Err(Failure::Empty);
    }
    Ok(Fetched {
        held: received.held,
        content_type,
    })
}

impl Fetch for ScrapeClient {
    fn fetch<'a>(
        &'a self,
        url: &'a Uri,
        bounds: &'a BodyBounds,
    ) -> BoxFuture<'a, Result<Fetched, Failure>> {
        Box::pin(get(self, url, bounds))
    }
}
