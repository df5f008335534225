//! Metrics of the processor, under the Collector's names.

use metrics::{Counter, Gauge, Histogram};

use tributary_config::ComponentId;

pub(super) struct Metrics {
    pub(super) send_size: Histogram,
    pub(super) send_size_bytes: Histogram,
    pub(super) size_trigger: Counter,
    pub(super) timeout_trigger: Counter,
    pub(super) cardinality: Gauge,
}

impl Metrics {
    pub(super) fn new(processor: &ComponentId) -> Self {
        let labels = [("processor", processor.to_string())];
        Metrics {
            send_size: metrics::histogram!("otelcol_processor_batch_batch_send_size", &labels),
            send_size_bytes: metrics::histogram!(
                "otelcol_processor_batch_batch_send_size_bytes",
                &labels
            ),
            size_trigger: metrics::counter!(
                "otelcol_processor_batch_batch_size_trigger_send",
                &labels
            ),
            timeout_trigger: metrics::counter!(
                "otelcol_processor_batch_timeout_trigger_send",
                &labels
            ),
            cardinality: metrics::gauge!("otelcol_processor_batch_metadata_cardinality", &labels),
        }
    }
}
