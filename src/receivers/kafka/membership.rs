//! A consumer group member: librdkafka's consumer, its settings, and its shutdown.

use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer as _, ConsumerContext, RebalanceProtocol, StreamConsumer,
};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::block_in_place;
use tokio::time::timeout;
use tracing::info;

use super::config::{Config, InitialOffset};
use super::consumer_settings::consumer_settings;
use super::lanes::Partition;
use super::topics::Topics;
use tributary_config::ComponentId;
use tributary_net::kafka::client::{Logging, creation_error};

/// Maximum wait for the brokers at shutdown. Reachable brokers take milliseconds. If the brokers are
/// unreachable, uncommitted messages are delivered again.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum wait for each of the two responses that determine the start position.
const START_POSITION_TIMEOUT: Duration = Duration::from_secs(5);

/// A group member. When it is dropped, it leaves the group on a separate thread.
pub(super) struct Member {
    consumer: Option<StreamConsumer<Membership>>,
    commits_each: bool,
}

/// Callbacks for group events.
pub(super) struct Membership {
    id: ComponentId,
    logging: Logging,
    initial_offset: InitialOffset,
    revoked: Mutex<Vec<Partition>>,
}

impl Member {
    /// Creates a member; it joins the group with [`subscribe`](Self::subscribe).
    ///
    /// # Errors
    /// Returns an error if librdkafka rejects a setting.
    pub(super) fn new(config: &Config, topics: &Topics, id: &ComponentId) -> Result<Self, String> {
        let membership = Membership {
            id: id.clone(),
            logging: Logging::new(id, "receiver"),
            initial_offset: config.initial_offset,
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
    /// Returns an error if librdkafka rejects a pattern.
    pub(super) fn subscribe(&self, topics: &Topics) -> Result<(), String> {
        let names: Vec<&str> = topics.subscription.iter().map(String::as_str).collect();
        let subscribed = self.consumer()?.subscribe(&names);
        subscribed.map_err(|error| format!("cannot subscribe to {}: {error}", names.join(", ")))
    }

    /// Returns the consumer, which exists until shutdown.
    pub(super) fn consumer(&self) -> Result<&StreamConsumer<Membership>, String> {
        self.consumer
            .as_ref()
            .ok_or_else(|| "the receiver has left the consumer group".to_owned())
    }

    /// Returns the partitions revoked since the last call.
    pub(super) fn revoked(&self) -> Vec<Partition> {
        let Some(consumer) = &self.consumer else {
            return Vec::new();
        };
        let membership = consumer.context();
        let mut revoked = membership.revoked.lock();
        std::mem::take(&mut revoked)
    }

    /// Marks the messages up to this offset as consumed. If the partition was reassigned, this has no
    /// effect, and the new member also receives the message.
    pub(super) fn read(&self, (topic, partition): &Partition, offset: i64) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        // Stored offsets are committed at intervals and at shutdown.
        let stored = consumer.store_offset(topic, *partition, offset);
        if stored.is_ok() && self.commits_each {
            let mut list = TopicPartitionList::new();
            let next = Offset::Offset(offset + 1);
            if list.add_partition_offset(topic, *partition, next).is_ok() {
                // `commit_callback` receives the outcome.
                let _ = consumer.commit(&list, CommitMode::Async);
            }
        }
    }

    /// Pauses fetching of these partitions. librdkafka drops prefetched messages and fetches them
    /// again.
    pub(super) fn pause(&self, partitions: &[Partition]) {
        if let Some((consumer, list)) = self.assigned(partitions) {
            // A reassigned partition needs no pause.
            let _ = consumer.pause(&list);
        }
    }

    pub(super) fn resume(&self, partitions: &[Partition]) {
        if let Some((consumer, list)) = self.assigned(partitions) {
            let _ = consumer.resume(&list);
        }
    }

    /// Returns the partitions in the list that are assigned to this member.
    fn assigned(
        &self,
        partitions: &[Partition],
    ) -> Option<(&StreamConsumer<Membership>, TopicPartitionList)> {
        if partitions.is_empty() {
            return None;
        }
        let consumer = self.consumer.as_ref()?;
        let assigned = consumer.assignment().ok()?;
        let mut list = TopicPartitionList::new();
        for (topic, partition) in partitions {
            if assigned.find_partition(topic, *partition).is_some() {
                list.add_partition(topic, *partition);
            }
        }
        Some((consumer, list))
    }

    /// Returns the reason why the member cannot continue, if there is one.
    pub(super) fn fatal_error(&self) -> Option<String> {
        let (_, reason) = self.consumer.as_ref()?.client().fatal_error()?;
        Some(reason)
    }

    /// Commits stored offsets and leaves the group. After a timeout, both continue on a separate
    /// thread.
    pub(super) async fn leave(mut self) {
        let (tell, left) = oneshot::channel::<()>();
        if let Some(consumer) = self.consumer.take() {
            end(consumer, Some(tell));
        }
        // A closed channel also means that the thread has ended.
        let _ = timeout(LEAVE_TIMEOUT, left).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            end(consumer, None);
        }
    }
}

