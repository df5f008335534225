//! Properties that the collector guarantees to its operators, checked on the real binary: one file
//! per property.
//!
//! Every test starts separate collectors, backends and clients on ports that the system chooses, so all tests run
//! concurrently. No test sleeps to wait for an event: tests wait for log lines, metrics and arrivals, and fail with an
//! error if an event does not occur.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test that cannot go on fails; and what the harness offers is not the world's"
)]

mod arrival;
mod attack;
mod authentication;
mod backpressure;
mod bombs;
mod call_sites;
mod chaos;
mod command_line;
mod console;
mod debug_exporter;
mod deployment;
mod docs;
mod everything_at_once;
mod failover;
mod fan_out;
mod floods;
mod foreign_peers;
mod harness;
mod http1_attacks;
mod idle;
mod least_privilege;
mod load_balancing;
mod malformed;
mod memory_under_attack;
mod merged_refusal;
mod mutual_tls;
mod output_memory;
mod overload_retries;
mod own_telemetry;
mod own_telemetry_export;
mod parquet_crashes;
mod parquet_readers;
mod pprof_damage;
mod pprof_push;
mod pprof_services;
mod pprof_tiers;
mod profile_store;
mod profiles_check;
mod profiles_diff;
mod prometheus;
mod prometheus_receiver;
mod pyroscope;
mod pyroscope_agents;
mod redaction;
mod redelivery;
mod reload;
mod retries;
mod scraping;
mod sdk;
mod sdk_redaction;
mod shutdown;
mod span_clients;
mod span_formats;
mod split_units;
mod status_matrix;
mod stored_queue;
mod summaries;
mod symbolication;
mod symbols_command;
mod tiers;
mod tls_attacks;
mod tls_rotation;
mod transform;
mod unread_answers;
