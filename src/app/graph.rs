//! The graph of a configuration: started downstream first, shut down upstream first, replaced
//! without a gap.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, interval, timeout_at};
use tracing::{info, warn};

use super::builder::Builder;
use crate::app::config::Config;
use crate::component::{Extensions, Host, Outputs, Services};
use crate::pipeline::switch::Destination;
use crate::pipeline::{Component, Switch, Undelivered};
use tributary_config::ComponentId;
use tributary_otlp::Signal;

/// Reason why a graph could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct GraphError {
    /// Path of the component or pipeline in the configuration.
    pub place: String,
    /// Description of the problem.
    pub problem: String,
}

/// All components of one configuration, connected.
#[derive(Default)]
pub struct Graph {
    pub(super) extensions: Vec<Part>,
    pub(super) exporters: Vec<Part>,
    /// Connectors and buffering stages, downstream first.
    pub(super) middle: Vec<Part>,
    pub(super) receivers: Vec<Part>,
    /// Former destinations of receivers that now belong to the next graph.
    replaced: Vec<Arc<Destination>>,
}

/// A component and its position in the graph.
pub(super) struct Part {
    /// Path in the configuration, such as `exporters.otlp_grpc`.
    pub(super) name: String,
    /// Fingerprint of the configuration. Equal fingerprints mean that a reload keeps the component;
    /// empty for components that are never kept.
    pub(super) fingerprint: String,
    /// The component; `None` while it still belongs to the previous graph.
    pub(super) component: Option<Box<dyn Component>>,
    pub(super) started: bool,
    /// Largest number of buffering stages and connectors from this component to an exporter,
    /// including this component.
    pub(super) level: usize,
    /// Entries of pipelines into an exporter.
    pub(super) inputs: Outputs,
    /// Switches that direct a receiver's data to its pipelines.
    pub(super) switches: Vec<(Signal, Arc<Switch>)>,
    pub(super) services: Option<(ComponentId, Services)>,
}

impl Part {
    pub(super) fn named(name: String) -> Self {
        Part {
            name,
            fingerprint: String::new(),
            component: None,
            started: false,
            level: 0,
            inputs: Outputs::default(),
            switches: Vec::new(),
            services: None,
        }
    }
}

/// Time limit for requests in flight at a replaced receiver and for the last steps of a replaced
/// graph.
const HANDOVER_TIME: Duration = Duration::from_secs(10);

