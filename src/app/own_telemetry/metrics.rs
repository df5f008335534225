//! Export of own metrics: the page of the metrics endpoint as an OTLP request.

mod convert;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::destination::Destination;
use crate::telemetry::config::{MetricsLevel, PeriodicReader};
use crate::telemetry::exposition::Exposition;
use tributary_memory::Budget;

/// The metrics of the process.
pub(in crate::app) struct MetricsSource {
    exposition: Exposition,
    budget: Arc<Budget>,
    /// Start of the process, since which counters count.
    started: SystemTime,
}

/// The metrics of one reader.
pub(super) struct ReaderSource {
    source: Arc<MetricsSource>,
    level: MetricsLevel,
    attributes: Vec<(String, String)>,
}

impl MetricsSource {
    /// Creates the source at the start of the process.
    pub(in crate::app) fn new(exposition: Exposition, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(MetricsSource {
            exposition,
            budget,
            started: SystemTime::now(),
        })
    }

    /// Returns the metrics of a level, with the attributes of the process.
    pub(super) fn with(
        self: &Arc<Self>,
        level: MetricsLevel,
        attributes: Vec<(String, String)>,
    ) -> ReaderSource {
        ReaderSource {
            source: self.clone(),
            level,
            attributes,
        }
    }
}

impl ReaderSource {
    /// Returns the number of data points and the encoded request.
    fn request(&self) -> (usize, Vec<u8>) {
        let source = &*self.source;
        // The resource of the request replaces `target_info`.
        let page = source.exposition.render(self.level, &source.budget, &[]);
        let times = [source.started, SystemTime::now()].map(nanos);
        let (points, request) = convert::request(&page, &self.attributes, times);
        (points, request.encode_to_vec())
    }
}

/// Exports at intervals, and once more at the stop.
pub(super) async fn export(
    source: ReaderSource,
    reader: PeriodicReader,
    mut destination: Destination,
    mut stop: watch::Receiver<bool>,
) {
    let interval = Duration::from_millis(reader.interval);
    let time_limit = Duration::from_millis(reader.timeout);
    let mut due = interval_at(Instant::now() + interval, interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_last = tokio::select! {
            _ = due.tick() => false,
            _ = stop.wait_for(|is_stopped| *is_stopped) => true,
        };
        let (points, request) = source.request();
        destination.export(points, request.into(), time_limit).await;
        if is_last {
            break;
        }
    }
    destination.shutdown().await;
}

/// Returns the resource of own telemetry.
pub(super) fn own_resource(attributes: &[(String, String)]) -> Resource {
    Resource {
        attributes: attributes
            .iter()
            .map(|(key, value)| text(key, value))
            .collect(),
        ..Resource::default()
    }
}

/// Returns the scope of own telemetry.
pub(super) fn own_scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(AnyKind::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

fn nanos(time: SystemTime) -> u64 {
    let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
