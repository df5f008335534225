//! The `pprof` receiver: collects pprof files from several sources and converts them to OTLP profiles.
//!
//! Each section of the configuration is one kind of source. All sources use one intake, which converts files and
//! forwards the profiles.

mod config;
mod delta;
mod differences;
mod file;
mod pressure;
mod scrape;
mod server;

use std::sync::Arc;

use tokio::time::Instant;

pub use self::config::Config;
pub use self::file::FileConfig;
pub use self::scrape::{
    DnsSd, FileSd, ProfileSettings, RecordType, Remote, Scheme, ScrapedProfile, Target,
};
pub use self::server::ServerConfig;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig, Stability,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::{Component, Consumer, Idle, Undelivered};
use crate::receivers::profile_intake::Intake;
use futures_util::future::BoxFuture;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "pprof",
    aliases: &[],
    "Scrapes and receives pprof profiles, and converts them to OTLP.",
    &[(Signal::Profiles, Stability::Alpha)],
    collector: Origin::Contrib,
    metrics: &[shared::RECEIVER, shared::SERVER, shared::TLS, shared::PPROF_REPAIRS, METRICS]
);

/// Metrics of this component.
const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_scraper_scraped_profile_records",
        "Number of samples in scraped profiles, by target and profile",
    ),
    metric::counter(
        "otelcol_scraper_errored_profile_records",
        "Number of profiles that could not be scraped, by target and profile",
    ),
    metric::counter(
        "tributary_scraper_dropped_profiles",
        "Number of scraped profiles that the pipeline or the memory budget refused, by target and profile",
    ),
    metric::gauge(
        "tributary_scraper_up",
        "1 if the last scrape of a target's profile succeeded, otherwise 0",
    ),
    metric::gauge(
        "tributary_scraper_duration_seconds",
        "Duration of the last scrape of a target's profile, in seconds",
    ),
    metric::counter(
        "tributary_receiver_pprof_forgotten_series",
        "Number of cumulative profiles that could not be remembered for lack of memory; the next profile of the \
         series yields no difference",
    ),
    metric::gauge(
        "tributary_receiver_pprof_interval_stretch",
        "Factor by which scrape intervals are longer because the CPU is busy; otherwise 1",
    ),
];

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let Some(consumer) = outputs.get(Signal::Profiles) else {
            return Ok(Box::new(Idle));
        };
        Ok(Box::new(Receiver {
            sections: self.sections(cx, consumer)?,
        }))
    }
}

impl Config {
    /// Returns the configured sections, each as a component of its own.
    fn sections(
        &self,
        cx: &BuildContext,
        consumer: &Arc<dyn Consumer>,
    ) -> Result<Vec<Box<dyn Component>>, BuildError> {
        let intake = |transport, limit, key| {
            let (consumer, budget) = (consumer.clone(), cx.budget.clone());
            Intake::new(&cx.id, consumer, budget, transport, limit, key)
                .converting(self.read_options())
        };
        let mut sections: Vec<Box<dyn Component>> = Vec::new();
        sections.extend(scrape::section(self, cx, consumer)?);
        if let Some(config) = &*self.server {
            let intake = intake("http", config.max_body(), server::LIMIT_KEY);
            sections.push(config.build(cx, intake)?);
        }
        if let Some(config) = &*self.file {
            let intake = intake("file", config.max_file(), file::LIMIT_KEY);
            sections.push(config.build(&cx.id, intake)?);
        }
        Ok(sections)
    }
}

/// All sections of the receiver.
struct Receiver {
    sections: Vec<Box<dyn Component>>,
}

impl Component for Receiver {
    fn start(&mut self) {
        for section in &mut self.sections {
            section.start();
        }
    }

    fn idle(&self) -> bool {
        self.sections.iter().all(|section| section.idle())
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let sections = self.sections.into_iter();
            let sections = sections.map(|section| section.shutdown(deadline));
            let all = futures_util::future::join_all(sections).await;
            all.into_iter().sum()
        })
    }
}
