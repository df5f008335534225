//! Discovery by HTTP: <https://prometheus.io/docs/prometheus/latest/http_sd/>.

use std::collections::BTreeSet;
use std::time::Duration;

use http::HeaderMap;
use http::header::{ACCEPT, HeaderValue};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::config::HttpSdConfig;
use super::credentials::Credentials;
use super::failure::ScrapeFailure;
use super::fetch::{Fetcher, JobClient, tls};
use crate::component::{BuildContext, BuildError};
use crate::receivers::scraping::found::Found;
use tributary_config::ComponentId;
use tributary_net::client::parse_url;
use tributary_net::discovery::{TargetGroup, parse_targets};

/// Maximum size of a list, in bytes, as for files.
const MAX_LIST: usize = 4 << 20;

/// A server that lists targets.
pub(super) struct HttpList {
    fetcher: Fetcher,
    url: String,
    refresh: Duration,
    id: ComponentId,
    has_started: bool,
    known: BTreeSet<Found>,
}

impl HttpList {
    /// Creates the client of a list.
    ///
    /// # Errors
    /// The URL or TLS cannot be used.
    pub(super) fn new(config: &HttpSdConfig, cx: &BuildContext) -> Result<Self, BuildError> {
        let within = |reason: String| BuildError(format!("http_sd_configs: {reason}"));
        let url = parse_url(&config.url).map_err(within)?;
        let tls = tls(&config.tls_config.client(), true, cx);
        let tls = match url.scheme_str() {
            Some("https") => Ok(tls?),
            _ => tls,
        };
        let credentials =
            Credentials::of(config.basic_auth.as_ref(), config.authorization.as_ref());
        let client = JobClient::new(tls, None, HeaderMap::new(), credentials, cx)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let seconds = config.refresh_interval.0.as_secs_f64().to_string();
        if let Ok(seconds) = HeaderValue::try_from(seconds) {
            headers.insert("x-prometheus-refresh-interval-seconds", seconds);
        }
        Ok(HttpList {
            fetcher: Fetcher::of_url(client, &url, headers, MAX_LIST, true, false)
                .map_err(within)?,
            url: tributary_config::without_url_secrets(&config.url).into_owned(),
            refresh: config.refresh_interval.0,
            id: cx.id.clone(),
            has_started: false,
            known: BTreeSet::new(),
        })
    }

    /// Waits for the next refresh and returns the targets. The first refresh is immediate. If it fails, the targets do
    /// not change.
    pub(super) async fn next(&mut self) -> BTreeSet<Found> {
        if self.has_started {
            sleep(self.refresh).await;
        }
        self.has_started = true;
        match self.list().await {
            Ok(groups) => {
                self.known = groups
                    .into_iter()
                    .flat_map(|group| self.found(group))
                    .collect()
            }
            Err(error) => warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                url = self.url,
                error,
                "Cannot fetch a list of targets; still using its previous targets"
            ),
        }
        self.known.clone()
    }

    async fn list(&self) -> Result<Vec<TargetGroup>, String> {
        let page = timeout(self.refresh, self.fetcher.fetch()).await;
        let page = page.unwrap_or(Err(ScrapeFailure::Slow(self.refresh)));
        let page = page.map_err(|failure| failure.to_string())?;
        let text = std::str::from_utf8(&page.held.bytes).map_err(|error| error.to_string())?;
        parse_targets(text, "the list")
    }

    fn found(&self, group: TargetGroup) -> impl Iterator<Item = Found> + use<> {
        let TargetGroup {
            targets,
            mut labels,
        } = group;
        labels.insert("__meta_url".to_owned(), self.url.clone());
        targets.into_iter().map(move |address| Found {
            address,
            name: None,
            labels: labels.clone(),
        })
    }
}
