//! Tests of the graph, with components that record their calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Graph;
use crate::app::config::{Config, Configured, ServiceConfig};
use crate::app::graph::Part;
use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Host, Origin, Outputs, ReceiverConfig,
    Stability, Terminal,
};
use crate::pipeline::batch::Nack;
use crate::pipeline::id::{PipelineConfig, PipelineId};
use crate::pipeline::testing::{Scripted, spans};
use crate::pipeline::{Component, Idle, Undelivered};
use futures_util::future::BoxFuture;
use tributary_config::{ComponentId, Validate};
use tributary_otlp::Signal;

/// Shared state of a test's components: the built components and the outputs of the receivers.
#[derive(Debug, Clone, Default)]
struct Stage(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    built: Vec<String>,
    stopped: Vec<String>,
    outputs: BTreeMap<String, Outputs>,
    exporters: BTreeMap<String, Arc<Scripted>>,
    busy: bool,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.built).finish()
    }
}

impl serde::Serialize for Stage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl Validate for Stage {}

struct Life {
    name: String,
    stage: Stage,
}

impl Component for Life {
    fn idle(&self) -> bool {
        !self.stage.0.lock().unwrap().busy
    }

    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.stage.0.lock().unwrap().stopped.push(self.name);
            Undelivered::default()
        })
    }
}

impl ReceiverConfig for Stage {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let mut seen = self.0.lock().unwrap();
        seen.built.push(cx.id.to_string());
        seen.outputs.insert(cx.id.to_string(), outputs);
        Ok(Box::new(Life {
            name: cx.id.to_string(),
            stage: self.clone(),
        }))
    }
}

impl ExporterConfig for Stage {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        if cx.id.kind() == "broken" {
            return Err(BuildError("cannot be built".to_owned()));
        }
        let mut seen = self.0.lock().unwrap();
        seen.built.push(cx.id.to_string());
        let double = Scripted::new([]);
        seen.exporters.insert(cx.id.to_string(), double.clone());
        let mut inputs = Outputs::default();
        for signal in signals {
            inputs.set(*signal, double.clone());
        }
        let component = Box::new(Life {
            name: cx.id.to_string(),
            stage: self.clone(),
        });
        Ok(Terminal { inputs, component })
    }
}

static RECEIVER: Entry<dyn ReceiverConfig> = Entry {
    name: "receiver",
    aliases: &[],
    summary: "",
    signals: &[(Signal::Traces, Stability::Alpha)],
    emits: None,
    collector: Origin::Own,
    metrics: &[],
    notes: "",
    decode: |_, _| None,
    schema: |generator| generator.subschema_for::<()>(),
};

static EXPORTER: Entry<dyn ExporterConfig> = Entry {
    name: "exporter",
    aliases: &[],
    summary: "",
    signals: &[(Signal::Traces, Stability::Alpha)],
    emits: None,
    collector: Origin::Own,
    metrics: &[],
    notes: "",
    decode: |_, _| None,
    schema: |generator| generator.subschema_for::<()>(),
};

fn id(text: &str) -> ComponentId {
    text.parse().unwrap()
}

