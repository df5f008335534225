//! Metrics that several components have, and those of the collector as a whole.

use super::{Metric, counter, gauge, histogram};

/// Metrics of every receiver of requests, files or records.
pub const RECEIVER: &[Metric] = &[
    counter(
        "otelcol_receiver_accepted_{items}",
        "Number of {items} that the pipeline accepted",
    ),
    counter(
        "otelcol_receiver_refused_{items}",
        "Number of {items} that the pipeline refused",
    ),
    counter(
        "otelcol_receiver_failed_{items}",
        "Number of {items} that failed in the receiver itself: always 0, because every failure counts as refused",
    ),
    counter(
        "tributary_receiver_refused_requests",
        "Number of refused requests, by the identity in the client's certificate",
    ),
    counter(
        "tributary_receiver_unreadable_requests",
        "Number of requests whose items could not be counted: malformed, too large, or not decompressible; by signal",
    ),
];

/// Metrics of every processor.
pub const PROCESSOR: &[Metric] = &[
    counter(
        "otelcol_processor_incoming_items",
        "Number of items that entered the processor, by signal",
    ),
    counter(
        "otelcol_processor_outgoing_items",
        "Number of items that left the processor, by signal",
    ),
    histogram(
        "otelcol_processor_internal_duration",
        "Time that the processor worked on a batch, in seconds; only at metrics level `detailed`",
    ),
];

/// Metrics of every exporter.
pub const EXPORTER: &[Metric] = &[
    counter(
        "otelcol_exporter_sent_{items}",
        "Number of {items} that the next hop accepted",
    ),
    counter(
        "otelcol_exporter_send_failed_{items}",
        "Number of {items} that could not be delivered: dropped, or returned to a waiting sender",
    ),
    counter(
        "otelcol_exporter_enqueue_failed_{items}",
        "Number of {items} that did not enter the sending queue",
    ),
    gauge(
        "otelcol_exporter_queue_size",
        "Size of the sending queue, in units of `sizer`, by signal",
    ),
    gauge(
        "otelcol_exporter_queue_capacity",
        "Capacity of the sending queue, in units of `sizer`, by signal",
    ),
    gauge(
        "otelcol_exporter_in_flight_requests",
        "Number of requests that are being sent or wait for a retry, by signal",
    ),
    histogram(
        "otelcol_exporter_queue_batch_send_size",
        "Number of items per batch that left the sending queue; only at metrics level `detailed`",
    ),
    histogram(
        "otelcol_exporter_queue_batch_send_size_bytes",
        "Encoded, uncompressed size of the batches that left the sending queue, in bytes; only at metrics level \
         `detailed`",
    ),
    histogram(
        "tributary_exporter_queue_wait_seconds",
        "Time that requests waited in the sending queue before their first attempt, in seconds; in a stored queue, \
         since they were read from disk",
    ),
    histogram(
        "tributary_exporter_send_seconds",
        "Duration of an attempt to send a batch, in seconds, by outcome",
    ),
    counter(
        "tributary_exporter_failed_attempts",
        "Number of failed attempts to send that are retried",
    ),
    counter(
        "tributary_exporter_received_items",
        "Number of items that entered the exporter",
    ),
    counter(
        "tributary_exporter_delivered_items",
        "Number of items that the next hop accepted",
    ),
    counter(
        "tributary_exporter_refused_items",
        "Number of items that were refused to the previous stage, which still has them",
    ),
    counter(
        "tributary_exporter_dropped_items",
        "Number of items that were accepted and then dropped, by reason",
    ),
    gauge(
        "tributary_exporter_in_flight_items",
        "Number of items in the exporter whose outcome is unknown",
    ),
    counter(
        "tributary_exporter_recovered_items",
        "Number of items found in the stored queue at its start or after a reload",
    ),
    counter(
        "tributary_exporter_kept_items",
        "Number of items that stayed in the stored queue when the exporter ended",
    ),
    gauge(
        "tributary_exporter_set_aside_records",
        "Number of records of the stored queue that failed repeatedly and are retried beside the consumers",
    ),
];

/// Metrics of a stored queue: a sending queue with `storage`.
pub const STORED_QUEUE: &[Metric] = &[
    gauge(
        "tributary_storage_bytes",
        "Size of the files of a stored queue, in bytes",
    ),
    gauge(
        "tributary_storage_segments",
        "Number of files of a stored queue",
    ),
    counter(
        "tributary_storage_recovered_records",
        "Number of records found in a stored queue when it was opened; some may have been delivered before",
    ),
    counter(
        "tributary_storage_resent_records",
        "Number of records of a stored queue that were read again because they had not been delivered",
    ),
    counter(
        "tributary_storage_damaged_blocks",
        "Number of damaged blocks of a stored queue that were skipped",
    ),
    counter(
        "tributary_storage_lost_records",
        "Number of records lost in damaged blocks of a stored queue",
    ),
    counter(
        "tributary_storage_write_failures",
        "Number of failed writes and fsyncs of a stored queue",
    ),
    histogram(
        "tributary_storage_fsync_seconds",
        "Duration of an fsync of a stored queue, in seconds",
    ),
];

