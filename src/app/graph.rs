//! The graph of a configuration: started downstream first, shut down upstream first, replaced without a gap.

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

/// Why a graph could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct GraphError {
    /// The component or pipeline, as a path in the configuration.
    pub place: String,
    /// What went wrong there.
    pub problem: String,
}

/// All components of one configuration, connected.
#[derive(Default)]
pub struct Graph {
    pub(super) extensions: Vec<Part>,
    pub(super) exporters: Vec<Part>,
    /// Connectors and stages that hold batches, downstream first.
    pub(super) middle: Vec<Part>,
    pub(super) receivers: Vec<Part>,
    /// Where receivers pointed that the next graph has taken over.
    replaced: Vec<Arc<Destination>>,
}

/// A component in its place.
pub(super) struct Part {
    /// The path in the configuration, as in `exporters.otlp_grpc`.
    pub(super) name: String,
    /// Equal for components that the next configuration leaves as they are; empty for those that are never kept.
    pub(super) fingerprint: String,
    /// `None` while the component still belongs to the graph before this one.
    pub(super) component: Option<Box<dyn Component>>,
    pub(super) started: bool,
    /// How many holding stages and connectors data passes at most from here to an exporter, this one included.
    pub(super) level: usize,
    /// Where pipelines enter an exporter.
    pub(super) inputs: Outputs,
    /// Where a receiver's data goes.
    pub(super) switches: Vec<(Signal, Arc<Switch>)>,
    /// What an extension does for others, under its id.
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

/// How long requests that a replaced receiver had begun may take, and the last steps of a replaced graph.
const HANDOVER: Duration = Duration::from_secs(10);

/// How often a replaced graph is looked at, whether it still holds something.
const LOOK: Duration = Duration::from_millis(100);

impl Graph {
    /// Builds the graph of a valid configuration. Receivers, exporters and extensions that `running` has with the same
    /// configuration are not built again; [`adopt`](Self::adopt) takes them over.
    ///
    /// # Errors
    /// When a component cannot be built. What was built up to then is dropped; `running` is untouched.
    pub fn build(
        config: &Config,
        host: &Host,
        running: Option<&Graph>,
    ) -> Result<Graph, GraphError> {
        Builder::new(config, host, running).build()
    }

    /// What its extensions do for others.
    pub fn extensions(&self) -> Extensions {
        let parts = self.extensions.iter();
        parts.filter_map(|part| part.services.clone()).collect()
    }

    /// Takes over what [`build`](Self::build) found unchanged in `previous`, and connects its receivers to the new
    /// pipelines.
    pub fn adopt(&mut self, previous: &mut Graph) {
        adopt(&mut self.extensions, &mut previous.extensions);
        adopt(&mut self.exporters, &mut previous.exporters);
        previous.replaced = adopt(&mut self.receivers, &mut previous.receivers);
    }

    /// Starts every component that does not run yet, receivers last.
    pub fn start(&mut self) {
        let parts = self.extensions.iter_mut().chain(&mut self.exporters);
        for part in parts.chain(&mut self.middle).chain(&mut self.receivers) {
            if let Some(component) = part.component.as_mut().filter(|_| !part.started) {
                component.start();
                part.started = true;
            }
        }
    }

    /// Shuts everything down, upstream first. Receivers get at most a third of the time, so that what they let in can
    /// still be flushed and delivered. Stages that do not lie behind each other stop together, and none gets more than
    /// its share of the time: one that cannot let go of its data must not cost others theirs.
    pub async fn shutdown(mut self, deadline: Instant) -> Undelivered {
        // What gathers acknowledged or awaited data must not wait for more: the receivers' clients wait for it.
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

    /// Lets go of a graph that another one has replaced. Its receivers finish what they had begun; everything else
    /// works on until it holds nothing any more, or until `terminate` says by when the process ends. `handing_over` is
    /// dropped when nothing more can come from it to exporters that it shares with its successor.
    pub async fn retire<T>(
        mut self,
        terminate: impl Future<Output = Instant>,
        handing_over: T,
    ) -> Undelivered {
        let mut terminate = pin!(terminate);
        let soon = Instant::now() + HANDOVER;
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
                // What is not answered by then, its client still has.
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

    /// By when to shut down: soon, once nothing is held any more, or when `terminate` says.
    async fn idle_or(&mut self, mut terminate: Pin<&mut impl Future<Output = Instant>>) -> Instant {
        let mut look = interval(LOOK);
        loop {
            if self.is_idle() {
                return Instant::now() + HANDOVER;
            }
            tokio::select! {
                _ = look.tick() => {}
                deadline = terminate.as_mut() => return deadline,
            }
        }
    }

    /// Whether no stage and no exporter holds anything.
    fn is_idle(&self) -> bool {
        // Upstream first: what one stage has let go of, a later one has.
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

/// Moves the components of parts that were found unchanged; returns where their receivers pointed.
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
        // The component holds the old switches: they stay, and point elsewhere.
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
    // A component keeps to its deadline by itself; the margin is for one that does not.
    let margin = Duration::from_secs(2);
    match timeout_at(deadline + margin, component.shutdown(deadline)).await {
        Ok(left) => {
            if left.items > 0 {
                warn!(
                    component = part.name,
                    items = left.items,
                    "Not everything was delivered."
                );
            }
            left
        }
        Err(_) => {
            warn!(component = part.name, "Did not stop before the deadline.");
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

/// Says what flows where, once per start and reload.
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
