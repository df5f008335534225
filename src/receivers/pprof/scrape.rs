//! Scrapes profiles from servers at intervals.
//!
//! Each profile of each server is a [`job`] with its own [`schedule`]. All jobs share a limit on
//! concurrent requests, and [gates](gate) for profiles that a server can only create one at a time.
//! A refused scrape is dropped and counted, because the next scrape follows soon.

mod discovery;
mod failure;
mod fetch;
mod gate;
mod gauges;
mod job;
mod names;
mod profile;
mod remote;
mod servers;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use self::fetch::headers;
use self::gauges::ScraperMetrics;
use self::job::{Job, Shared};
pub use self::names::{DnsSd, RecordType};
pub use self::profile::{ProfileSettings, ScrapedProfile};
pub use self::remote::Remote;
use self::servers::Servers;
pub use self::target::{Scheme, Target};
use super::config::Config;
use super::delta::Deltas;
use super::pressure::{self, Adaptive};
use crate::component::{BuildContext, BuildError, auth};
use crate::pipeline::{Component, Consumer, Undelivered};
use crate::receivers::profile_intake::{Intake, Subject};
use crate::receivers::scraping::client::ScrapeTransport;
pub use crate::receivers::scraping::file_sd::FileSd;
use crate::receivers::scraping::schedule::Schedule;
use futures_util::future::BoxFuture;
use tributary_net::Owner;
use tributary_net::client::{ClientOptions, parse_url};
use tributary_net::sampled_log::SampledLog;
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

/// Default timeout beyond the duration of the profile.
const MARGIN: Duration = Duration::from_secs(10);

/// Key of the limit on the size of a scraped profile.
const LIMIT_KEY: &str = "max_response_body_size";

/// Returns the sections `remote` and `targets`, if any server is configured.
///
/// # Errors
/// Returns an error if TLS or authentication cannot be set up.
pub(super) fn section(
    config: &Config,
    cx: &BuildContext,
    consumer: &Arc<dyn Consumer>,
) -> Result<Option<Box<dyn Component>>, BuildError> {
    let intake = |limit| {
        let (consumer, budget) = (consumer.clone(), cx.budget.clone());
        Intake::new(&cx.id, consumer, budget, "http", limit, LIMIT_KEY)
            .converting(config.read_options())
    };
    let remote = config.remote.as_ref();
    let remote =
        remote.map(|remote| one(remote, cx, intake(remote.max_response_body_size.as_usize())));
    let mut servers = Vec::new();
    for (at, target) in config.targets.iter().enumerate() {
        let within = |error: BuildError| BuildError(format!("targets::{at}::{error}"));
        let intake = intake(target.max_response_body_size.as_usize());
        let transport = ScrapeTransport {
            tls: match (target.speaks_tls(), tls(&target.tls, true, cx)) {
                (Some(false), _) => None,
                (Some(true), tls) => Some(tls.map_err(within)?),
                // The system's certificate authorities are not required if no server uses TLS.
                (None, tls) => tls.ok(),
            },
            options: ClientOptions::default(),
            proxy: None,
            headers: headers(&target.headers),
            auth: auth::client(target.auth.as_ref(), cx).map_err(within)?,
        };
        servers.push(Servers::new(target, transport, intake, &cx.id).map_err(within)?);
    }
    let remote = remote.transpose()?;
    if remote.is_none() && servers.is_empty() {
        return Ok(None);
    }
    let (factor, stretch) = watch::channel(1);
    let most = config.max_concurrent_scrapes.min(Semaphore::MAX_PERMITS);
    Ok(Some(Box::new(Scraper {
        waiting: Some(Work {
            shared: Arc::new(Shared {
                id: cx.id.clone(),
                slots: (most > 0).then(|| Semaphore::new(most)),
                stretch,
                deltas: Deltas::of(
                    &cx.id,
                    &config.links.labels(),
                    config.delta_max_bytes.as_usize(),
                    &cx.budget,
                ),
                failures: SampledLog::default(),
                refusals: SampledLog::default(),
            }),
            remote,
            servers,
            adaptive: config.adaptive.0.clone().map(|adaptive| (adaptive, factor)),
        }),
        running: None,
    })))
}

