//! The accounts of components and pipelines, from the collector's own metrics.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::introspection::page::Page;
use tributary_otlp::Signal;

/// Items by outcome.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counters {
    received: u64,
    /// `forwarded` of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered: Option<u64>,
    refused: u64,
    in_flight: u64,
    #[serde(skip_serializing_if = "is_zero")]
    recovered: u64,
    dropped: BTreeMap<String, u64>,
}

impl Counters {
    pub(super) fn of_pipeline(metrics: &Page, id: &str) -> Self {
        let mut counters = Counters::read(metrics, "tributary_pipeline", &[("pipeline", id)]);
        counters.forwarded = Some(count(
            metrics,
            "tributary_pipeline_forwarded_items",
            &[("pipeline", id)],
        ));
        counters
    }

    pub(super) fn of_exporter(metrics: &Page, id: &str, signal: Signal) -> Self {
        let labels = [("exporter", id), ("data_type", signal.name())];
        let mut counters = Counters::read(metrics, "tributary_exporter", &labels);
        counters.delivered = Some(count(
            metrics,
            "tributary_exporter_delivered_items",
            &labels,
        ));
        counters.recovered = count(metrics, "tributary_exporter_recovered_items", &labels);
        counters
    }

    pub(super) fn of_receiver(metrics: &Page, id: &str, signal: Signal) -> Self {
        let items = |outcome: &str| {
            let name = format!("otelcol_receiver_{outcome}_{}", signal.items_name());
            count(metrics, &name, &[("receiver", id)])
        };
        let (accepted, refused) = (items("accepted"), items("refused"));
        Counters {
            received: accepted + refused,
            delivered: Some(accepted),
            refused,
            ..Counters::default()
        }
    }

    /// Returns the account of a connector that buffers items. It counts all signals together.
    pub(super) fn of_connector(metrics: &Page, id: &str) -> Self {
        let labels = [("connector", id)];
        let mut counters = Counters::read(metrics, "tributary_connector", &labels);
        counters.delivered = Some(count(
            metrics,
            "tributary_connector_delivered_items",
            &labels,
        ));
        counters
    }

    /// Returns an account of items that pass through a component.
    pub(super) fn passing(received: u64, delivered: u64) -> Self {
        Counters {
            received,
            delivered: Some(delivered),
            ..Counters::default()
        }
    }

    /// Returns the number of items that came in.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of items that a receiver passed on.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.unwrap_or_default()
    }

    fn read(metrics: &Page, prefix: &str, labels: &[(&str, &str)]) -> Self {
        let items = |outcome: &str| count(metrics, &format!("{prefix}_{outcome}_items"), labels);
        let mut dropped = BTreeMap::new();
        for sample in metrics.samples(&format!("{prefix}_dropped_items")) {
            let matches = labels
                .iter()
                .all(|(key, value)| sample.label(key) == *value);
            if matches && sample.value >= 1.0 {
                *dropped
                    .entry(sample.label("reason").to_owned())
                    .or_default() += sample.value as u64;
            }
        }
        Counters {
            received: items("received"),
            refused: items("refused"),
            in_flight: items("in_flight"),
            dropped,
            ..Counters::default()
        }
    }
}

fn count(metrics: &Page, name: &str, labels: &[(&str, &str)]) -> u64 {
    metrics.sum(name, labels).max(0.0) as u64
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
