//! Export of own log lines.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message as _;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::destination::Destination;
use super::metrics::{own_resource, own_scope};
use crate::telemetry::logs::export::LogQueue;

/// Exports lines until the queue ends.
pub(super) async fn export(
    mut queue: LogQueue,
    attributes: Vec<(String, String)>,
    mut destination: Destination,
) {
    let settings = queue.processor.settings();
    let limit = settings.max_export_batch_size;
    let mut records = Vec::new();
    while queue.receive(&mut records, limit).await {
        let flush = Instant::now() + Duration::from_millis(settings.schedule_delay);
        while records.len() < limit {
            let missing = limit - records.len();
            match timeout_at(flush, queue.receive(&mut records, missing)).await {
                Ok(true) => {}
                // The time is up, or the queue has ended.
                _ => break,
            }
        }
        let items = records.len();
        let request = request(&attributes, std::mem::take(&mut records)).encode_to_vec();
        let time_limit = Duration::from_millis(settings.export_timeout);
        let is_exported = destination.export(items, request.into(), time_limit).await;
        let dropped = queue.take_dropped() + if is_exported { 0 } else { items as u64 };
        if dropped > 0 {
            warn!(dropped, "Own log lines were not exported.");
        }
    }
    destination.shutdown().await;
}

fn request(attributes: &[(String, String)], records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(own_resource(attributes)),
            scope_logs: vec![ScopeLogs {
                scope: Some(own_scope()),
                log_records: records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
}