/// Metrics of every server.
pub const SERVER: &[Metric] = &[
    gauge(
        "tributary_server_connections",
        "Number of open client connections",
    ),
    gauge(
        "tributary_server_requests",
        "Number of open requests, from the head of the request to the end of the response",
    ),
    histogram(
        "tributary_server_request_seconds",
        "Duration of requests, from the head of the request to the end of the response, in seconds",
    ),
    counter(
        "tributary_server_limited",
        "Number of connections and requests refused or closed because of a limit, by limit",
    ),
    counter(
        "tributary_server_unauthenticated",
        "Number of requests refused because their client was not authenticated, by reason",
    ),
    counter(
        "tributary_tls_handshake_failures",
        "Number of connections that failed in the TLS handshake, by reason",
    ),
];

/// Metrics of every component with a `tls` section.
pub const TLS: &[Metric] = &[
    counter(
        "tributary_tls_distrusted_connections",
        "Number of connections to a server closed because the client's certificate expired or is no longer trusted",
    ),
    counter(
        "tributary_tls_reloads",
        "Number of changes of TLS files, by outcome: loaded, or not usable",
    ),
    CERTIFICATE_EXPIRY,
];

/// Expiry of a certificate in use.
pub const CERTIFICATE_EXPIRY: Metric = gauge(
    "tributary_tls_certificate_expiry_days",
    "Days until a certificate in use expires; negative after its expiry",
);

/// Metrics of extensions that read credentials from files.
pub const CREDENTIALS: &[Metric] = &[counter(
    "tributary_auth_reloads",
    "Number of changes of a credentials file, by outcome: loaded, or not usable",
)];

/// Metrics of receivers of pprof files.
pub const PPROF_REPAIRS: &[Metric] = &[counter(
    "tributary_receiver_pprof_repairs",
    "Number of repairs of pprof files that violate the format, by kind",
)];

/// Metrics of gRPC servers.
pub const CALLS_IN: &[Metric] = &[histogram(
    "rpc_server_call_duration",
    "Duration of incoming gRPC calls, in seconds, by method and status; only at metrics level `detailed`",
)];

/// Metrics of gRPC clients.
pub const CALLS_OUT: &[Metric] = &[histogram(
    "rpc_client_call_duration",
    "Duration of outgoing gRPC calls, in seconds, by method, status and server; only at metrics level `detailed`",
)];

/// Metrics of the file systems that components write to.
pub const DISK: &[Metric] = &[
    gauge(
        "tributary_disk_free_bytes",
        "Free space of the file system of a directory that a component writes to, in bytes",
    ),
    gauge(
        "tributary_disk_size_bytes",
        "Size of the file system of a directory that a component writes to, in bytes",
    ),
];

/// Metrics of connectors that buffer acknowledged items.
pub const CONNECTOR: &[Metric] = &[
    counter(
        "tributary_connector_received_items",
        "Number of items that entered the connector",
    ),
    counter(
        "tributary_connector_delivered_items",
        "Number of derived items that the next stage accepted",
    ),
    counter(
        "tributary_connector_refused_items",
        "Number of items that were refused to the previous stage, which still has them",
    ),
    counter(
        "tributary_connector_dropped_items",
        "Number of items that were accepted and then dropped, by reason",
    ),
    gauge(
        "tributary_connector_in_flight_items",
        "Number of items in the connector whose outcome is unknown",
    ),
];

/// Metrics of pipelines.
pub const PIPELINE: &[Metric] = &[
    counter(
        "tributary_pipeline_received_items",
        "Number of items that entered the pipeline",
    ),
    counter(
        "tributary_pipeline_forwarded_items",
        "Number of items that all exporters of the pipeline accepted",
    ),
    counter(
        "tributary_pipeline_refused_items",
        "Number of items that were refused to the receiver, whose sender still has them",
    ),
    counter(
        "tributary_pipeline_dropped_items",
        "Number of items that were accepted and then dropped, by reason",
    ),
    gauge(
        "tributary_pipeline_in_flight_items",
        "Number of items in the pipeline whose outcome is unknown",
    ),
];

/// Metrics of the process.
pub const PROCESS: &[Metric] = &[
    counter(
        "otelcol_process_uptime",
        "Uptime of the process, in seconds",
    ),
    counter(
        "otelcol_process_cpu_seconds",
        "CPU time of the process, user and system, in seconds",
    ),
    gauge(
        "otelcol_process_runtime_heap_alloc_bytes",
        "Resident anonymous memory of the process (heaps and stacks), in bytes",
    ),
    gauge(
        "otelcol_process_runtime_total_sys_memory_bytes",
        "Private memory that the process obtained from the system, in bytes",
    ),
    gauge(
        "otelcol_process_memory_rss",
        "Resident set size of the process, in bytes",
    ),
    gauge(
        "tributary_process_open_fds",
        "Number of open file descriptors: connections, listeners and files",
    ),
    gauge(
        "tributary_process_max_fds",
        "Maximum number of open file descriptors (RLIMIT_NOFILE)",
    ),
    gauge(
        "tributary_memory_limit_bytes",
        "Memory budget for telemetry in the whole process, in bytes",
    ),
    gauge(
        "tributary_memory_used_bytes",
        "Part of the memory budget that is in use, in bytes",
    ),
    gauge(
        "target_info",
        "Attributes of the collector's resource, as labels; the value is always 1",
    ),
];
