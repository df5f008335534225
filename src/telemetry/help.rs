//! Descriptions of metrics, for the `HELP` lines.

use metrics::{describe_counter, describe_gauge, describe_histogram};

use tributary_otlp::Signal;

/// Describes every metric to the recorder.
pub(crate) fn describe() {
    for signal in Signal::ALL {
        let items = signal.items_name();
        let words = items.replace('_', " ");
        for (name, meaning) in [
            ("receiver_accepted", "pushed into the pipeline"),
            (
                "receiver_refused",
                "that could not be pushed into the pipeline",
            ),
            (
                "processor_memory_limiter_accepted",
                "that the memory limiter let pass",
            ),
            (
                "processor_memory_limiter_refused",
                "that the memory limiter refused",
            ),
            (
                "receiver_failed",
                "that failed in the receiver itself; always 0, as refusals are counted by `refused`",
            ),
            ("exporter_sent", "sent to the destination"),
            (
                "exporter_send_failed",
                "in failed attempts to send to the destination",
            ),
            (
                "exporter_enqueue_failed",
                "that were not taken into the sending queue",
            ),
        ] {
            describe_counter!(
                format!("otelcol_{name}_{items}"),
                format!("Number of {words} {meaning}")
            );
        }
    }
    for items in ["spans", "datapoints", "logs", "profiles"] {
        describe_counter!(
            format!("otelcol_processor_filter_{items}_filtered"),
            match items {
                "datapoints" =>
                    "Number of metric data points dropped by the filter processor".to_owned(),
                "profiles" =>
                    "Number of samples of profiles dropped by the filter processor".to_owned(),
                items => format!("Number of {items} dropped by the filter processor"),
            }
        );
    }
    for (name, meaning) in [
        (
            "otelcol_processor_probabilistic_sampler_count_traces_sampled",
            "Count of spans that were sampled or not; the name before count_spans_processed",
        ),
        (
            "otelcol_processor_probabilistic_sampler_count_spans_processed",
            "Count of spans that were sampled or not",
        ),
        (
            "otelcol_processor_probabilistic_sampler_count_logs_sampled",
            "Count of logs that were sampled or not",
        ),
        (
            "tributary_processor_probabilistic_sampler_count_profiles_sampled",
            "Count of profiles that were sampled or not",
        ),
        (
            "otelcol_processor_incoming_items",
            "Number of items passed to the processor",
        ),
        (
            "otelcol_processor_outgoing_items",
            "Number of items emitted from the processor",
        ),
        (
            "otelcol_processor_batch_batch_size_trigger_send",
            "Number of times the batch was sent due to a size trigger",
        ),
        (
            "otelcol_processor_redaction_hits",
            "Number of times something private was found, by detector or rule, signal and place",
        ),
        (
            "tributary_processor_redaction_refused_requests",
            "Number of requests that cannot be looked at, and are therefore not passed on (`mode: report`: passed on as they are)",
        ),
        (
            "tributary_processor_compression_flushes",
            "Number of summaries of profiles, by what ended their window: its time or the memory bound",
        ),
        (
            "tributary_processor_compression_saturated_sums",
            "Number of sums of samples that did not fit and stand at the most there can be",
        ),
        (
            "tributary_processor_compression_passed_requests",
            "Number of requests of profiles that did not have to wait, because their series were quiet",
        ),
        (
            "otelcol_processor_batch_timeout_trigger_send",
            "Number of times the batch was sent due to a timeout trigger",
        ),
        (
            "tributary_processor_dedup_duplicate_items",
            "Items that had been delivered before, by what they were known by: the whole request, or the item",
        ),
        (
            "tributary_processor_dedup_unexamined_items",
            "Items that passed without a look for duplicates, for want of memory",
        ),
        (
            "tributary_processor_dedup_forgotten_items",
            "Items that were forgotten before the end of the window, for want of memory: see `max_bytes`",
        ),
        (
            "tributary_processor_log_dedup_flushes",
            "Number of intervals of counted log records, by what ended them: their time or the memory bound",
        ),
        (
            "tributary_exporter_recovered_items",
            "Items that were in the stored queue at the start, or that are sent again",
        ),
        (
            "tributary_exporter_kept_items",
            "Items that were left in the stored queue when its exporter ended",
        ),
        (
            "tributary_exporter_failed_attempts",
            "Attempts to send that failed and are repeated",
        ),
        (
            "tributary_storage_damaged_blocks",
            "Damaged blocks of a stored queue, which were skipped",
        ),
        (
            "tributary_storage_lost_records",
            "Records of a stored queue that were in damaged blocks",
        ),
        (
            "tributary_storage_recovered_records",
            "Records that a stored queue had when it was opened; some may have been sent before",
        ),
        (
            "tributary_storage_resent_records",
            "Records of a stored queue that were read again, because they were not delivered",
        ),
        (
            "tributary_storage_write_failures",
            "Writes to a stored queue, and fsyncs, that failed",
        ),
        ("tributary_exporter_parquet_files", "Finished Parquet files"),
        (
            "tributary_exporter_parquet_rows",
            "Rows in finished Parquet files",
        ),
        (
            "tributary_exporter_parquet_bytes",
            "Bytes of finished Parquet files",
        ),
        (
            "tributary_exporter_parquet_failed_files",
            "Parquet files that could not be written; their batches were written again, or refused",
        ),
        (
            "tributary_exporter_parquet_early_files",
            "Parquet files that were finished before they were full or old enough, by what there was not enough of",
        ),
        (
            "tributary_connector_profile_metrics_windows",
            "Number of windows that became metrics, by what ended them: their time or the memory bound",
        ),
        (
            "tributary_connector_profile_metrics_unknown_profiles",
            "Profiles whose sample type there is no metric for, or whose unit does not fit it",
        ),
        (
            "tributary_connector_profile_metrics_first_profiles",
            "Profiles that count from the start of their process, of which none came before: there is no difference yet",
        ),
        (
            "tributary_connector_profile_metrics_forgotten_series",
            "Series that count from a start and were forgotten for lack of memory: what they count until they come \
             again is in no metric",
        ),
        (
            "tributary_processor_symbolication_locations",
            "Locations of profiles that came without lines, by what became of them",
        ),
        (
            "tributary_processor_symbolication_unreadable_requests",
            "Requests of profiles whose dictionary could not be read, and which went on as they were",
        ),
        (
            "tributary_symbols_lookups",
            "Binaries that requests of profiles asked for, by whether their symbols were here",
        ),
        (
            "tributary_symbols_fetches",
            "Binaries that sources were asked for, by source and outcome",
        ),
        (
            "tributary_symbols_worker_failures",
            "Binaries that could not be compiled, by reason",
        ),
        (
            "tributary_extension_symbol_uploads",
            "Files that clients tried to upload, by outcome",
        ),
        (
            "otelcol_loadbalancer_num_resolutions",
            "Number of times the resolver was asked who the members are, by success",
        ),
        (
            "otelcol_loadbalancer_num_backend_updates",
            "Number of times there were other members than before",
        ),
        (
            "otelcol_loadbalancer_backend_outcome",
            "Number of requests to each member, by success",
        ),
        (
            "otelcol_connector_failover_count",
            "Number of times a level was left because it refuses",
        ),
        (
            "tributary_exporter_file_rotations",
            "Number of times a full file was renamed and a new one begun",
        ),
        (
            "tributary_exporter_prometheus_rejected_points",
            "Points that could not be exposed: no room, out of order, invalid, or in conflict with another metric",
        ),
        (
            "tributary_exporter_prometheus_scrapes",
            "Pages that were asked for, by format",
        ),
        (
            "tributary_receiver_file_skipped_records",
            "Records of files that were skipped: not readable, too large, or refused for good",
        ),
        (
            "tributary_receiver_kafka_skipped_messages",
            "Messages of Kafka that were passed over: not readable, or refused by the next stage, by reason",
        ),
        (
            "tributary_receiver_refused_requests",
            "Requests that were refused for any reason, by the identity of the client's certificate",
        ),
        (
            "tributary_receiver_unreadable_requests",
            "Requests that were not telemetry: malformed, too large, or not decompressible",
        ),
        (
            "otelcol_scraper_scraped_profile_records",
            "Number of profile records successfully scraped: samples",
        ),
        (
            "otelcol_scraper_errored_profile_records",
            "Number of profile records that were unable to be scraped: profiles, whose samples nobody could count",
        ),
        (
            "tributary_scraper_dropped_profiles",
            "Number of profiles that were scraped and then refused by the pipeline or the memory budget",
        ),
        (
            "tributary_receiver_pprof_repairs",
            "What was mended in pprof files that break the rules of the format, by kind",
        ),
        (
            "tributary_receiver_pprof_forgotten_series",
            "Number of cumulative profiles that there was no room to remember; the next one of the series yields no difference",
        ),
        (
            "tributary_tls_reloads",
            "Changes of TLS files, by outcome: in use now, or not usable",
        ),
        (
            "tributary_tls_distrusted_connections",
            "Connections closed because their client's certificate has expired or is no longer trusted",
        ),
        (
            "tributary_tls_handshake_failures",
            "Connections that ended in the TLS handshake, by what was wrong",
        ),
        (
            "tributary_server_limited",
            "Connections and requests that were refused or cut, by the limit they were over",
        ),
        (
            "tributary_server_unauthenticated",
            "Requests that were refused because nobody knows who sent them, by reason",
        ),
        (
            "tributary_auth_reloads",
            "Times that changed credentials were taken over, or could not be, by outcome",
        ),
    ] {
        describe_counter!(name, meaning);
    }
    for (name, meaning) in [
        (
            "otelcol_exporter_queue_size",
            "Current size of the sending queue, in the sizer's units",
        ),
        (
            "otelcol_exporter_queue_capacity",
            "Capacity of the sending queue, in the sizer's units",
        ),
        (
            "otelcol_exporter_in_flight_requests",
            "Requests being sent, those that wait for their next attempt included",
        ),
        (
            "tributary_exporter_set_aside_records",
            "Jobs of a stored queue that failed several times and are retried beside the consumers",
        ),
        (
            "otelcol_loadbalancer_num_backends",
            "Number of members, those that are left alone after failures included",
        ),
        (
            "tributary_connector_failover_level",
            "The level that gets everything, from 1",
        ),
        (
            "otelcol_processor_batch_metadata_cardinality",
            "Number of distinct metadata value combinations being processed",
        ),
        (
            "tributary_processor_dedup_remembered_items",
            "Items, and whole requests, that would be known again",
        ),
        (
            "tributary_exporter_prometheus_series",
            "Series that are exposed, as Prometheus counts them",
        ),
        (
            "tributary_exporter_prometheus_memory_bytes",
            "Bytes of memory that the exposed series take",
        ),
        (
            "otelcol_processor_symbolication_rate",
            "Share of the locations without lines that were given names since the start, from 0 to 1",
        ),
        (
            "tributary_symbols_cache_bytes",
            "Bytes of the compiled symbols on disk",
        ),
        (
            "tributary_scraper_up",
            "Whether the last scrape of a target's profile brought one",
        ),
        (
            "tributary_scraper_duration_seconds",
            "How long the last scrape of a target's profile took",
        ),
        (
            "tributary_receiver_pprof_interval_stretch",
            "How many times as long the intervals between profiles are, because the CPU is busy; 1 when it is not",
        ),
        (
            "tributary_server_connections",
            "Connections that clients have open",
        ),
        ("tributary_storage_bytes", "Bytes of a stored queue on disk"),
        ("tributary_storage_segments", "Files of a stored queue"),
        (
            "tributary_exporter_parquet_open_files",
            "Parquet files that rows are added to",
        ),
        (
            "tributary_server_requests",
            "Requests under way, from their heads to their answers",
        ),
        (
            "tributary_disk_free_bytes",
            "Free bytes of the file system that a component writes to",
        ),
        (
            "tributary_disk_size_bytes",
            "Size in bytes of the file system that a component writes to",
        ),
    ] {
        describe_gauge!(name, meaning);
    }
    for (name, meaning) in [
        (
            "otelcol_processor_batch_batch_send_size",
            "Number of items in the batches sent",
        ),
        (
            "otelcol_processor_batch_batch_send_size_bytes",
            "Number of bytes in the batches sent",
        ),
        (
            "otelcol_exporter_queue_batch_send_size",
            "Number of items in the batches that left the sending queue",
        ),
        (
            "otelcol_exporter_queue_batch_send_size_bytes",
            "Number of bytes in the batches that left the sending queue, uncompressed",
        ),
        (
            "tributary_server_request_seconds",
            "How long requests took, from their head to the end of the answer",
        ),
        (
            "tributary_exporter_queue_wait_seconds",
            "How long requests waited in the sending queue before their first attempt; in a stored queue, from when they \
             were read from the disk",
        ),
        (
            "tributary_exporter_send_seconds",
            "How long an attempt to send a batch took, by outcome",
        ),
        (
            "tributary_storage_fsync_seconds",
            "How long it took to force what was appended to a stored queue to the disk",
        ),
        (
            "tributary_symbols_compile_seconds",
            "How long it took to compile the symbols of a binary",
        ),
        (
            "otelcol_loadbalancer_backend_latency",
            "How long requests to a member took, in milliseconds",
        ),
    ] {
        describe_histogram!(name, meaning);
    }
    for (name, meaning) in [
        (
            "otelcol_processor_internal_duration",
            "Time in seconds that the processor worked on a batch",
        ),
        (
            "rpc_server_call_duration",
            "Time in seconds that incoming gRPC calls took",
        ),
        (
            "rpc_client_call_duration",
            "Time in seconds that outgoing gRPC calls took",
        ),
    ] {
        describe_histogram!(name, meaning);
    }
    for (account, passed) in [
        ("pipeline", "forwarded"),
        ("exporter", "delivered"),
        ("connector", "delivered"),
    ] {
        for (outcome, meaning) in [
            ("received", "came in"),
            (
                passed,
                "went on to the next stage, which took responsibility",
            ),
            ("refused", "were given back to the sender"),
            ("dropped", "had been accepted and were dropped, by reason"),
        ] {
            describe_counter!(
                format!("tributary_{account}_{outcome}_items"),
                format!("Items that {meaning}")
            );
        }
        describe_gauge!(
            format!("tributary_{account}_in_flight_items"),
            "Items that came in and have not left yet"
        );
    }
}
