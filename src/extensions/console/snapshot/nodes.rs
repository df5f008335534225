//! The components of the graph with their accounts, queues, errors and certificates.

use serde::Serialize;

use super::counters::Counters;
use super::milliseconds;
use super::rates::{Rate, Rates};
use crate::introspection::graph::{EdgeDescription, NodeDescription, NodeKind};
use crate::introspection::page::Page;
use crate::pipeline::flow::Flows;
use crate::pipeline::health::ExporterState;
use tributary_net::Owner;
use tributary_net::tls::rotation::CertificateInUse;
use tributary_otlp::Signal;

/// Sources of the figures of all nodes.
pub(super) struct Inputs<'a> {
    pub(super) metrics: &'a Page,
    pub(super) flows: &'a Flows,
    pub(super) edges: &'a [EdgeDescription],
    pub(super) exporters: Vec<ExporterState>,
    pub(super) certificates: Vec<(Owner, CertificateInUse)>,
}

/// A component of the graph.
#[derive(Serialize)]
pub(super) struct Node<'a> {
    id: &'a str,
    kind: &'static str,
    component: &'a str,
    pipelines: &'a [String],
    config_path: [&'a str; 2],
    accounts: Vec<SignalAccount>,
    #[serde(flatten)]
    rate: Rate,
    queues: Vec<Queue<'a>>,
    last_error: Option<LastError<'a>>,
    certificates: Vec<Certificate>,
}

#[derive(Serialize)]
struct SignalAccount {
    signal: &'static str,
    #[serde(flatten)]
    counters: Counters,
}

#[derive(Serialize)]
struct Queue<'a> {
    signal: &'static str,
    size: f64,
    capacity: f64,
    unit: &'a str,
    requests: f64,
    oldest_seconds: Option<f64>,
}

#[derive(Serialize)]
struct LastError<'a> {
    time: u64,
    message: String,
    address: &'a str,
    signal: &'static str,
    failing_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Certificate {
    kind: &'static str,
    subject: String,
    expires: u64,
}

