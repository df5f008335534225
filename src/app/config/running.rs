//! Describes a configuration as the graph that runs.

use std::sync::Arc;

use serde_yaml::Value;

use crate::app::config::Config;
use crate::introspection::graph::{
    EdgeDescription, NodeDescription, NodeKind, RunningGraph, node_name, processor_name,
};
use crate::pipeline::flow::EdgeKey;
use crate::pipeline::id::{PipelineConfig, PipelineId};
use tributary_config::{ComponentId, without_url_secrets};

/// Returns the graph of a configuration.
pub fn running_graph(config: &Arc<Config>) -> RunningGraph {
    let pipelines = &config.service.pipelines;
    let mut nodes = Vec::new();
    let used = |kind, id: &ComponentId| node(config, kind, id);
    nodes.extend(
        config
            .receivers
            .iter()
            .map(|(id, _)| used(NodeKind::Receiver, id)),
    );
    for (pipeline, lists) in pipelines {
        nodes.extend(lists.processors.iter().map(|id| processor(pipeline, id)));
    }
    nodes.extend(
        config
            .connectors
            .iter()
            .map(|(id, _)| used(NodeKind::Connector, id)),
    );
    for (id, exporter) in &config.exporters {
        let settings = exporter.config.print();
        nodes.push(NodeDescription {
            next_hop: next_hop(&settings),
            queue_unit: queue_unit(&settings),
            ..used(NodeKind::Exporter, id)
        });
    }
    nodes.retain(|node| !node.pipelines.is_empty());
    let printed = config.clone();
    let edges = pipelines
        .iter()
        .flat_map(|(id, lists)| edges(config, id, lists));
    let ids = pipelines.iter().map(|(id, _)| (id.to_string(), id.signal));
    let print = move || serde_yaml::to_string(&printed.print()).unwrap_or_default();
    RunningGraph::new(nodes, edges.collect(), ids.collect(), print)
}

/// Describes a component outside of pipelines.
fn node(config: &Config, kind: NodeKind, id: &ComponentId) -> NodeDescription {
    let contains = |lists: &PipelineConfig| match kind {
        NodeKind::Receiver => lists.receivers.contains(id),
        NodeKind::Exporter => lists.exporters.contains(id),
        _ => lists.receivers.contains(id) || lists.exporters.contains(id),
    };
    let pipelines = config.service.pipelines.iter();
    let pipelines: Vec<_> = pipelines.filter(|(_, lists)| contains(lists)).collect();
    let mut signals: Vec<_> = pipelines.iter().map(|(id, _)| id.signal).collect();
    signals.sort_unstable_by_key(|signal| signal.index());
    signals.dedup();
    NodeDescription {
        name: node_name(kind, &id.to_string()),
        kind,
        component: id.to_string(),
        pipelines: pipelines.iter().map(|(id, _)| id.to_string()).collect(),
        signals,
        next_hop: String::new(),
        queue_unit: None,
    }
}

fn processor(pipeline: &PipelineId, id: &ComponentId) -> NodeDescription {
    let (pipeline, signal) = (pipeline.to_string(), pipeline.signal);
    NodeDescription {
        name: processor_name(&pipeline, &id.to_string()),
        kind: NodeKind::Processor,
        component: id.to_string(),
        pipelines: vec![pipeline],
        signals: vec![signal],
        next_hop: String::new(),
        queue_unit: None,
    }
}

/// Returns the edges of a pipeline: from its sources through its processors to its exporters and connectors.
fn edges(config: &Config, id: &PipelineId, lists: &PipelineConfig) -> Vec<EdgeDescription> {
    let pipeline = id.to_string();
    let is_connector = |id: &ComponentId| config.connectors.iter().any(|(key, _)| key == id);
    let outside = |kind, id: &ComponentId| match is_connector(id) {
        true => node_name(NodeKind::Connector, &id.to_string()),
        false => node_name(kind, &id.to_string()),
    };
    let sources: Vec<String> = lists
        .receivers
        .iter()
        .map(|id| outside(NodeKind::Receiver, id))
        .collect();
    let targets: Vec<String> = lists
        .exporters
        .iter()
        .map(|id| outside(NodeKind::Exporter, id))
        .collect();
    let inside: Vec<String> = lists
        .processors
        .iter()
        .map(|id| processor_name(&pipeline, &id.to_string()))
        .collect();
    let edge = |from: &String, to: &String, node: &String| EdgeDescription {
        from: from.clone(),
        to: to.clone(),
        signal: id.signal,
        key: EdgeKey {
            pipeline: pipeline.clone(),
            node: node.clone(),
        },
    };
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
        let from_source = |source| targets.iter().map(move |target| (source, target));
        let pairs = sources.iter().flat_map(from_source);
        return pairs.map(|(from, to)| edge(from, to, from)).collect();
    };
    let entering = sources.iter().map(|source| edge(source, first, source));
    let within = inside.windows(2).filter_map(|pair| match pair {
        [from, to] => Some(edge(from, to, to)),
        _ => None,
    });
    let leaving = targets.iter().map(|target| edge(last, target, target));
    entering.chain(within).chain(leaving).collect()
}

/// Returns the address that an exporter sends to.
fn next_hop(settings: &Value) -> String {
    let endpoint = settings.get("endpoint").and_then(Value::as_str);
    endpoint
        .map(|endpoint| without_url_secrets(endpoint).into_owned())
        .unwrap_or_default()
}

fn queue_unit(settings: &Value) -> Option<String> {
    let queue = settings
        .get("sending_queue")
        .filter(|queue| !queue.is_null())?;
    let is_off = queue.get("enabled").and_then(Value::as_bool) == Some(false);
    let sizer = queue
        .get("sizer")
        .and_then(Value::as_str)
        .unwrap_or("requests");
    (!is_off).then(|| sizer.to_owned())
}
