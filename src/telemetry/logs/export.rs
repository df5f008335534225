//! Log lines that wait for their export by OTLP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{Level, Metadata};

use super::fields::{COMPONENT_ID, Fields};
use crate::telemetry::config::LogProcessor;

/// Name of the exporters of own telemetry. Their lines are not exported: an export that fails would cause the next one.
pub(crate) const OWN_EXPORTER: &str = "service.telemetry";

/// Module that exports own telemetry; its lines are not exported either.
const OWN_EXPORT: &str = "tributary::app::own_telemetry";

/// Entry of a queue of log records.
#[derive(Clone)]
pub(super) struct LogSender {
    sender: mpsc::Sender<LogRecord>,
    dropped: Arc<AtomicU64>,
}

/// Log records for one processor of `service.telemetry.logs`. It ends when the settings of logs change.
pub(crate) struct LogQueue {
    /// Configuration of the processor.
    pub(crate) processor: LogProcessor,
    receiver: mpsc::Receiver<LogRecord>,
    dropped: Arc<AtomicU64>,
}

/// Creates a queue for each processor.
pub(super) fn queues(processors: &[LogProcessor]) -> (Vec<LogSender>, Vec<LogQueue>) {
    let queue = |processor: &LogProcessor| {
        let (sender, receiver) = mpsc::channel(processor.queue_size());
        let dropped = Arc::<AtomicU64>::default();
        let queue = LogQueue {
            processor: processor.clone(),
            receiver,
            dropped: dropped.clone(),
        };
        (LogSender { sender, dropped }, queue)
    };
    processors.iter().map(queue).unzip()
}

impl LogSender {
    /// Adds a record. A full queue drops it: logging never waits.
    pub(super) fn send(&self, record: LogRecord) {
        if self.sender.try_send(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LogQueue {
    /// Waits for records and appends at most `limit`. Returns false at the end of the queue.
    pub(crate) async fn receive(&mut self, records: &mut Vec<LogRecord>, limit: usize) -> bool {
        self.receiver.recv_many(records, limit).await > 0
    }

    /// Returns the number of records that a full queue has dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// Whether lines of this origin are exported: those of the collector, but not those about the export.
pub(super) fn is_exported(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    target.starts_with("tributary") && !target.starts_with(OWN_EXPORT)
}

/// Returns the record of a line; `None` if the line is about the export of own telemetry.
pub(super) fn record(level: Level, fields: &Fields) -> Option<LogRecord> {
    let component = fields.rest.get(COMPONENT_ID).and_then(Value::as_str);
    let name = component.and_then(|id| id.split_once('/'));
    if name.is_some_and(|(_, name)| name.starts_with(OWN_EXPORTER)) {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let (number, text) = match level {
        Level::ERROR => (SeverityNumber::Error, "error"),
        Level::WARN => (SeverityNumber::Warn, "warn"),
        Level::INFO => (SeverityNumber::Info, "info"),
        Level::DEBUG => (SeverityNumber::Debug, "debug"),
        Level::TRACE => (SeverityNumber::Trace, "trace"),
    };
    let attribute = |(key, value): (&String, &Value)| KeyValue {
        key: key.clone(),
        value: Some(AnyValue {
            value: Some(any_kind(value)),
        }),
        ..KeyValue::default()
    };
    Some(LogRecord {
        time_unix_nano: now,
        observed_time_unix_nano: now,
        severity_number: number.into(),
        severity_text: text.to_owned(),
        body: Some(AnyValue {
            value: Some(AnyKind::StringValue(fields.message.clone())),
        }),
        attributes: fields.rest.iter().map(attribute).collect(),
        ..LogRecord::default()
    })
}

fn any_kind(value: &Value) -> AnyKind {
    match value {
        Value::Bool(value) => AnyKind::BoolValue(*value),
        Value::String(text) => AnyKind::StringValue(text.clone()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => AnyKind::IntValue(number),
            (None, Some(number)) => AnyKind::DoubleValue(number),
            (None, None) => AnyKind::StringValue(number.to_string()),
        },
        other => AnyKind::StringValue(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn fields(rest: Value) -> Fields {
        let Value::Object(rest) = rest else {
            unreachable!()
        };
        Fields {
            message: "full".to_owned(),
            rest,
        }
    }

    #[test]
    fn record_has_severity_message_and_fields() {
        let line = fields(serde_json::json!({"queue": "zone", "bytes": 7, "share": 0.5}));
        let record = record(Level::WARN, &line).unwrap();
        assert_eq!(record.severity_number, i32::from(SeverityNumber::Warn));
        assert_eq!(record.severity_text, "warn");
        assert!(record.time_unix_nano > 0);
        let values: Map<String, Value> = record
            .attributes
            .iter()
            .map(|attribute| {
                let value = attribute.value.clone().unwrap().value.unwrap();
                let value = match value {
                    AnyKind::StringValue(text) => text.into(),
                    AnyKind::IntValue(number) => number.into(),
                    AnyKind::DoubleValue(number) => number.into(),
                    _ => unreachable!(),
                };
                (attribute.key.clone(), value)
            })
            .collect();
        assert_eq!(values, line.rest);
    }

    #[test]
    fn lines_about_own_export_are_not_exported() {
        for (id, is_exported) in [
            ("otlp_http/service.telemetry.logs.0", false),
            ("otlp_http", true),
            ("otlp_http/zone", true),
        ] {
            let line = fields(serde_json::json!({COMPONENT_ID: id}));
            assert_eq!(record(Level::ERROR, &line).is_some(), is_exported, "{id}");
        }
    }

    #[tokio::test]
    async fn full_queue_drops_and_counts() {
        let processor: LogProcessor = serde_yaml::from_str(
            "batch: {max_queue_size: 2, max_export_batch_size: 2, exporter: {otlp_http: {endpoint: 'http://x:1'}}}",
        )
        .unwrap();
        let (senders, mut queues) = queues(&[processor]);
        (0..5).for_each(|_| senders[0].send(LogRecord::default()));
        let mut records = Vec::new();
        assert!(queues[0].receive(&mut records, 10).await);
        assert_eq!((records.len(), queues[0].take_dropped()), (2, 3));
        drop(senders);
        assert!(!queues[0].receive(&mut records, 10).await);
    }
}
