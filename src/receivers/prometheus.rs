//! The `prometheus` receiver: scrapes metrics from targets and converts them to OTLP.
//!
//! Each job discovers its targets (`sources`) and runs a loop for each (`looping`). A scrape fetches a page (`fetch`),
//! reads it with the labels of the target and the rules of the job (`page`), and gathers data points by resource, scope
//! and metric (`transaction`, `family`, `point`), which become one encoded request (`encode`). Series that were on the
//! previous page only (`cache`) end with a point without a value.
//!
//! A request that the pipeline refuses is dropped and counted, because the next scrape follows soon.

mod cache;
mod config;
mod credentials;
mod encode;
mod failure;
mod family;
mod fetch;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod http_sd;
mod looping;
mod metadata;
mod outlet;
mod page;
mod point;
mod pool;
mod resource;
mod scrape;
mod series;
mod settings;
mod sources;
mod target;
#[cfg(test)]
mod tests;
mod transaction;
mod unit;

use std::sync::Arc;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

pub use self::config::{
    Authorization, Base2Size, BasicAuth, Config, DnsRecord, DnsSdConfig, ExtraHeader, FileSdConfig,
    GlobalConfig, HttpSdConfig, NameScheme, PrometheusDuration, PrometheusTls, RelabelAction,
    RelabelConfig, ScrapeConfig, ScrapeProtocol, StaticConfig,
};
use self::fetch::JobClient;
use self::outlet::Outlet;
use self::pool::Pool;
use self::settings::JobSettings;
use self::sources::Sources;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig, Stability,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::{Component, Idle, Undelivered};
use futures_util::future::BoxFuture;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "prometheus",
    aliases: &[],
    "Scrapes metrics from targets in the formats of Prometheus.",
    &[(Signal::Metrics, Stability::Beta)],
    collector: Origin::Contrib,
    metrics: &[shared::RECEIVER, shared::TLS, METRICS]
);

/// Metrics of this component.
const METRICS: &[Metric] = &[metric::counter(
    "tributary_receiver_prometheus_scrapes",
    "Number of scrapes, by job and outcome",
)];

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let Some(consumer) = outputs.get(Signal::Metrics) else {
            return Ok(Box::new(Idle));
        };
        let outlet = Arc::new(Outlet::new(&cx.id, cx.budget.clone(), consumer.clone()));
        let mut pools = Vec::new();
        for (at, job) in self.config.scrape_configs.iter().enumerate() {
            let within =
                |error: BuildError| BuildError(format!("config::scrape_configs::{at}::{error}"));
            pools.push(Pool {
                settings: Arc::new(JobSettings::new(self, job).map_err(within)?),
                sources: Sources::new(job, cx).map_err(within)?,
                client: JobClient::of_job(job, cx).map_err(within)?,
                outlet: outlet.clone(),
            });
        }
        Ok(Box::new(Receiver {
            pools,
            running: None,
        }))
    }
}

/// All jobs of the receiver.
struct Receiver {
    pools: Vec<Pool>,
    running: Option<JoinHandle<()>>,
}

impl Component for Receiver {
    fn start(&mut self) {
        let pools = std::mem::take(&mut self.pools);
        self.running = Some(tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            for pool in pools {
                tasks.spawn(pool.run());
            }
            while tasks.join_next().await.is_some() {}
        }));
    }

    /// Cancels scrapes in progress at once, because no data has been acknowledged.
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
