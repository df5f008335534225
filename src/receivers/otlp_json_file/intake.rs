//! Processing of a record: decompress, detect the signal, decode, forward.

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, counter};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

use super::config::{Config, InputCompression, InputFormat};
use super::tail::Record;
use crate::component::{BuildContext, Outputs};
use crate::pipeline::batch::{Batch, Nack};
use crate::receivers::metrics::ReceiverMetrics;
use crate::receivers::otlp::intake::{Format as Encoding, Work};
use crate::serving::body::{ReceivedBytes, out_of_memory, too_large};
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;

/// Entry to the pipelines.
pub(super) struct Intake {
    id: ComponentId,
    outputs: Outputs,
    budget: Arc<Budget>,
    metrics: ReceiverMetrics,
    /// Counter `tributary_receiver_file_skipped_records`.
    skipped: Counter,
    log: SampledLog,
    reading: Reading,
}

/// Rules for decoding records.
#[derive(Debug, Clone, Copy)]
struct Reading {
    is_compressed: bool,
    limit: usize,
    /// Signal of all records, if the encoding does not contain it.
    signal: Option<Signal>,
}

/// Outcome of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The record was accepted, or can never be accepted.
    Done,
    /// The record may be accepted after this delay.
    Later(Duration),
}

impl Intake {
    pub(super) fn new(config: &Config, cx: &BuildContext, outputs: Outputs) -> Self {
        let signal = match config.format {
            InputFormat::Json => None,
            InputFormat::Proto => outputs.signals().next(),
        };
        Intake {
            id: cx.id.clone(),
            budget: cx.budget.clone(),
            metrics: ReceiverMetrics::new(&cx.id, "file"),
            skipped: counter!(
                "tributary_receiver_file_skipped_records",
                "receiver" => cx.id.to_string()
            ),
            log: SampledLog::default(),
            reading: Reading {
                is_compressed: config.compression == InputCompression::Zstd,
                limit: config.max_log_size.as_usize(),
                signal,
            },
            outputs,
        }
    }

    /// Processes a record until the pipeline's outcome is known.
    pub(super) async fn take(&self, path: &Path, record: &Record) -> Verdict {
        let refused = match self.hand_on(record).await {
            Ok(()) => return Verdict::Done,
            Err(refused) => refused,
        };
        if refused.retryable {
            debug!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                path = %path.display(),
                record = record.number,
                error = %refused,
                "Cannot deliver a record; retrying"
            );
            return Verdict::Later(refused.retry_after.unwrap_or(RETRY_AFTER));
        }
        self.skipped.increment(1);
        if let Some(suppressed) = self.log.admit() {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                path = %path.display(),
                record = record.number,
                offset = record.offset,
                error = %refused,
                suppressed,
                "Skipped a record"
            );
        }
        Verdict::Done
    }

    async fn hand_on(&self, record: &Record) -> Result<(), Nack> {
        let limit = self.reading.limit;
        let Some(bytes) = record.content.clone() else {
            return Err(too_large(limit, LIMIT_KEY));
        };
        if bytes.trim_ascii().is_empty() && self.reading.signal.is_none() {
            return Ok(());
        }
        let permit = self.budget.acquire(bytes.len()).map_err(out_of_memory)?;
        let (held, reading) = (ReceivedBytes { bytes, permit }, self.reading);
        let read = match held.bytes.len() > SHORT || reading.is_compressed {
            false => reading.read(held),
            true => spawn_blocking(move || reading.read(held))
                .await
                .unwrap_or_else(|_| Err(Nack::unavailable("the collector is shutting down"))),
        };
        let Some((signal, items, held)) = read? else {
            return Ok(());
        };
        // A file may contain other signals for other receivers.
        let Some(consumer) = self.outputs.get(signal).filter(|_| items > 0) else {
            return Ok(());
        };
        let mut batch = Batch::new(signal, items, held.bytes);
        batch.hold(held.permit);
        let outcome = consumer.consume(batch).await;
        match &outcome {
            Ok(()) => self.metrics.accepted(signal, items),
            Err(_) => self.metrics.refused(signal, items),
        }
        outcome
    }
}

impl Reading {
    /// Decodes a record. Returns the signal, the number of items and the request, or `None` for an
    /// empty record.
    fn read(self, mut held: ReceivedBytes) -> Result<Option<(Signal, usize, ReceivedBytes)>, Nack> {
        if self.is_compressed {
            let output = decompress(Codec::Zstd, &held.bytes, self.limit, &mut held.permit)
                .map_err(|error| match error {
                    DecompressError::TooLarge(limit) => too_large(limit, LIMIT_KEY),
                    DecompressError::NoMemory(no_room) => out_of_memory(no_room),
                    DecompressError::Corrupt(reason) => Nack::invalid(reason),
                })?;
            held.permit.shrink_to(output.capacity());
            held.bytes = output.into();
        }
        let (signal, format) = match self.signal {
            Some(signal) => (signal, Encoding::Protobuf),
            None => match signal_of(&held.bytes)? {
                Some(signal) => (signal, Encoding::Json),
                None => return Ok(None),
            },
        };
        let work = Work {
            signal,
            format,
            codec: None,
            limit: self.limit,
            limit_key: LIMIT_KEY,
            // No limit: the line is the only copy of its data, and its size is limited.
            max_items: usize::MAX,
            stamp: None,
        };
        let (items, held) = work.run(held)?;
        Ok(Some((signal, items, held)))
    }
}

/// Returns the signal of an OTLP/JSON request according to its keys, or `None` for an empty request.
/// The values are skipped and parsed later, by the decoder of the signal.
fn signal_of(json: &[u8]) -> Result<Option<Signal>, Nack> {
    let signal = Cell::new(None);
    let read = serde_json::Deserializer::from_slice(json).deserialize_map(Keys(&signal));
    match (signal.get(), read) {
        (Some(signal), _) => Ok(Some(signal)),
        (None, Ok(None)) => Ok(None),
        (None, Ok(Some(key))) => Err(Nack::invalid(format!(
            "not an OTLP/JSON request: it has `{key}` and none of resourceSpans, \
             resourceMetrics, resourceLogs and resourceProfiles"
        ))),
        (None, Err(error)) => Err(Nack::invalid(format!("not an OTLP/JSON request: {error}"))),
    }
}

/// Visitor that reads keys until a key names the signal.
struct Keys<'c>(&'c Cell<Option<Signal>>);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        let mut other = None;
        while let Some(key) = map.next_key::<String>()? {
            let signal = match key.as_str() {
                "resourceSpans" | "resource_spans" => Signal::Traces,
                "resourceMetrics" | "resource_metrics" => Signal::Metrics,
                "resourceLogs" | "resource_logs" => Signal::Logs,
                "resourceProfiles" | "resource_profiles" | "dictionary" => Signal::Profiles,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    other.get_or_insert(key);
                    continue;
                }
            };
            self.0.set(Some(signal));
            return Err(serde::de::Error::custom("the signal is known"));
        }
        Ok(other)
    }
}

const LIMIT_KEY: &str = "max_log_size";
/// Retry delay after a refusal without a retry delay.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Size in bytes up to which decoding runs in place, because it takes at most about a millisecond.
const SHORT: usize = 256 << 10;
