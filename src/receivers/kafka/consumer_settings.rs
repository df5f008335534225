//! Settings of librdkafka's consumer.

use rdkafka::config::ClientConfig;

use super::config::{Config, InitialOffset, RebalanceStrategy};
use super::topics::Topics;
use tributary_net::kafka::client::settings;
use tributary_net::kafka::milliseconds;

/// Returns librdkafka's settings.
pub(super) fn consumer_settings(config: &Config, topics: &Topics) -> ClientConfig {
    let mut settings = settings(&config.connection());
    let session = milliseconds(config.session_timeout);
    let most = config.max_fetch_size;
    settings
        .set("group.id", &config.group_id)
        .set("session.timeout.ms", session.to_string())
        .set(
            "heartbeat.interval.ms",
            milliseconds(config.heartbeat_interval).to_string(),
        )
        .set(
            "max.poll.interval.ms",
            MAX_POLL_INTERVAL_MS.max(session).to_string(),
        )
        .set(
            "partition.assignment.strategy",
            match config.group_rebalance_strategy {
                RebalanceStrategy::Range => "range",
                RebalanceStrategy::RoundRobin => "roundrobin",
                RebalanceStrategy::CooperativeSticky => "cooperative-sticky",
            },
        )
        .set(
            "auto.offset.reset",
            match config.initial_offset {
                InitialOffset::Latest => "latest",
                InitialOffset::Earliest => "earliest",
            },
        )
        // The receiver stores an offset itself, after the next stage has accepted the message.
        .set("enable.auto.offset.store", "false")
        .set("enable.auto.commit", config.autocommit.enable.to_string())
        .set(
            "auto.commit.interval.ms",
            milliseconds(config.autocommit.interval).to_string(),
        )
        .set("fetch.min.bytes", config.min_fetch_size.to_string())
        .set("fetch.max.bytes", most.to_string())
        // Without this setting librdkafka would raise the limits above.
        .set("message.max.bytes", most.clamp(1000, 1_000_000).to_string())
        .set(
            "max.partition.fetch.bytes",
            config.max_partition_fetch_size.to_string(),
        )
        .set(
            "fetch.wait.max.ms",
            milliseconds(config.max_fetch_wait).to_string(),
        )
        .set(
            "queued.max.messages.kbytes",
            most.div_ceil(1024).to_string(),
        )
        // The queue is short, so check it again soon.
        .set("fetch.queue.backoff.ms", "20")
        // Records damaged by a disk or the network must not pass as telemetry.
        .set("check.crcs", "true");
    if !config.group_instance_id.is_empty() {
        settings.set("group.instance.id", &config.group_instance_id);
    }
    if !config.rack_id.is_empty() {
        settings.set("client.rack", &config.rack_id);
    }
    if !topics.excluded.is_empty() {
        settings.set("topic.blacklist", topics.excluded.join(","));
    }
    settings
}

/// Time without polling after which a member counts as stuck, in milliseconds. The default of
/// librdkafka.
pub(super) const MAX_POLL_INTERVAL_MS: u64 = 300_000;
