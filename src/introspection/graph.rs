//! Description of the running graph.

use tributary_otlp::Signal;

use crate::pipeline::flow::EdgeKey;

/// The graph of one configuration.
pub struct RunningGraph {
    /// Sequence number of the graph, which grows with each reload.
    pub generation: u64,
    /// Receivers, processors of pipelines, exporters and connectors.
    pub nodes: Vec<NodeDescription>,
    /// Paths of data between the nodes, within one pipeline each.
    pub edges: Vec<EdgeDescription>,
    /// Pipelines in the order of the configuration.
    pub pipelines: Vec<(String, Signal)>,
    /// Prints the configuration. Called on demand, because most graphs are replaced before the first request.
    print: Box<dyn Fn() -> String + Send + Sync>,
}

impl RunningGraph {
    /// Creates a graph. `print` returns its configuration, with secrets masked.
    pub fn new(
        nodes: Vec<NodeDescription>,
        edges: Vec<EdgeDescription>,
        pipelines: Vec<(String, Signal)>,
        print: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        RunningGraph {
            generation: 0,
            nodes,
            edges,
            pipelines,
            print: Box::new(print),
        }
    }

    /// Returns the effective configuration as YAML. Secrets are masked.
    pub fn configuration(&self) -> String {
        (self.print)()
    }
}

impl Default for RunningGraph {
    fn default() -> Self {
        RunningGraph::new(Vec::new(), Vec::new(), Vec::new(), String::new)
    }
}

/// A component of the graph. A processor is one node in each of its pipelines.
#[derive(Debug, Clone)]
pub struct NodeDescription {
    /// Unique name, such as `receivers/otlp` or `pipelines/traces/processors/batch`.
    pub name: String,
    /// Kind of the component.
    pub kind: NodeKind,
    /// Id of the component in the configuration.
    pub component: String,
    /// Pipelines that contain the component.
    pub pipelines: Vec<String>,
    /// Signals of these pipelines.
    pub signals: Vec<Signal>,
    /// Address that an exporter sends to. Empty if the configuration names none.
    pub next_hop: String,
    /// Unit of the sending queue's size: `bytes`, `items` or `requests`. `None` without a queue.
    pub queue_unit: Option<String>,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Receives data from outside.
    Receiver,
    /// Edits or buffers data in one pipeline.
    Processor,
    /// Sends data outside.
    Exporter,
    /// Ends some pipelines and begins others.
    Connector,
}

impl NodeKind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Receiver => "receiver",
            NodeKind::Processor => "processor",
            NodeKind::Exporter => "exporter",
            NodeKind::Connector => "connector",
        }
    }

    /// Returns the section of the configuration that defines such components.
    pub fn section(self) -> &'static str {
        match self {
            NodeKind::Receiver => "receivers",
            NodeKind::Processor => "processors",
            NodeKind::Exporter => "exporters",
            NodeKind::Connector => "connectors",
        }
    }
}

/// A path of data from one node to another.
#[derive(Debug, Clone)]
pub struct EdgeDescription {
    /// Name of the node that the data leaves.
    pub from: String,
    /// Name of the node that the data enters.
    pub to: String,
    /// Signal of the pipeline.
    pub signal: Signal,
    /// Counters of the edge.
    pub key: EdgeKey,
}

/// Returns the node name of a receiver, exporter or connector.
pub fn node_name(kind: NodeKind, component: &str) -> String {
    format!("{}/{component}", kind.section())
}

/// Returns the node name of a processor in a pipeline.
pub fn processor_name(pipeline: &str, component: &str) -> String {
    format!("pipelines/{pipeline}/processors/{component}")
}
