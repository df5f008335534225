//! A member of a consumer group: librdkafka's consumer, what it is told, and its end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance, StreamConsumer,
};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::info;

use super::config::{Config, InitialOffset, RebalanceStrategy};
use super::lanes::Partition;
use super::topics::Topics;
use crate::config::ComponentId;
use crate::net::kafka::client::{Logging, creation_error, settings};
use crate::net::kafka::milliseconds;

/// How long a member may be silent before it counts as stuck, in milliseconds; librdkafka's default.
const LONGEST_SILENCE: u64 = 300_000;

/// How long to wait for the brokers at the end. With them it takes milliseconds; when they are away, what was read
/// comes again.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A member. It leaves the group when it is dropped, on a thread of its own.
pub(super) struct Member {
    consumer: Option<StreamConsumer<Membership>>,
    commits_each: bool,
}

/// What a member hears of its group.
pub(super) struct Membership {
    id: ComponentId,
    logging: Logging,
    revoked: Mutex<Vec<Partition>>,
}

impl Member {
    /// Connects; it joins the group with [`subscribe`](Self::subscribe).
    ///
    /// # Errors
    /// When librdkafka does not take a setting.
    pub(super) fn new(config: &Config, topics: &Topics, id: &ComponentId) -> Result<Self, String> {
        let membership = Membership {
            id: id.clone(),
            logging: Logging::new(id, "receiver"),
            revoked: Mutex::default(),
        };
        let consumer =
            StreamConsumer::from_config_and_context(&consumer_settings(config, topics), membership);
        Ok(Member {
            consumer: Some(consumer.map_err(|error| creation_error(&error))?),
            commits_each: !config.autocommit.enable,
        })
    }

    /// Joins the group.
    ///
    /// # Errors
    /// When librdkafka cannot use a pattern.
    pub(super) fn subscribe(&self, topics: &Topics) -> Result<(), String> {
        let names: Vec<&str> = topics.subscription.iter().map(String::as_str).collect();
        let subscribed = self.consumer()?.subscribe(&names);
        subscribed.map_err(|error| format!("cannot subscribe to {}: {error}", names.join(", ")))
    }

    /// The consumer; there is one until the end.
    pub(super) fn consumer(&self) -> Result<&StreamConsumer<Membership>, String> {
        self.consumer
            .as_ref()
            .ok_or_else(|| "the member has left".to_owned())
    }

    /// The partitions that are somebody else's since the last call.
    pub(super) fn revoked(&self) -> Vec<Partition> {
        let Some(consumer) = &self.consumer else {
            return Vec::new();
        };
        let membership = consumer.context();
        let mut revoked = membership
            .revoked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut revoked)
    }

    /// Everything up to this offset was read. A partition that is somebody else's by now stays as it is: then the
    /// message comes to them, too.
    pub(super) fn read(&self, (topic, partition): &Partition, offset: i64) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        // Stored, it is committed at intervals and at the end.
        let stored = consumer.store_offset(topic, *partition, offset);
        if stored.is_ok() && self.commits_each {
            let mut list = TopicPartitionList::new();
            let next = Offset::Offset(offset + 1);
            if list.add_partition_offset(topic, *partition, next).is_ok() {
                // What becomes of it is said to `commit_callback`.
                let _ = consumer.commit(&list, CommitMode::Async);
            }
        }
    }

    /// Stops, or goes on with, fetching what is assigned, except what `keeps` says.
    pub(super) fn pause(&self, pauses: bool, keeps: impl Fn(&Partition) -> bool) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        let Ok(assigned) = consumer.assignment() else {
            return;
        };
        let mut list = TopicPartitionList::new();
        for element in assigned.elements() {
            let partition = (element.topic().into(), element.partition());
            if !keeps(&partition) {
                list.add_partition(element.topic(), element.partition());
            }
        }
        // A partition that is somebody else's by now is no matter.
        let _ = match pauses {
            true => consumer.pause(&list),
            false => consumer.resume(&list),
        };
    }

    /// Why the member can do nothing any more, if so.
    pub(super) fn fatal_error(&self) -> Option<String> {
        let (_, reason) = self.consumer.as_ref()?.client().fatal_error()?;
        Some(reason)
    }

    /// Commits what was read, and leaves the group, or goes on trying to on a thread of its own.
    pub(super) async fn leave(mut self) {
        let (tell, left) = oneshot::channel::<()>();
        if let Some(consumer) = self.consumer.take() {
            end(consumer, Some(tell));
        }
        // An error says that it has ended, too.
        let _ = timeout(LAST_WORDS, left).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            end(consumer, None);
        }
    }
}

/// On a thread of its own: both wait for brokers.
fn end(consumer: StreamConsumer<Membership>, tell: Option<oneshot::Sender<()>>) {
    let ending = std::thread::Builder::new().name("kafka-end".to_owned());
    // Without a thread it ends here.
    let _ = ending.spawn(move || {
        // Nothing to commit is an error for librdkafka; others are said in its log.
        let _ = consumer.commit_consumer_state(CommitMode::Sync);
        drop(consumer);
        drop(tell);
    });
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.logging.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.logging.error(error, reason);
    }
}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let (what, list) = match rebalance {
            Rebalance::Assign(list) => ("Partitions were assigned", list),
            Rebalance::Revoke(list) => ("Partitions were taken away", list),
            Rebalance::Error(error) => {
                self.logging
                    .error(error.clone(), "the group could not share its partitions");
                return;
            }
        };
        let elements = list.elements();
        let partitions = elements
            .iter()
            .map(|element| (element.topic().into(), element.partition()));
        if matches!(rebalance, Rebalance::Revoke(_)) {
            let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
            revoked.extend(partitions);
            // One that is paused would stay so when it comes back, whoever asked for it.
            let _ = consumer.resume(list);
        }
        info!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "receiver",
            partitions = elements.len(),
            "{what}"
        );
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        match result {
            Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
            Err(error) => self
                .logging
                .error(error, "could not commit what was read; it may come again"),
        }
    }
}

/// What librdkafka is told.
fn consumer_settings(config: &Config, topics: &Topics) -> ClientConfig {
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
            LONGEST_SILENCE.max(session).to_string(),
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
        // An offset is stored by us, when the next stage has the message.
        .set("enable.auto.offset.store", "false")
        .set("enable.auto.commit", config.autocommit.enable.to_string())
        .set(
            "auto.commit.interval.ms",
            milliseconds(config.autocommit.interval).to_string(),
        )
        .set("fetch.min.bytes", config.min_fetch_size.to_string())
        .set("fetch.max.bytes", most.to_string())
        // Otherwise librdkafka would raise what is above.
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
        // The queue is short, so look again soon.
        .set("fetch.queue.backoff.ms", "20")
        // What a broker's disk or a network did to a record is not telemetry.
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
