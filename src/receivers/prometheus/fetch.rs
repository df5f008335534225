//! Fetches pages: credentials, redirects, encodings.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::config::{Authorization, ExtraHeader, ScrapeConfig};
use super::credentials::Credentials;
use super::failure::ScrapeFailure;
use super::scrape::ReceivedPage;
use super::settings::JobSettings;
use super::target::ScrapeTarget;
use crate::component::{BuildContext, BuildError};
use crate::receivers::scraping::client::{
    BodyBounds, Received, Refusal, ScrapeClient, ScrapeTransport, Unfetched,
};
use crate::receivers::scraping::scheme::Scheme;
use tributary_config::Secret;
use tributary_memory::Budget;
use tributary_net::Owner;
use tributary_net::client::{ClientOptions, Proxy, parse_url};
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

/// Maximum number of redirects of one scrape, as in Go's client.
const REDIRECTS: usize = 10;

const TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// The client of a job.
#[derive(Clone)]
pub(super) struct JobClient {
    transport: ScrapeTransport,
    /// Reason why TLS cannot be used.
    tls_error: Option<String>,
    credentials: Credentials,
    budget: Arc<Budget>,
}

/// The client of a target.
pub(super) struct Fetcher {
    job: JobClient,
    client: ScrapeClient,
    url: Uri,
    headers: HeaderMap,
    limit: usize,
    follow_redirects: bool,
    accepts_gzip: bool,
}

impl JobClient {
    /// Creates the client of a job.
    ///
    /// # Errors
    /// TLS or the proxy cannot be set up.
    pub(super) fn of_job(job: &ScrapeConfig, cx: &BuildContext) -> Result<Self, BuildError> {
        let authorization = Authorization {
            credentials: job.bearer_token.clone(),
            credentials_file: job.bearer_token_file.clone(),
            ..Authorization::default()
        };
        let has_bearer =
            !job.bearer_token.reveal().is_empty() || !job.bearer_token_file.as_os_str().is_empty();
        let authorization = job
            .authorization
            .as_ref()
            .or(has_bearer.then_some(&authorization));
        let proxy = match job.proxy_url.reveal() {
            "" => None,
            url => {
                let proxy = Proxy::parse(url)
                    .map_err(|reason| BuildError(format!("proxy_url: {reason}")))?;
                Some(Arc::new(proxy))
            }
        };
        let tls = tls(&job.tls_config.client(), job.enable_http2, cx);
        JobClient::new(
            match job.scheme {
                Scheme::Https => Ok(tls?),
                // Rules and redirects may still lead to TLS. The system's certificate authorities are not required.
                Scheme::Http => tls,
            },
            proxy,
            extra_headers(&job.http_headers),
            Credentials::of(job.basic_auth.as_ref(), authorization),
            cx,
        )
    }

    /// Creates a client from its parts. An error of TLS is reported for each URL with `https`.
    pub(super) fn new(
        tls: Result<(ClientTls, RotatingClient), BuildError>,
        proxy: Option<Arc<Proxy>>,
        headers: HeaderMap,
        credentials: Credentials,
        cx: &BuildContext,
    ) -> Result<Self, BuildError> {
        let (tls, tls_error) = match tls {
            Ok(tls) => (Some(tls), None),
            Err(BuildError(reason)) => (None, Some(reason)),
        };
        Ok(JobClient {
            transport: ScrapeTransport {
                tls,
                options: ClientOptions::default(),
                proxy,
                headers,
                auth: None,
            },
            tls_error,
            credentials,
            budget: cx.budget.clone(),
        })
    }

    /// Creates a client for the server of a URL.
    fn client(&self, url: &Uri) -> Result<ScrapeClient, String> {
        match &self.tls_error {
            Some(reason) if url.scheme_str() == Some("https") => {
                Err(format!("TLS cannot be used: {reason}"))
            }
            _ => self.transport.client(url, None),
        }
    }

    /// Returns the client for redirects to other hosts: without the configured headers, which may have secrets.
    fn of_stranger(&self) -> JobClient {
        let mut stranger = self.clone();
        stranger.transport.headers = HeaderMap::new();
        stranger.transport.auth = None;
        stranger
    }
}

/// Returns the TLS settings of connections.
///
/// # Errors
/// The settings, or the system's certificate authorities, cannot be used.
pub(super) fn tls(
    config: &ClientTls,
    http2: bool,
    cx: &BuildContext,
) -> Result<(ClientTls, RotatingClient), BuildError> {
    let alpn: &[&[u8]] = match http2 {
        true => &[b"h2", b"http/1.1"],
        false => &[b"http/1.1"],
    };
    let source = RotatingClient::new(config, alpn, Owner::new(&cx.id, "receiver"));
    let source = source.map_err(|error| BuildError(format!("tls_config::{error}")))?;
    Ok((config.clone(), source))
}

fn extra_headers(configured: &BTreeMap<String, ExtraHeader>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, header) in configured {
        let secrets = header.secrets.iter().map(Secret::reveal);
        for value in header.values.iter().map(String::as_str).chain(secrets) {
            // Validation has rejected invalid headers.
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                headers.append(name, value);
            }
        }
    }
    headers
}