/// The receivers and the exporters of a pipeline.
type Ends<'a> = (&'a [&'a str], &'a [&'a str]);

/// Returns a configuration with pipelines of traces; `version` is the exporters' configuration.
fn config(stage: &Stage, pipelines: &[Ends<'_>], version: &str) -> Config {
    let names = |pick: fn(&Ends<'_>) -> Vec<String>| {
        let mut names: Vec<String> = pipelines.iter().flat_map(pick).collect();
        names.sort();
        names.dedup();
        names
    };
    let receivers = names(|(receivers, _)| receivers.iter().map(ToString::to_string).collect());
    let exporters = names(|(_, exporters)| exporters.iter().map(ToString::to_string).collect());
    Config {
        receivers: receivers
            .iter()
            .map(|name| {
                let config = Box::new(stage.clone());
                (
                    id(name),
                    Configured {
                        entry: &RECEIVER,
                        config,
                        fingerprint: String::new(),
                    },
                )
            })
            .collect(),
        exporters: exporters
            .iter()
            .map(|name| {
                let config = Box::new(stage.clone());
                let fingerprint = version.to_owned();
                (
                    id(name),
                    Configured {
                        entry: &EXPORTER,
                        config,
                        fingerprint,
                    },
                )
            })
            .collect(),
        processors: Vec::new(),
        connectors: Vec::new(),
        extensions: Vec::new(),
        service: ServiceConfig {
            pipelines: pipelines
                .iter()
                .enumerate()
                .map(|(at, (receivers, exporters))| {
                    let key = PipelineId {
                        signal: Signal::Traces,
                        name: Some(at.to_string()),
                    };
                    let body = PipelineConfig {
                        receivers: receivers.iter().map(|name| id(name)).collect(),
                        processors: Vec::new(),
                        exporters: exporters.iter().map(|name| id(name)).collect(),
                    };
                    (key, body)
                })
                .collect(),
            ..ServiceConfig::default()
        },
    }
}

impl Stage {
    async fn send(&self, receiver: &str, name: &str) -> Result<(), Nack> {
        let output = self.0.lock().unwrap().outputs[receiver]
            .get(Signal::Traces)
            .cloned();
        output.unwrap().consume(spans([name])).await
    }

    fn received(&self, exporter: &str) -> Vec<String> {
        self.0.lock().unwrap().exporters[exporter].span_names()
    }

    fn built(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().built)
    }

    fn stopped(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().stopped)
    }
}

fn build(config: &Config, running: Option<&Graph>) -> Graph {
    Graph::build(config, &Host::for_tests(), running).unwrap()
}

#[tokio::test]
async fn receiver_feeds_all_pipelines_and_exporters_are_shared() {
    let stage = Stage::default();
    let pipelines: &[Ends<'_>] = &[(&["a", "b"], &["x", "y"]), (&["a"], &["y"])];
    let _graph = build(&config(&stage, pipelines, ""), None);
    assert_eq!(
        stage.built(),
        ["x", "y", "a", "b"],
        "downstream first, each once"
    );
    stage.send("a", "from a").await.unwrap();
    stage.send("b", "from b").await.unwrap();
    assert_eq!(stage.received("x"), ["from a", "from b"]);
    assert_eq!(stage.received("y"), ["from a", "from a", "from b"]);
}

#[tokio::test]
async fn build_error_names_component() {
    let stage = Stage::default();
    let config = config(&stage, &[(&["a"], &["broken/one"])], "");
    let error = Graph::build(&config, &Host::for_tests(), None)
        .err()
        .unwrap();
    assert_eq!(error.to_string(), "exporters.broken/one: cannot be built");
}

#[tokio::test(start_paused = true)]
async fn reload_builds_only_changed_components() {
    let stage = Stage::default();
    let mut old = build(&config(&stage, &[(&["a"], &["x"])], ""), None);
    old.start();
    stage.built();

    let mut new = build(&config(&stage, &[(&["a"], &["x", "y"])], ""), Some(&old));
    assert_eq!(stage.built(), ["y"]);
    new.adopt(&mut old);
    new.start();
    let left = old.retire(std::future::pending(), ()).await;
    assert_eq!((left, stage.stopped()), (Undelivered::default(), vec![]));

    // The receiver still has the outputs that it was built with.
    stage.send("a", "after").await.unwrap();
    assert_eq!(
        (stage.received("x"), stage.received("y")),
        (vec!["after".into()], vec!["after".into()])
    );
    new.shutdown(Instant::now()).await;
    assert_eq!(stage.stopped(), ["a", "x", "y"], "receivers first");
}

#[tokio::test(start_paused = true)]
async fn replaced_exporter_delivers_its_backlog() {
    let stage = Stage::default();
    let mut old = build(&config(&stage, &[(&["a"], &["x"])], "1"), None);
    old.start();
    let mut new = build(&config(&stage, &[(&["a"], &["x"])], "2"), Some(&old));
    new.adopt(&mut old);
    new.start();

    stage.0.lock().unwrap().busy = true;
    let retired = tokio::spawn(old.retire(std::future::pending(), ()));
    sleep(Duration::from_secs(3600)).await;
    assert!(stage.stopped().is_empty());
    stage.0.lock().unwrap().busy = false;
    retired.await.unwrap();
    assert_eq!(stage.stopped(), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_wait_for_replaced_exporter() {
    let stage = Stage::default();
    stage.0.lock().unwrap().busy = true;
    let old = build(&config(&stage, &[(&["a"], &["x"])], ""), None);
    let terminate = async {
        sleep(Duration::from_secs(5)).await;
        Instant::now() + Duration::from_secs(1)
    };
    let start = Instant::now();
    old.retire(terminate, ()).await;
    assert_eq!(start.elapsed().as_secs(), 5);
    assert_eq!(stage.stopped(), ["a", "x"]);
}

/// A stage that needs some time to flush its one item.
struct Slow(Duration);

impl Component for Slow {
    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let done = timeout_at(deadline, sleep(self.0)).await;
            Undelivered {
                items: usize::from(done.is_err()),
            }
        })
    }
}

fn slow(name: &str, seconds: u64) -> Part {
    Part {
        component: Some(Box::new(Slow(Duration::from_secs(seconds)))),
        ..Part::named(name.to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn stuck_stage_loses_only_its_own_data() {
    let mut graph = Graph::default();
    graph.middle = vec![slow("quick", 1), slow("stuck", 3600)];
    graph.exporters = vec![slow("exporter", 3)];
    let start = Instant::now();
    let left = graph.shutdown(start + Duration::from_secs(12)).await;
    assert_eq!(left.items, 1, "only what the stuck stage holds is lost");
    assert!(start.elapsed() <= Duration::from_secs(12));
}

#[tokio::test]
async fn stages_stop_in_order_of_data_flow() {
    use crate::connectors::forward;
    use crate::processors::batch;
    let stage = Stage::default();
    let mut config = config(
        &stage,
        &[(&["a"], &["forward"]), (&["forward"], &["x"])],
        "",
    );
    config.receivers.retain(|(id, _)| id.kind() != "forward");
    config.exporters.retain(|(id, _)| id.kind() != "forward");
    let forward = Configured {
        entry: &forward::ENTRY,
        config: Box::new(forward::Config::default()) as _,
        fingerprint: String::new(),
    };
    config.connectors.push((id("forward"), forward));
    let batch = Configured {
        entry: &batch::ENTRY,
        config: Box::new(batch::Config::default()) as _,
        fingerprint: String::new(),
    };
    config.processors.push((id("batch"), batch));
    for (_, pipeline) in &mut config.service.pipelines {
        pipeline.processors.push(id("batch"));
    }
    let graph = build(&config, None);
    let levels: BTreeMap<usize, &str> = graph
        .middle
        .iter()
        .map(|part| (part.level, &*part.name))
        .collect();
    let expected = [
        (1, "processors.batch in service.pipelines.traces/1"),
        (2, "connectors.forward"),
        (3, "processors.batch in service.pipelines.traces/0"),
    ];
    assert_eq!(levels, expected.into());
}

#[tokio::test(start_paused = true)]
async fn replaced_receiver_does_not_delay_end_of_process() {
    let mut graph = Graph::default();
    graph.receivers.push(slow("receiver", 3600));
    let start = Instant::now();
    let terminate = async {
        sleep(Duration::from_secs(1)).await;
        Instant::now() + Duration::from_secs(2)
    };
    graph.retire(terminate, ()).await;
    assert!(start.elapsed() <= Duration::from_secs(3));
}

#[tokio::test]
async fn component_without_lifecycle_is_idle() {
    let idle: Box<dyn Component> = Box::new(Idle);
    assert!(idle.idle());
    assert_eq!(idle.shutdown(Instant::now()).await, Undelivered::default());
}

#[tokio::test]
async fn unchanged_receiver_keeps_socket_across_reloads() {
    let load = |level: &str| {
        let text = format!(
            "yaml:{{receivers: {{otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:0}}}}}}}}, \
             exporters: {{nop: }}, service: {{telemetry: {{logs: {{level: {level}}}}}, \
             pipelines: {{traces: {{receivers: [otlp], exporters: [nop]}}}}}}}}"
        );
        let sources = tributary_config::Sources {
            configs: vec![text],
            sets: Vec::new(),
        };
        crate::app::config::load(&sources, false).config.unwrap()
    };
    let host = Host::for_tests();
    let socket = || {
        let owner = "otlp/protocols/http".parse().unwrap();
        let endpoint = tributary_config::Endpoint("127.0.0.1:0".to_owned());
        let listener = host.listeners.bind(&owner, &endpoint).unwrap();
        listener.local_addr().unwrap()
    };
    let mut old = Graph::build(&load("info"), &host, None).unwrap();
    let first = socket();
    let mut new = Graph::build(&load("warn"), &host, Some(&old)).unwrap();
    new.adopt(&mut old);
    old.retire(std::future::pending(), ()).await;
    assert_eq!(socket(), first);
}