impl<'a> Inputs<'a> {
    pub(super) fn node(&self, node: &'a NodeDescription, rates: &mut Rates) -> Node<'a> {
        let accounts: Vec<SignalAccount> = self.accounts(node);
        let items = accounts.iter().map(|account| match node.kind {
            NodeKind::Receiver => account.counters.delivered(),
            _ => account.counters.received(),
        });
        let items = items.sum();
        let rate = rates.of(&format!("node {}", node.name), items, self.bytes(node));
        Node {
            id: &node.name,
            kind: node.kind.name(),
            component: &node.component,
            pipelines: &node.pipelines,
            config_path: [node.kind.section(), &node.component],
            accounts,
            rate,
            queues: node
                .signals
                .iter()
                .filter_map(|signal| self.queue(node, *signal))
                .collect(),
            last_error: self.last_error(node),
            certificates: self.certificates(node),
        }
    }

    /// Returns the rate of a pipeline that received `items` so far.
    pub(super) fn pipeline_rate(&self, id: &str, items: u64, rates: &mut Rates) -> Rate {
        // An edge into the pipeline has its source as the node of its key.
        let entering = self
            .edges
            .iter()
            .filter(|edge| edge.key.pipeline == id && edge.key.node == edge.from);
        let mut sources: Vec<_> = entering.map(|edge| &edge.key).collect();
        sources.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        sources.dedup();
        let flows = sources.into_iter().filter_map(|key| self.flows.get(key));
        let bytes = flows.map(|flow| flow.bytes()).sum();
        rates.of(&format!("pipeline {id}"), items, bytes)
    }

    fn accounts(&self, node: &NodeDescription) -> Vec<SignalAccount> {
        let id = node.component.as_str();
        let account = |signal: Signal| {
            let counters = match node.kind {
                NodeKind::Receiver => Counters::of_receiver(self.metrics, id, signal),
                NodeKind::Exporter => Counters::of_exporter(self.metrics, id, signal),
                NodeKind::Processor => Counters::passing(
                    self.items(|edge| edge.to == node.name && edge.signal == signal),
                    self.items(|edge| edge.from == node.name && edge.signal == signal),
                ),
                NodeKind::Connector => Counters::passing(
                    self.items(|edge| edge.to == node.name && edge.signal == signal),
                    0,
                ),
            };
            SignalAccount {
                signal: signal.name(),
                counters,
            }
        };
        let labels = [("connector", id)];
        let buffers = !self
            .metrics
            .samples("tributary_connector_received_items")
            .is_empty()
            && self
                .metrics
                .sum("tributary_connector_received_items", &labels)
                > 0.0;
        match (node.kind, node.signals.first()) {
            (NodeKind::Connector, Some(signal)) if buffers => vec![SignalAccount {
                signal: signal.name(),
                counters: Counters::of_connector(self.metrics, id),
            }],
            _ => node.signals.iter().map(|signal| account(*signal)).collect(),
        }
    }

    /// Returns the items of the largest edge: each of several edges gets a copy of the same data.
    fn items(&self, belongs: impl Fn(&EdgeDescription) -> bool) -> u64 {
        let edges = self.edges.iter().filter(|edge| belongs(edge));
        let entering = edges.filter_map(|edge| Some((edge, self.flows.get(&edge.key)?.items())));
        let mut total = 0;
        let mut copies = 0;
        for (edge, items) in entering {
            match edge.key.node == edge.from {
                // Different sources send different data.
                true => total += items,
                false => copies = copies.max(items),
            }
        }
        total.max(copies)
    }

    /// Returns the bytes that entered a node, or left it if it is a receiver.
    fn bytes(&self, node: &NodeDescription) -> u64 {
        let bytes =
            |edge: &EdgeDescription| self.flows.get(&edge.key).map_or(0, |flow| flow.bytes());
        let touching = self.edges.iter().filter(|edge| match node.kind {
            NodeKind::Receiver => edge.from == node.name,
            _ => edge.to == node.name,
        });
        if node.kind != NodeKind::Receiver {
            return touching.map(bytes).sum();
        }
        // Each pipeline of a signal gets a copy.
        let of_signal = |signal: &Signal| {
            let edges = touching.clone().filter(|edge| edge.signal == *signal);
            edges.map(bytes).max().unwrap_or_default()
        };
        node.signals.iter().map(of_signal).sum()
    }

    fn queue(&self, node: &'a NodeDescription, signal: Signal) -> Option<Queue<'a>> {
        let unit = node.queue_unit.as_deref()?;
        let labels = [
            ("exporter", node.component.as_str()),
            ("data_type", signal.name()),
        ];
        let figure = |name: &str| self.metrics.sum(name, &labels);
        Some(Queue {
            signal: signal.name(),
            size: figure("otelcol_exporter_queue_size"),
            capacity: figure("otelcol_exporter_queue_capacity"),
            unit,
            requests: figure("otelcol_exporter_in_flight_requests"),
            oldest_seconds: self
                .state(node, signal)?
                .oldest
                .map(|oldest| oldest.as_secs_f64()),
        })
    }

    fn state(&self, node: &NodeDescription, signal: Signal) -> Option<&ExporterState> {
        let mut states = self.exporters.iter();
        states.find(|state| state.signal == signal && state.id.to_string() == node.component)
    }

    fn last_error(&self, node: &'a NodeDescription) -> Option<LastError<'a>> {
        if node.kind != NodeKind::Exporter {
            return None;
        }
        let states = node
            .signals
            .iter()
            .filter_map(|signal| self.state(node, *signal));
        let failed = states.filter_map(|state| Some((state, state.last_error.as_ref()?)));
        let (state, error) = failed.max_by_key(|(_, error)| error.time)?;
        Some(LastError {
            time: milliseconds(error.time),
            message: error.message.clone(),
            address: &node.next_hop,
            signal: state.signal.name(),
            failing_seconds: state.failing.map(|failing| failing.as_secs_f64()),
        })
    }

    fn certificates(&self, node: &NodeDescription) -> Vec<Certificate> {
        let of_node = self.certificates.iter().filter(|(owner, _)| {
            owner.kind == node.kind.name() && owner.id.to_string() == node.component
        });
        let certificate = of_node.map(|(_, used)| Certificate {
            kind: used.kind.name(),
            subject: used.fields.subject.clone(),
            expires: milliseconds(used.fields.not_after),
        });
        certificate.collect()
    }
}
