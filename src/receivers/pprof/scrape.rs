//! Scraping: profiles that are taken from servers again and again.
//!
//! Each profile of each server is a [`job`] with its own [pace](pace). What they have in common is small: a bound on
//! requests under way, and [gates](gate) before what a server can only do once at a time. A scrape that is refused is
//! dropped and counted: nobody waits for an acknowledgement, and the next one comes anyway.

mod discovery;
mod dns_sd;
mod failure;
mod fetch;
mod file_sd;
mod gate;
mod gauges;
mod job;
mod pace;
mod profile;
mod remote;
mod servers;
mod target;
#[cfg(test)]
mod tests;

pub use self::dns_sd::{DnsSd, RecordType};
pub use self::file_sd::FileSd;
pub use self::profile::{Profile, Settings as ProfileSettings};
pub use self::remote::Remote;
pub use self::target::{Scheme, Target};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use self::fetch::{Transport, headers};
use self::gauges::ScraperMetrics;
use self::job::{Job, Shared};
use self::pace::Pace;
use self::servers::Servers;
use super::config::Config;
use super::delta::Deltas;
use super::intake::Intake;
use super::origin::Subject;
use super::pressure::{self, Adaptive};
use crate::component::auth;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::{Component, Consumer, Undelivered};
use futures_util::future::BoxFuture;
use tributary_net::Owner;
use tributary_net::client::{ClientOptions, parse_url};
use tributary_net::sampled_log::SampledLog;
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

/// How long a scrape may take beyond the time the profile takes, unless it is said.
const MARGIN: Duration = Duration::from_secs(10);

/// The key of the configuration that limits what is taken.
const LIMIT_KEY: &str = "max_response_body_size";

/// The sections `remote` and `targets`, if there is anything to scrape.
///
/// # Errors
/// When TLS or authentication cannot be set up.
pub(super) fn section(
    config: &Config,
    cx: &BuildContext,
    consumer: &Arc<dyn Consumer>,
) -> Result<Option<Box<dyn Component>>, BuildError> {
    let intake = |limit| {
        let (consumer, budget) = (consumer.clone(), cx.budget.clone());
        Intake::new(&cx.id, consumer, budget, "http", limit, LIMIT_KEY).converting(config)
    };
    let remote = config.remote.as_ref();
    let remote =
        remote.map(|remote| one(remote, cx, intake(remote.max_response_body_size.as_usize())));
    let mut servers = Vec::new();
    for (at, target) in config.targets.iter().enumerate() {
        let within = |error: BuildError| BuildError(format!("targets::{at}::{error}"));
        let intake = intake(target.max_response_body_size.as_usize());
        let transport = Transport {
            tls: match (target.speaks_tls(), tls(&target.tls, true, cx)) {
                (Some(false), _) => None,
                (Some(true), tls) => Some(tls.map_err(within)?),
                // The system's authorities need not be there if nobody turns out to speak TLS.
                (None, tls) => tls.ok(),
            },
            options: ClientOptions::default(),
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

/// The one job of `remote`.
fn one(remote: &Remote, cx: &BuildContext, intake: Intake) -> Result<Remoted, BuildError> {
    let within = |error: String| BuildError(format!("remote::{error}"));
    let url =
        parse_url(&remote.endpoint).map_err(|reason| within(format!("endpoint: {reason}")))?;
    let (name, takes) = remote::described(&url);
    let transport = Transport {
        tls: match url.scheme_str() {
            Some("https") => {
                let tls = tls(&remote.tls, remote.force_attempt_http2, cx);
                Some(tls.map_err(|error| within(error.to_string()))?)
            }
            _ => None,
        },
        options: remote.options(),
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
        // Until it starts.
        pace: Pace::after(Instant::now(), Duration::ZERO, *remote.collection_interval),
        delta: false,
        metrics: ScraperMetrics::new(&cx.id, "remote"),
    };
    Ok(Remoted {
        job,
        delay: *remote.initial_delay,
        interval: *remote.collection_interval,
    })
}

/// What TLS connections are made with.
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

/// `remote`, before it starts.
struct Remoted {
    job: Job,
    delay: Duration,
    interval: Duration,
}

/// What there is to do.
struct Work {
    shared: Arc<Shared>,
    remote: Option<Remoted>,
    servers: Vec<Servers>,
    adaptive: Option<(Adaptive, watch::Sender<u32>)>,
}

impl Work {
    /// Runs until it is dropped, and all that it started with it.
    async fn run(self) {
        let mut tasks = JoinSet::new();
        if let Some(Remoted {
            mut job,
            delay,
            interval,
        }) = self.remote
        {
            job.pace = Pace::after(Instant::now(), delay, interval);
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

    /// What is under way is given up at once: nobody was promised anything.
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