/// Runs on a separate thread, since both steps wait for brokers.
fn end(consumer: StreamConsumer<Membership>, tell: Option<oneshot::Sender<()>>) {
    let ending = std::thread::Builder::new().name("kafka-end".to_owned());
    // If no thread can be created, this drops the consumer.
    let _ = ending.spawn(move || {
        // librdkafka returns an error if there is nothing to commit; its log contains other errors.
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
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let shares_anew = matches!(
            consumer.rebalance_protocol(),
            RebalanceProtocol::Cooperative
        );
        let done = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                self.log_event(list.count(), "Partitions were assigned");
                let begun = blocking(|| self.begin(consumer, list));
                let done = match shares_anew {
                    true => consumer.incremental_assign(list),
                    false => consumer.assign(list),
                };
                if begun.count() > 0 {
                    // `commit_callback` receives the outcome.
                    let _ = consumer.commit(&begun, CommitMode::Async);
                }
                done
            }
            event => {
                match event {
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                        self.revoke(consumer, list);
                    }
                    other => {
                        let error = KafkaError::Rebalance(other.into());
                        let reason = "the rebalance of the consumer group failed";
                        self.logging.error(error, reason);
                    }
                }
                match shares_anew {
                    true => consumer.incremental_unassign(list),
                    false => consumer.unassign(),
                }
            }
        };
        if let Err(error) = done {
            self.logging
                .error(error, "cannot apply the partition assignment");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        match result {
            Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
            Err(error) => self.logging.error(
                error,
                "cannot commit offsets; messages may be delivered twice",
            ),
        }
    }
}

impl Membership {
    fn log_event(&self, partitions: usize, what: &str) {
        info!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "receiver",
            partitions,
            "{what}"
        );
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        self.log_event(list.count(), "Partitions were revoked");
        let elements = list.elements();
        let partitions = elements
            .iter()
            .map(|element| (element.topic().into(), element.partition()));
        let mut revoked = self.revoked.lock();
        revoked.extend(partitions);
        // A paused partition would stay paused when it is assigned again.
        let _ = consumer.resume(list);
    }

    /// Sets the start position of partitions without a committed offset to their current ends, and
    /// returns these offsets, which must be committed. Without the commit, the next start would begin
    /// at later ends and skip messages that were fetched but not consumed. If the brokers do not
    /// respond, librdkafka chooses the position.
    fn begin(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &mut TopicPartitionList,
    ) -> TopicPartitionList {
        let nothing = TopicPartitionList::new();
        if self.initial_offset != InitialOffset::Latest || list.count() == 0 {
            return nothing;
        }
        let found = ends_of_new(consumer, list).and_then(|ends| {
            for end in ends.elements() {
                list.set_partition_offset(end.topic(), end.partition(), end.offset())?;
            }
            Ok(ends)
        });
        found.unwrap_or_else(|error| {
            let reason = "cannot commit the start offsets of the group; a crash before the first commit may lose \
                          messages";
            self.logging.error(error, reason);
            nothing
        })
    }
}

/// Returns the ends of the partitions without a committed offset of the group.
fn ends_of_new(
    consumer: &BaseConsumer<Membership>,
    list: &TopicPartitionList,
) -> KafkaResult<TopicPartitionList> {
    let committed = consumer.committed_offsets(list.clone(), START_POSITION_TIMEOUT)?;
    let mut new = TopicPartitionList::new();
    for element in committed.elements() {
        element.error()?;
        if element.offset() == Offset::Invalid {
            new.add_partition_offset(element.topic(), element.partition(), Offset::End)?;
        }
    }
    if new.count() == 0 {
        return Ok(new);
    }
    let ends = consumer.offsets_for_times(new, START_POSITION_TIMEOUT)?;
    for element in ends.elements() {
        element.error()?;
    }
    Ok(ends)
}

/// Runs blocking work, as librdkafka's calls require. A multi-threaded runtime first moves other
/// tasks to other threads.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}