/// Returns the job of `remote`.
fn one(remote: &Remote, cx: &BuildContext, intake: Intake) -> Result<Remoted, BuildError> {
    let within = |error: String| BuildError(format!("remote::{error}"));
    let url =
        parse_url(&remote.endpoint).map_err(|reason| within(format!("endpoint: {reason}")))?;
    let (name, takes) = remote::described(&url);
    let transport = ScrapeTransport {
        tls: match url.scheme_str() {
            Some("https") => {
                let tls = tls(&remote.tls, remote.force_attempt_http2, cx);
                Some(tls.map_err(|error| within(error.to_string()))?)
            }
            _ => None,
        },
        options: remote.options(),
        proxy: None,
        headers: headers(&remote.headers),
        auth: auth::client(remote.auth.as_ref(), cx).map_err(|error| within(error.to_string()))?,
    };
    let client = transport.client(&url, None).map_err(within)?;
    let timeout = remote.timeout.unless_zero();
    let (attributes, fallback) = servers::identity(&url, Vec::new());
    let job = Job {
        target: servers::label(&url),
        profile: name.into(),
        subject: Arc::new(Subject::new(attributes, Some(fallback))),
        url,
        fetch: Arc::new(client),
        intake,
        takes,
        timeout: timeout.unwrap_or(takes.unwrap_or_default() + MARGIN),
        // The start replaces this value.
        schedule: Schedule::after(Instant::now(), Duration::ZERO, *remote.collection_interval),
        delta: false,
        metrics: ScraperMetrics::new(&cx.id, "remote"),
    };
    Ok(Remoted {
        job,
        delay: *remote.initial_delay,
        interval: *remote.collection_interval,
    })
}

/// Returns the TLS settings of connections.
fn tls(
    config: &ClientTls,
    http2: bool,
    cx: &BuildContext,
) -> Result<(ClientTls, RotatingClient), BuildError> {
    let alpn: &[&[u8]] = match http2 {
        true => &[b"h2", b"http/1.1"],
        false => &[b"http/1.1"],
    };
    let owner = Owner::new(&cx.id, "receiver");
    let source = RotatingClient::new(config, alpn, owner);
    let source = source.map_err(|error| BuildError(format!("tls::{error}")))?;
    Ok((config.clone(), source))
}

/// The section `remote`, before the start.
struct Remoted {
    job: Job,
    delay: Duration,
    interval: Duration,
}

/// All configured scrapes.
struct Work {
    shared: Arc<Shared>,
    remote: Option<Remoted>,
    servers: Vec<Servers>,
    adaptive: Option<(Adaptive, watch::Sender<u32>)>,
}

impl Work {
    /// Runs until the future is dropped, together with all started tasks.
    async fn run(self) {
        let mut tasks = JoinSet::new();
        if let Some(Remoted {
            mut job,
            delay,
            interval,
        }) = self.remote
        {
            job.schedule = Schedule::after(Instant::now(), delay, interval);
            tasks.spawn(job.run(self.shared.clone()));
        }
        for servers in self.servers {
            tasks.spawn(servers.run(self.shared.clone()));
        }
        if let Some((adaptive, factor)) = self.adaptive {
            tasks.spawn(pressure::watch_cpu(
                adaptive,
                self.shared.id.clone(),
                factor,
            ));
        }
        while tasks.join_next().await.is_some() {}
    }
}

struct Scraper {
    waiting: Option<Work>,
    running: Option<JoinHandle<()>>,
}

impl Component for Scraper {
    fn start(&mut self) {
        if let Some(work) = self.waiting.take() {
            self.running = Some(tokio::spawn(work.run()));
        }
    }

    /// Cancels requests in flight at once, because no data has been acknowledged.
    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            if let Some(running) = self.running {
                running.abort();
                let _ = running.await;
            }
            Undelivered::default()
        })
    }
}
