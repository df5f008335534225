//! Processing of a message: decode, forward, retry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::{Counter, counter};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::config::{Config, MessageMarking};
use crate::component::{BuildContext, Outputs};
use crate::pipeline::batch::{Batch, Code, Nack, Progress};
use crate::pipeline::turns::on_a_turn;
use crate::queue::{Backoff, RetryConfig};
use crate::receivers::metrics::ReceiverMetrics;
use crate::receivers::otlp::intake::{Format, Work};
use crate::serving::body::{ReceivedBytes, out_of_memory};
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_net::kafka::RecordEncoding;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;
use tributary_otlp::stamp::Stamp;

/// Size in bytes up to which decoding runs in place, because it takes at most about a millisecond.
const SHORT: usize = 256 << 10;
/// Retry delay without `error_backoff`, if the refusal contains none.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) signal: Signal,
    pub(super) encoding: RecordEncoding,
    pub(super) payload: Bytes,
    /// Extracted headers: positions in the configuration, and values.
    pub(super) headers: Vec<(usize, String)>,
}

/// Outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The message is consumed: accepted, or skipped.
    Passed,
    /// The message is not consumed, and its partition stops here.
    Stuck,
    /// The message is not consumed: the receiver stops, or the partition was reassigned.
    Interrupted,
}

/// Entry to the pipelines.
pub(super) struct Intake {
    id: ComponentId,
    outputs: Outputs,
    budget: Arc<Budget>,
    marking: MessageMarking,
    backoff: Option<RetryConfig>,
    stamps: Vec<Stamp>,
    metrics: ReceiverMetrics,
    /// Counter `tributary_receiver_kafka_skipped_messages` for messages that can never be accepted.
    unfit: Counter,
    /// The same counter for messages skipped after retries.
    given_up: Counter,
    log: SampledLog,
    mistakes: SampledLog,
}

