//! Helpers for the tests of several components.

use bytes::Bytes;
use metrics::with_local_recorder;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use prost::Message as _;
use serde::de::DeserializeOwned;
use tributary_config::{Problems, Validate};
use tributary_profiles::testing_requests::named;

use crate::component::{BuildContext, Host};
use crate::pipeline::batch::Batch;
use tributary_otlp::Signal;

/// A context to build the exporter of that id in.
pub(crate) fn context(id: &str) -> BuildContext {
    Host::for_tests().context(&id.parse().unwrap())
}

/// Returns the paths of the problems in the configuration of a component, in order.
pub(crate) fn problems<C: DeserializeOwned + Validate>(yaml: &str) -> Vec<String> {
    let config: C = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let found = problems.found().iter();
    found.map(|problem| problem.path.join("::")).collect()
}

/// Records the metrics of the components that are built within it.
pub(crate) struct Recorded(PrometheusRecorder);

impl Recorded {
    pub(crate) fn new() -> Self {
        Recorded(PrometheusBuilder::new().build_recorder())
    }

    /// Runs `build` so that its metrics are recorded here.
    pub(crate) fn within<T>(&self, build: impl FnOnce() -> T) -> T {
        with_local_recorder(&self.0, build)
    }

    /// Items on one side of the exporter's account: `received`, `delivered`, `refused`.
    pub(crate) fn items(&self, outcome: &str, signal: Signal) -> u64 {
        let metric = format!("tributary_exporter_{outcome}_items{{");
        let label = format!("data_type=\"{signal}\"");
        self.0
            .handle()
            .render()
            .lines()
            .filter(|line| line.starts_with(&metric) && line.contains(&label))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// The sum of all series of that name.
    pub(crate) fn sum(&self, metric: &str) -> f64 {
        let page = self.0.handle().render();
        let series = page.lines().filter_map(|line| line.split_once('{'));
        let series = series.filter(|(name, _)| *name == metric);
        series
            .filter_map(|(_, rest)| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// A batch of the profiles that [`tributary_profiles::testing_requests::named`] makes.
pub(crate) fn named_batch<'a>(service: &str, names: impl IntoIterator<Item = &'a str>) -> Batch {
    let request = named(service, 1_000, names).encode_to_vec();
    let request = Bytes::from(request);
    let items = tributary_otlp::count(Signal::Profiles, &request);
    Batch::new(Signal::Profiles, items, request)
}