/// Interval between two checks whether a replaced graph is idle.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl Graph {
    /// Builds the graph of a valid configuration. Receivers, exporters and extensions with the same
    /// configuration in `running` are not built again; [`adopt`](Self::adopt) moves them.
    ///
    /// # Errors
    /// If a component cannot be built. The components built before are dropped; `running` is
    /// untouched.
    pub fn build(
        config: &Config,
        host: &Host,
        running: Option<&Graph>,
    ) -> Result<Graph, GraphError> {
        Builder::new(config, host, running).build()
    }

    /// Returns the services of the extensions.
    pub fn extensions(&self) -> Extensions {
        let parts = self.extensions.iter();
        parts.filter_map(|part| part.services.clone()).collect()
    }

    /// Moves the components that [`build`](Self::build) found unchanged out of `previous`, and
    /// connects their receivers to the new pipelines.
    pub fn adopt(&mut self, previous: &mut Graph) {
        adopt(&mut self.extensions, &mut previous.extensions);
        adopt(&mut self.exporters, &mut previous.exporters);
        previous.replaced = adopt(&mut self.receivers, &mut previous.receivers);
    }

    /// Starts every component that is not running yet, receivers last.
    pub fn start(&mut self) {
        let parts = self.extensions.iter_mut().chain(&mut self.exporters);
        for part in parts.chain(&mut self.middle).chain(&mut self.receivers) {
            if let Some(component) = part.component.as_mut().filter(|_| !part.started) {
                component.start();
                part.started = true;
            }
        }
    }

    /// Shuts everything down, upstream first. Receivers get at most a third of the time, so that
    /// data they accepted can still be flushed and delivered. Stages of the same level stop
    /// together. Each level gets at most its share of the time, so that one stuck stage does not
    /// cost the other stages their data.
    pub async fn shutdown(mut self, deadline: Instant) -> Undelivered {
        // Exporters must stop buffering, because clients of the receivers wait for the outcome of
        // their data.
        self.flush_exporters();
        let mut left = self.shut_down_upstream(deadline).await;
        left += self.shut_down_exporters(deadline).await;
        left
    }

    async fn shut_down_upstream(&mut self, deadline: Instant) -> Undelivered {
        let third = deadline.saturating_duration_since(Instant::now()) / 3;
        let receivers = std::mem::take(&mut self.receivers);
        let mut left = stop_all(receivers, Instant::now() + third).await;
        let mut levels: BTreeMap<usize, Vec<Part>> = BTreeMap::new();
        for part in std::mem::take(&mut self.middle) {
            levels.entry(part.level).or_default().push(part);
        }
        while let Some((_, parts)) = levels.pop_last() {
            let still_to_come = u32::try_from(levels.len()).unwrap_or(u32::MAX);
            let time = deadline.saturating_duration_since(Instant::now());
            // The exporters come after all levels.
            let share = time / still_to_come.saturating_add(2);
            left += stop_all(parts, Instant::now() + share).await;
        }
        left
    }

    async fn shut_down_exporters(self, deadline: Instant) -> Undelivered {
        let mut left = stop_all(self.exporters, deadline).await;
        left += stop_all(self.extensions, deadline).await;
        left
    }

    /// Shuts down a graph that another graph has replaced. Its receivers finish their requests; the
    /// other components keep working until the graph is idle or until `terminate` gives the
    /// deadline of the process. `handing_over` is dropped when no more data can reach exporters
    /// that the graph shares with its successor.
    pub async fn retire<T>(
        mut self,
        terminate: impl Future<Output = Instant>,
        handing_over: T,
    ) -> Undelivered {
        let mut terminate = pin!(terminate);
        let soon = Instant::now() + HANDOVER_TIME;
        let receivers = std::mem::take(&mut self.receivers);
        let replaced = std::mem::take(&mut self.replaced);
        let mut hand_over = pin!(async {
            let left = stop_all(receivers, soon).await;
            join_all(replaced.into_iter().map(|old| old.emptied(soon))).await;
            left
        });
        let (mut left, deadline) = tokio::select! {
            left = hand_over.as_mut() => (left, None),
            deadline = terminate.as_mut() => {
                // The clients still have the data of requests that are not acknowledged by the deadline.
                let third = deadline.saturating_duration_since(Instant::now()) / 3;
                let left = timeout_at(Instant::now() + third, hand_over).await;
                (left.unwrap_or_default(), Some(deadline))
            }
        };
        let deadline = match deadline {
            Some(deadline) => deadline,
            None => {
                let middle = self
                    .middle
                    .iter()
                    .filter_map(|part| part.component.as_ref());
                middle.for_each(|component| component.flush());
                self.flush_exporters();
                self.idle_or(terminate).await
            }
        };
        left += self.shut_down_upstream(deadline).await;
        drop(handing_over);
        left += self.shut_down_exporters(deadline).await;
        left
    }

    fn flush_exporters(&self) {
        let exporters = self
            .exporters
            .iter()
            .filter_map(|part| part.component.as_ref());
        exporters.for_each(|component| component.flush());
    }

    /// Returns the deadline for a shutdown: soon after the graph is idle, or the deadline that
    /// `terminate` gives.
    async fn idle_or(&mut self, mut terminate: Pin<&mut impl Future<Output = Instant>>) -> Instant {
        let mut look = interval(IDLE_CHECK_INTERVAL);
        loop {
            if self.is_idle() {
                return Instant::now() + HANDOVER_TIME;
            }
            tokio::select! {
                _ = look.tick() => {}
                deadline = terminate.as_mut() => return deadline,
            }
        }
    }

    /// Whether no stage and no exporter buffers any data.
    fn is_idle(&self) -> bool {
        // Upstream first: data that has left one stage is then found in a later stage.
        let mut parts = self.middle.iter().rev().chain(&self.exporters);
        parts.all(|part| {
            part.component
                .as_ref()
                .is_none_or(|component| component.idle())
        })
    }

    pub(super) fn part(&self, name: &str) -> Option<&Part> {
        let parts = self
            .extensions
            .iter()
            .chain(&self.exporters)
            .chain(&self.receivers);
        parts.into_iter().find(|part| part.name == name)
    }
}

/// Moves the components that were found unchanged; returns the former destinations of their
/// receivers.
fn adopt(new: &mut [Part], old: &mut Vec<Part>) -> Vec<Arc<Destination>> {
    let mut replaced = Vec::new();
    for part in new.iter_mut().filter(|part| part.component.is_none()) {
        let Some(at) = old.iter().position(|candidate| candidate.name == part.name) else {
            continue;
        };
        let previous = old.remove(at);
        for (signal, switch) in &previous.switches {
            let successor = part.switches.iter().find(|(other, _)| other == signal);
            replaced.extend(successor.map(|(_, successor)| switch.follow(successor)));
        }
        // The component holds the old switches. They stay and get a new destination.
        part.switches = previous.switches;
        part.component = previous.component;
        part.started = previous.started;
    }
    replaced
}

async fn stop(part: Part, deadline: Instant) -> Undelivered {
    let Some(component) = part.component else {
        return Undelivered::default();
    };
    // A component respects its deadline by itself; the margin is for a component that does not.
    let margin = Duration::from_secs(2);
    match timeout_at(deadline + margin, component.shutdown(deadline)).await {
        Ok(left) => {
            if left.items > 0 {
                warn!(
                    component = part.name,
                    items = left.items,
                    "Items were not delivered before the deadline."
                );
            }
            left
        }
        Err(_) => {
            warn!(
                component = part.name,
                "A component did not stop before the deadline."
            );
            Undelivered::default()
        }
    }
}

async fn stop_all(parts: impl IntoIterator<Item = Part>, deadline: Instant) -> Undelivered {
    join_all(parts.into_iter().map(|part| stop(part, deadline)))
        .await
        .into_iter()
        .sum()
}

/// Logs the pipelines, once per start and reload.
pub(crate) fn describe(config: &Config) {
    for (id, pipeline) in &config.service.pipelines {
        let list = |ids: &[ComponentId]| {
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        info!(
            otelcol.pipeline.id = %id,
            receivers = list(&pipeline.receivers),
            processors = list(&pipeline.processors),
            exporters = list(&pipeline.exporters),
            "Pipeline is built."
        );
    }
}