impl Intake {
    pub(super) fn new(config: &Config, cx: &BuildContext, outputs: Outputs) -> Self {
        let skipped = |reason: &'static str| {
            counter!(
                "tributary_receiver_kafka_skipped_messages",
                "receiver" => cx.id.to_string(),
                "reason" => reason
            )
        };
        let headers = config.header_extraction.headers.iter();
        Intake {
            id: cx.id.clone(),
            budget: cx.budget.clone(),
            marking: config.message_marking.clone(),
            backoff: config.error_backoff.as_ref().map(|backoff| backoff.retry()),
            stamps: headers
                .map(|name| Stamp::new(format!("kafka.header.{name}")))
                .collect(),
            metrics: ReceiverMetrics::new(&cx.id, "kafka"),
            unfit: skipped("permanent"),
            given_up: skipped("given_up"),
            log: SampledLog::default(),
            mistakes: SampledLog::of_one_line(),
            outputs,
        }
    }

    /// Processes a message until its final outcome is known.
    pub(super) async fn take(&self, message: &Message, stop: &CancellationToken) -> Verdict {
        let mut batch = None;
        let mut backoff = self.waits();
        loop {
            let refused = match self.hand_on(message, &mut batch).await {
                Ok(()) => return Verdict::Passed,
                Err(refused) => refused,
            };
            match (refused.retryable, may_be_about_content(refused.code)) {
                (true, _) => {}
                (false, true) => return self.give_up(message, &refused),
                // The cause is a configuration error, so the message must not be lost before an
                // operator corrects it.
                (false, false) => self.refused_by_mistake(message, &refused),
            }
            let wait = match &mut backoff {
                None if self.marking.on_error => None,
                None => Some(refused.retry_after.unwrap_or(RETRY_AFTER)),
                Some(backoff) => backoff.next(refused.retry_after),
            };
            let wait = match wait {
                Some(wait) => wait,
                None if self.marking.on_error => {
                    self.given_up.increment(1);
                    self.passed_over(message, &refused);
                    return Verdict::Passed;
                }
                None => {
                    backoff = self.waits();
                    refused.retry_after.unwrap_or(RETRY_AFTER)
                }
            };
            debug!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                topic = %message.topic,
                partition = message.partition,
                offset = message.offset,
                error = %refused,
                "Cannot deliver a message; retrying"
            );
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => return Verdict::Interrupted,
            }
        }
    }

    fn waits(&self) -> Option<Backoff<'_>> {
        let config = self.backoff.as_ref()?;
        Some(Backoff::new(config, Instant::now()))
    }

    /// Makes one attempt. The decoded message is kept in `batch` for the next attempt.
    async fn hand_on(&self, message: &Message, batch: &mut Option<Batch>) -> Result<(), Nack> {
        if message.payload.is_empty() {
            return Ok(());
        }
        let signal = message.signal;
        let ready = match batch {
            Some(batch) => batch,
            None => match self.read(message).await? {
                Some(read) => batch.insert(read),
                None => return Ok(()),
            },
        };
        let Some(consumer) = self.outputs.get(signal) else {
            return Ok(());
        };
        let items = ready.items();
        let outcome = consumer.consume(ready.clone()).await;
        match &outcome {
            Ok(()) => self.metrics.accepted(signal, items),
            Err(_) => self.metrics.refused(signal, items),
        }
        outcome
    }

    /// Decodes the batch in a message. Returns `None` if the batch has no items.
    async fn read(&self, message: &Message) -> Result<Option<Batch>, Nack> {
        let bytes = message.payload.clone();
        let permit = self.budget.acquire(bytes.len()).map_err(out_of_memory)?;
        let held = ReceivedBytes { bytes, permit };
        let work = Work {
            signal: message.signal,
            format: match message.encoding {
                RecordEncoding::OtlpProto => Format::Protobuf,
                RecordEncoding::OtlpJson => Format::Json,
            },
            codec: None,
            // JSON takes at most four times the size of protobuf, and the budget limits the size.
            limit: usize::MAX,
            limit_key: "max_fetch_size",
            // No limit: the message is the only copy of its data, and its size is limited.
            max_items: usize::MAX,
            stamp: None,
        };
        let read = match message.payload.len() > SHORT {
            false => work.run(held),
            true => on_a_turn(move || work.run(held))
                .await
                .unwrap_or_else(|| Err(Nack::unavailable("the collector is shutting down"))),
        };
        let (items, mut held) = read.inspect_err(|_| self.metrics.unreadable(message.signal))?;
        if items == 0 {
            return Ok(None);
        }
        for (at, value) in &message.headers {
            if let Some(stamp) = self.stamps.get(*at) {
                held = stamped(stamp, message.signal, value, held)?;
            }
        }
        let mut batch = Batch::new(message.signal, items, held.bytes);
        batch.hold(held.permit);
        batch.progress = Some(Arc::new(Progress::default()));
        Ok(Some(batch))
    }

    fn give_up(&self, message: &Message, refused: &Nack) -> Verdict {
        if self.marking.on_permanent_error {
            self.unfit.increment(1);
            self.passed_over(message, refused);
            return Verdict::Passed;
        }
        error!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "receiver",
            topic = %message.topic,
            partition = message.partition,
            offset = message.offset,
            error = %refused,
            "A message was refused permanently; the partition stops at this offset. Set \
             `message_marking::on_permanent_error` to skip such messages"
        );
        Verdict::Stuck
    }

    fn refused_by_mistake(&self, message: &Message, refused: &Nack) {
        if let Some(suppressed) = self.mistakes.admit() {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                topic = %message.topic,
                partition = message.partition,
                offset = message.offset,
                error = %refused,
                suppressed,
                "A message was refused, and the message is not the cause; the partition waits and retries. See \
                 `error`"
            );
        }
    }

    fn passed_over(&self, message: &Message, refused: &Nack) {
        if let Some(suppressed) = self.log.admit() {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                topic = %message.topic,
                partition = message.partition,
                offset = message.offset,
                error = %refused,
                suppressed,
                "Skipped a message that was refused permanently"
            );
        }
    }
}

/// Whether a permanent refusal may be caused by the content of the message. Some servers return
/// `INTERNAL` or `UNKNOWN` for invalid data, and such a message must not stop its partition.
fn may_be_about_content(code: Code) -> bool {
    use Code::{DataLoss, Internal, InvalidArgument, OutOfRange, ResourceExhausted, Unknown};
    matches!(
        code,
        InvalidArgument | OutOfRange | ResourceExhausted | Internal | Unknown | DataLoss
    )
}

/// Adds a header's value to the resources of a request.
fn stamped(
    stamp: &Stamp,
    signal: Signal,
    value: &str,
    held: ReceivedBytes,
) -> Result<ReceivedBytes, Nack> {
    let malformed = |error| Nack::invalid(format!("malformed {signal} request: {error}"));
    let ReceivedBytes { bytes, mut permit } = held;
    let stamping = stamp
        .prepare(signal, Some(value), &bytes)
        .map_err(malformed)?;
    permit
        .grow(stamping.bytes().unwrap_or(0))
        .map_err(out_of_memory)?;
    let output = stamping.write().map_err(malformed)?;
    let bytes = output.map_or(bytes, Bytes::from);
    permit.shrink_to(bytes.len());
    Ok(ReceivedBytes { bytes, permit })
}
