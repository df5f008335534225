//! Main loop of the receiver: fetch messages, distribute them to lanes, store offsets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Headers as _};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::config::Config;
use super::intake::{Intake, Message};
use super::lanes::{Lanes, Step};
use super::membership::Member;
use super::topics::{Topics, WrongTopic};
use crate::component::{BuildContext, Outputs};
use crate::pipeline::{Component, Undelivered};
use futures_util::future::BoxFuture;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::kafka::client::Renewals;
use tributary_net::sampled_log::SampledLog;

/// Time at the size limit after which the partitions with the most buffered messages are paused.
/// Without a pause, the receiver would see neither group events nor other partitions. Each pause
/// costs a second fetch of librdkafka's prefetched messages.
const MAX_FULL_TIME: Duration = Duration::from_secs(1);
/// Retry delay after a failure to reserve memory or to create a member.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of buffers of `max_fetch_size`: the lanes, librdkafka's queue, and a response that is
/// arriving.
const BUFFERS: usize = 3;

pub(super) struct Receiver {
    reading: Option<Reading>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// State of the running receiver.
struct Reading {
    id: ComponentId,
    config: Config,
    topics: Topics,
    intake: Arc<Intake>,
    budget: Arc<Budget>,
    /// `None` after a fatal error of the last member.
    member: Option<Member>,
    renewals: Renewals,
    errors: SampledLog,
    stop: CancellationToken,
}

/// Reason why a member ended.
enum Ending {
    Stopped,
    Broken,
    /// A new member replaces this member, with new certificates.
    Renewed(Member),
}

impl Receiver {
    /// Creates a member; it joins its group at the start.
    ///
    /// # Errors
    /// Returns an error if librdkafka rejects the configuration.
    pub(super) fn new(
        config: &Config,
        cx: &BuildContext,
        outputs: Outputs,
    ) -> Result<Self, String> {
        let wrong = |wrong: Vec<WrongTopic>| {
            let reasons = wrong.into_iter().map(|wrong| wrong.reason);
            reasons.collect::<Vec<_>>().join("; ")
        };
        let topics = Topics::new(config, outputs.signals()).map_err(wrong)?;
        let stop = CancellationToken::new();
        let renewals = Renewals::new(&config.connection());
        let member = Member::new(config, &topics, &cx.id)?;
        let reading = Reading {
            id: cx.id.clone(),
            config: config.clone(),
            intake: Arc::new(Intake::new(config, cx, outputs)),
            budget: cx.budget.clone(),
            member: Some(member),
            renewals,
            errors: SampledLog::of_one_line(),
            stop: stop.clone(),
            topics,
        };
        Ok(Receiver {
            reading: Some(reading),
            stop,
            task: None,
        })
    }
}

impl Component for Receiver {
    fn start(&mut self) {
        if let Some(reading) = self.reading.take() {
            self.task = Some(tokio::spawn(reading.run()));
        }
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.stop.cancel();
            if let Some(mut task) = self.task
                && timeout_at(deadline, &mut task).await.is_err()
            {
                task.abort();
            }
            Undelivered::default()
        })
    }
}

impl Reading {
    async fn run(mut self) {
        let Some(_held) = self.memory().await else {
            return;
        };
        loop {
            let member = match self.member.take() {
                Some(member) => Ok(member),
                None => Member::new(&self.config, &self.topics, &self.id),
            };
            let subscribed = member.and_then(|member| {
                member.subscribe(&self.topics)?;
                Ok(member)
            });
            let ending = match &subscribed {
                Ok(member) => self.read(member).await,
                Err(reason) => {
                    self.failed(reason);
                    Ending::Broken
                }
            };
            if let Ok(member) = subscribed {
                member.leave().await;
            }
            match ending {
                Ending::Stopped => return,
                Ending::Renewed(member) => self.member = Some(member),
                Ending::Broken => tokio::select! {
                    () = sleep(RETRY_DELAY) => {}
                    () = self.stop.cancelled() => return,
                },
            }
        }
    }