impl Fetcher {
    /// Creates the client of a target.
    ///
    /// # Errors
    /// A sentence about the URL of the target.
    pub(super) fn new(
        job: JobClient,
        settings: &JobSettings,
        target: &ScrapeTarget,
    ) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, settings.accept.clone());
        let seconds = target.timeout.as_secs_f64().to_string();
        if let Ok(seconds) = HeaderValue::try_from(seconds) {
            headers.insert(TIMEOUT, seconds);
        }
        let limit = settings.limits.body;
        let follow = settings.follow_redirects;
        Self::of_url(
            job,
            &target.url,
            headers,
            limit,
            follow,
            settings.compression,
        )
    }

    /// Creates the client of a URL.
    ///
    /// # Errors
    /// A sentence about the URL.
    pub(super) fn of_url(
        job: JobClient,
        url: &Uri,
        mut headers: HeaderMap,
        limit: usize,
        follow_redirects: bool,
        accepts_gzip: bool,
    ) -> Result<Self, String> {
        let encoding = if accepts_gzip { "gzip" } else { "identity" };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        let agent = concat!("tributary/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        Ok(Fetcher {
            client: job.client(url)?,
            url: url.clone(),
            headers,
            limit,
            follow_redirects,
            accepts_gzip,
            job,
        })
    }

    /// Fetches the page.
    pub(super) async fn fetch(&self) -> Result<ReceivedPage, ScrapeFailure> {
        let received = self.get().await?;
        let encoding = received.header(&CONTENT_ENCODING);
        let is_compressed = match encoding.as_str() {
            "" | "identity" => false,
            "gzip" | "x-gzip" if self.accepts_gzip => true,
            _ => return Err(ScrapeFailure::Encoding(encoding)),
        };
        Ok(ReceivedPage {
            content_type: received.header(&CONTENT_TYPE),
            held: received.held,
            is_compressed,
        })
    }

    /// Sends requests until a response is no redirect.
    async fn get(&self) -> Result<Received, ScrapeFailure> {
        let bounds = BodyBounds {
            limit: self.limit,
            budget: self.job.budget.clone(),
        };
        let mut with_credentials = self.headers.clone();
        let credentials = self.job.credentials.header().await;
        if let Some(value) = credentials.map_err(ScrapeFailure::Credentials)? {
            with_credentials.insert(AUTHORIZATION, value);
        }
        let mut response = self.client.get(&self.url, &with_credentials, &bounds).await;
        let mut url = self.url.clone();
        for _ in 0..REDIRECTS {
            let Err(Unfetched::Refused(refusal)) = &response else {
                return Ok(response?);
            };
            let Some(next) = redirect(refusal, &url).filter(|_| self.follow_redirects) else {
                return Ok(response?);
            };
            url = next?;
            let is_own =
                url.authority() == self.url.authority() && url.scheme() == self.url.scheme();
            response = match is_own {
                true => self.client.get(&url, &with_credentials, &bounds).await,
                false => {
                    let client = self.job.of_stranger().client(&url);
                    let client = client.map_err(ScrapeFailure::Unreachable)?;
                    client.get(&url, &self.headers, &bounds).await
                }
            };
        }
        match response {
            Err(Unfetched::Refused(refusal)) if refusal.status.is_redirection() => {
                Err(ScrapeFailure::Redirects(REDIRECTS))
            }
            response => Ok(response?),
        }
    }
}

/// Returns the target of a redirect.
fn redirect(refusal: &Refusal, from: &Uri) -> Option<Result<Uri, ScrapeFailure>> {
    let is_redirect = matches!(refusal.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = refusal.location.as_deref().filter(|_| is_redirect)?;
    Some(
        resolved(location, from).ok_or_else(|| ScrapeFailure::Status {
            status: refusal.status.as_u16(),
            location: Some(location.to_owned()),
        }),
    )
}

/// Resolves a reference, which may be a URL, an absolute path or a relative path.
fn resolved(location: &str, from: &Uri) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.contains("://") {
        return parse_url(location).ok();
    }
    let scheme = from.scheme_str()?;
    if let Some(rest) = location.strip_prefix("//") {
        return parse_url(&format!("{scheme}://{rest}")).ok();
    }
    let authority = from.authority()?;
    let path = match location.starts_with('/') {
        true => location.to_owned(),
        false => {
            let directory = from
                .path()
                .rsplit_once('/')
                .map_or("", |(directory, _)| directory);
            format!("{directory}/{location}")
        }
    };
    parse_url(&format!("{scheme}://{authority}{path}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobClient {
        JobClient {
            transport: ScrapeTransport {
                tls: None,
                options: ClientOptions::default(),
                proxy: None,
                headers: HeaderMap::from_iter([(
                    HeaderName::from_static("x-key"),
                    HeaderValue::from_static("secret"),
                )]),
                auth: None,
            },
            tls_error: Some("tls_config::ca_file: cannot be read".to_owned()),
            credentials: Credentials::of(None, None),
            budget: Budget::new(1),
        }
    }

    #[test]
    fn target_with_https_shows_the_mistake_in_tls() {
        let url: Uri = "https://a:1/metrics".parse().unwrap();
        let fetcher = Fetcher::of_url(job(), &url, HeaderMap::new(), 1, true, true);
        let reason = fetcher.err().unwrap();
        assert!(
            reason.contains("tls_config::ca_file: cannot be read"),
            "{reason}"
        );
    }

    #[test]
    fn other_host_gets_no_configured_headers() {
        assert!(job().of_stranger().transport.headers.is_empty());
    }

    #[test]
    fn redirects_are_resolved_against_the_url() {
        let from: Uri = "http://a:80/x/metrics?q=1".parse().unwrap();
        for (location, expected) in [
            ("https://b/y", Some("https://b/y")),
            ("/y?z=1", Some("http://a:80/y?z=1")),
            ("y", Some("http://a:80/x/y")),
            ("//b/y#part", Some("http://b/y")),
            ("ftp://b", None),
            ("http://user@b/", None),
        ] {
            let found = resolved(location, &from).map(|url| url.to_string());
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }
}