    /// Reserves memory for all buffered messages, before any message is fetched. Returns `None` at
    /// shutdown.
    async fn memory(&self) -> Option<Permit> {
        let needed = self.bound().saturating_mul(BUFFERS);
        loop {
            let no_room = match self.budget.acquire(needed) {
                Ok(permit) => return Some(permit),
                Err(no_room) => no_room,
            };
            if let Some(suppressed) = self.errors.admit() {
                warn!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "receiver",
                    suppressed,
                    "Not fetching messages: fetching needs three times `max_fetch_size`: {no_room}. Lower \
                     `max_fetch_size`, or raise the limit of `memory_limiter`"
                );
            }
            tokio::select! {
                () = sleep(RETRY_DELAY) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }

    /// Returns the maximum size of the lanes in bytes. The last message of each lane may exceed it.
    fn bound(&self) -> usize {
        self.config.max_fetch_size as usize
    }

    /// Reads until the receiver stops or the member cannot continue.
    async fn read(&self, member: &Member) -> Ending {
        let Ok(consumer) = member.consumer() else {
            return Ending::Broken;
        };
        let stop = self.stop.child_token();
        let mut lanes = Lanes::new(self.intake.clone(), stop.clone());
        let mut full_since = None;
        let ending = loop {
            revoke(member, &mut lanes);
            member.resume(&lanes.released());
            full_since = match lanes.is_full(self.bound()) {
                true => full_since.or_else(|| Some(Instant::now())),
                false => None,
            };
            let pause_at = full_since.map_or_else(Instant::now, |since| since + MAX_FULL_TIME);
            tokio::select! {
                () = self.stop.cancelled() => break Ending::Stopped,
                () = self.renewals.due() => match Member::new(&self.config, &self.topics, &self.id) {
                    Ok(member) => {
                        info!(
                            otelcol.component.id = %self.id,
                            otelcol.component.kind = "receiver",
                            "The files of the `tls` section have changed; rejoining the consumer group"
                        );
                        break Ending::Renewed(member);
                    }
                    Err(reason) => self.failed(&reason),
                },
                step = lanes.next(), if !lanes.is_idle() => apply(member, step),
                () = sleep_until(pause_at), if full_since.is_some() => {
                    revoke(member, &mut lanes);
                    member.pause(&lanes.hold(self.bound()));
                }
                received = consumer.recv(), if full_since.is_none() => match received {
                    Ok(message) => match self.message(&message) {
                        Some(message) => {
                            // After a rebalance during the wait, the message is the first message of a
                            // new assignment.
                            revoke(member, &mut lanes);
                            lanes.push(message);
                        }
                        // Only librdkafka's interpretation of a pattern includes this topic.
                        None => member.pause(&[(message.topic().into(), message.partition())]),
                    },
                    Err(error) => {
                        self.failed(&error.to_string());
                        if let Some(reason) = member.fatal_error() {
                            error!(
                                otelcol.component.id = %self.id,
                                otelcol.component.kind = "receiver",
                                error = reason,
                                "The Kafka consumer failed; creating a new consumer"
                            );
                            break Ending::Broken;
                        }
                    }
                },
            }
        };
        // Messages in flight are finished; buffered ones are dropped and delivered again.
        stop.cancel();
        while !lanes.is_idle() {
            let step = lanes.next().await;
            apply(member, step);
        }
        ending
    }

    fn message(&self, message: &BorrowedMessage<'_>) -> Option<Message> {
        let (signal, encoding) = self.topics.find(message.topic())?;
        let extraction = &self.config.header_extraction;
        let mut headers = Vec::new();
        if extraction.extract_headers
            && let Some(all) = message.headers()
        {
            for header in all.iter() {
                let at = extraction
                    .headers
                    .iter()
                    .position(|name| name == header.key);
                if let (Some(at), Some(value)) = (at, header.value) {
                    headers.push((at, String::from_utf8_lossy(value).into_owned()));
                }
            }
        }
        Some(Message {
            topic: message.topic().into(),
            partition: message.partition(),
            offset: message.offset(),
            signal,
            encoding,
            payload: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
            headers,
        })
    }

    fn failed(&self, reason: &str) {
        if let Some(suppressed) = self.errors.admit() {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                error = reason,
                suppressed,
                "Cannot read from Kafka; retrying"
            );
        }
    }
}

fn revoke(member: &Member, lanes: &mut Lanes) {
    for partition in member.revoked() {
        lanes.revoke(&partition);
    }
}

fn apply(member: &Member, step: Option<Step>) {
    match step {
        Some(Step::Read(partition, offset)) => member.read(&partition, offset),
        Some(Step::Stuck(partition)) => member.pause(&[partition]),
        None => {}
    }
}
