//! Processing of a received body from any transport: decompress, transcode, validate, forward.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use crate::component::Outputs;
use crate::introspection::Introspection;
use crate::pipeline::account::Pending;
use crate::pipeline::batch::{Batch, Code, Metadata, Nack, metadata_bytes};
use crate::pipeline::episode::Episode;
use crate::pipeline::turns::on_a_turn;
use crate::receivers::metrics::ReceiverMetrics;
use crate::serving::body::{
    BodyRate, Bounds, OUT_OF_MEMORY, ReceivedBytes, out_of_memory, too_large,
};
use crate::serving::metadata;
use crate::serving::refusal::log_refusal;
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::Peer;
use tributary_otlp::Signal;
use tributary_otlp::stamp::Stamp;
use tributary_profiles::layout;
use tributary_profiles::layout::OldLayout;

/// State shared by both transports.
pub(super) struct Intake {
    pub(super) id: ComponentId,
    pub(super) outputs: Outputs,
    pub(super) budget: Arc<Budget>,
    pub(super) metrics: ReceiverMetrics,
    pub(super) introspection: Arc<Introspection>,
    /// Limits the log lines that a client can cause by refused requests.
    pub(super) refusals: SampledLog,
    /// Time without room in the memory budget.
    pub(super) no_memory: Episode,
    /// Adds the client's identity to the data.
    pub(super) stamp: Option<Arc<Stamp>>,
    pub(super) include_metadata: bool,
    pub(super) body_rate: BodyRate,
    /// Maximum size of a body in bytes, before and after decompression.
    pub(super) limit: usize,
    /// Key of the configuration that sets the limit.
    pub(super) limit_key: &'static str,
    /// Maximum number of items in a request.
    pub(super) max_items: usize,
}

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::receivers) enum Format {
    Protobuf,
    Json,
}

impl Intake {
    /// Returns the limits of a body.
    pub(super) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            size: self.limit,
            key: self.limit_key,
            budget: &self.budget,
        }
    }

    /// Processes a body until the pipeline's outcome is known.
    pub(super) async fn take(
        &self,
        signal: Signal,
        format: Format,
        codec: Option<Codec>,
        held: ReceivedBytes,
        metadata: Option<Arc<Metadata>>,
        peer: &Peer,
    ) -> Result<(), Nack> {
        let prepared = self.prepare(signal, format, codec, held, peer).await;
        let (items, mut held) = prepared.inspect_err(|nack| self.unreadable(signal, nack))?;
        if items == 0 {
            return Ok(());
        }
        let consumer = self
            .outputs
            .get(signal)
            .ok_or_else(|| self.unserved(signal))?;
        let kept = metadata.as_deref().map_or(0, metadata_bytes);
        held.permit
            .grow(BATCH_BYTES + kept)
            .map_err(out_of_memory)
            .inspect_err(|nack| self.unreadable(signal, nack))?;
        let bytes = held.bytes.len();
        let mut batch = Batch::new(signal, items, held.bytes);
        batch.hold(held.permit);
        batch.metadata = metadata;
        let pending = Pending::new(self.metrics.of_signal(signal), items);
        consumer.consume(batch).await?;
        pending.accepted();
        let clients = &self.introspection.clients;
        clients.accepted(peer, &self.id, signal, items, bytes);
        self.log_room();
        Ok(())
    }

    /// Counts a refusal, and logs it with the client.
    pub(super) fn refused(&self, nack: &Nack, peer: &Peer) {
        self.turned_away(peer);
        log_refusal(&self.id, &self.refusals, nack, peer);
    }

    /// Counts a refused request that is not an export request.
    pub(super) fn turned_away(&self, peer: &Peer) {
        self.metrics.refused_request(peer.identity.as_ref());
    }

    /// Counts a request that was refused before its items could be counted.
    pub(super) fn unreadable(&self, signal: Signal, nack: &Nack) {
        self.metrics.unreadable(signal);
        if nack.reason != OUT_OF_MEMORY {
            return;
        }
        // The number of items is not known; it is at least one.
        self.metrics.refused(signal, 1);
        if self.no_memory.occurs(1) {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                limit_bytes = self.budget.limit(),
                "The memory budget is used up; refusing requests until memory is free. Check the exporters' queues, \
                 or raise the limit of `memory_limiter`."
            );
        }
    }

    /// Logs that memory is available again, and the number of requests refused meanwhile.
    fn log_room(&self) {
        if let Some(ended) = self.no_memory.over() {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                lasted = ?ended.lasted,
                refused_requests = ended.times,
                "Memory is free again; accepting requests."
            );
        }
    }

    /// Returns the refusal of a signal without a pipeline.
    pub(super) fn unserved(&self, signal: Signal) -> Nack {
        Nack::permanent(
            Code::Unimplemented,
            format!(
                "this collector has no {signal} pipeline with the receiver `{}`",
                self.id
            ),
        )
    }

    /// Returns the headers to keep with a batch.
    pub(super) fn metadata(&self, headers: &HeaderMap) -> Option<Arc<Metadata>> {
        self.include_metadata.then(|| metadata::of(headers))
    }

    /// Converts the body to a valid protobuf request, and counts its items. Slow work runs on
    /// separate threads, not on the workers that serve connections, and at most once per core: more
    /// would need more memory and not be faster. A waiting request buffers only the body as sent.
    async fn prepare(
        &self,
        signal: Signal,
        format: Format,
        codec: Option<Codec>,
        mut held: ReceivedBytes,
        peer: &Peer,
    ) -> Result<(usize, ReceivedBytes), Nack> {
        let work = Work {
            signal,
            format,
            codec,
            limit: self.limit,
            limit_key: self.limit_key,
            max_items: self.max_items,
            stamp: self
                .stamp
                .clone()
                .map(|stamp| (stamp, peer.identity.clone())),
        };
        if work.is_short(held.bytes.len()) {
            let most = SHORT_OUTPUT.min(self.limit);
            match work.decompress(&mut held, most) {
                Ok(()) => return work.read(held),
                // The body is larger than its size suggested.
                Err(_) if most < self.limit => {}
                Err(error) => return Err(work.refuse(error)),
            }
        }
        // The limit per connection comes first, so that a connection with a thousand decompression
        // bombs delays only itself.
        let ending = || Nack::unavailable("the collector is shutting down");
        let _own = peer.turns.acquire().await.map_err(|_| ending())?;
        let done = on_a_turn(move || work.run(held)).await;
        done.ok_or_else(ending)?
    }
}

fn outdated(layout: OldLayout) -> Nack {
    Nack::invalid(layout.to_string())
}

/// Steps from the body as sent to the request.
pub(in crate::receivers) struct Work {
    pub(in crate::receivers) signal: Signal,
    pub(in crate::receivers) format: Format,
    pub(in crate::receivers) codec: Option<Codec>,
    pub(in crate::receivers) limit: usize,
    pub(in crate::receivers) limit_key: &'static str,
    /// Maximum number of items.
    pub(in crate::receivers) max_items: usize,
    /// Identity to add to the request, and the sender.
    pub(in crate::receivers) stamp: Option<(Arc<Stamp>, Option<Arc<str>>)>,
}

impl Work {
    /// Whether the work takes at most about a millisecond, estimated from the size of the body as
    /// sent. Telemetry compresses about 10 to 1; a body that decompresses to more than
    /// [`SHORT_OUTPUT`] is not short after all.
    fn is_short(&self, bytes: usize) -> bool {
        let longest = match (self.codec, self.format) {
            (None, Format::Protobuf) => 1 << 20,
            (None, Format::Json) => 256 << 10,
            (Some(_), _) => 32 << 10,
        };
        bytes <= longest
    }

    /// Returns the number of items and the request.
    pub(in crate::receivers) fn run(
        self,
        mut held: ReceivedBytes,
    ) -> Result<(usize, ReceivedBytes), Nack> {
        self.decompress(&mut held, self.limit)
            .map_err(|error| self.refuse(error))?;
        self.read(held)
    }

    /// Decompresses a body to at most `limit` bytes.
    fn decompress(&self, held: &mut ReceivedBytes, limit: usize) -> Result<(), DecompressError> {
        if let Some(codec) = self.codec {
            let output = decompress(codec, &held.bytes, limit, &mut held.permit)?;
            replace(held, output);
        }
        Ok(())
    }

    /// Reads a decompressed body.
    fn read(self, mut held: ReceivedBytes) -> Result<(usize, ReceivedBytes), Nack> {
        if self.format == Format::Json {
            if self.signal == Signal::Profiles {
                layout::check_json(&held.bytes).map_err(outdated)?;
            }
            self.transcode(&mut held)?;
        }
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        let checked = tributary_otlp::check(self.signal, &held.bytes);
        if self.signal == Signal::Profiles {
            // An invalid request may be valid in an old layout, which is then the reason to report.
            let recognised = match checked {
                Ok(_) => layout::check_first_samples(&held.bytes),
                Err(_) => layout::check(&held.bytes),
            };
            recognised.map_err(outdated)?;
        }
        let checked = checked.map_err(malformed)?;
        if checked.items > self.max_items {
            return Err(Nack::permanent(
                Code::ResourceExhausted,
                format!(
                    "the request has {} items, more than {}; send smaller batches or raise `max_items_per_request`",
                    checked.items, self.max_items
                ),
            ));
        }
        if checked.repeats_single {
            // No SDK writes such a request; a hostile client still gets no more memory than the
            // budget has.
            held.permit
                .grow(tributary_otlp::decoded_bytes(self.signal, &held.bytes))
                .map_err(out_of_memory)?;
            held.bytes =
                tributary_otlp::merge_repeated(self.signal, &held.bytes).map_err(malformed)?;
            held.permit.shrink_to(held.bytes.len());
        }
        if let Some((stamp, identity)) = &self.stamp
            && checked.items > 0
        {
            self.stamp(stamp, identity.as_deref(), &mut held)?;
        }
        Ok((checked.items, held))
    }

    fn stamp(
        &self,
        stamp: &Stamp,
        identity: Option<&str>,
        held: &mut ReceivedBytes,
    ) -> Result<(), Nack> {
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        let stamping = stamp
            .prepare(self.signal, identity, &held.bytes)
            .map_err(malformed)?;
        // The request and its copy exist together for a moment.
        held.permit
            .grow(stamping.bytes().unwrap_or(0))
            .map_err(out_of_memory)?;
        if let Some(output) = stamping.write().map_err(malformed)? {
            replace(held, output);
        }
        Ok(())
    }

    fn transcode(&self, held: &mut ReceivedBytes) -> Result<(), Nack> {
        let input = held.permit.bytes();
        let len = held.bytes.len();
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        // A text with escapes is decoded into a separate buffer.
        let aside = memchr::memchr(b'\\', &held.bytes).map_or(0, |_| len);
        // The output starts with half of the text's size, and both buffers exist while it grows.
        held.permit
            .grow(len + len / 2 + aside)
            .map_err(out_of_memory)?;
        let output =
            tributary_otlp::json::to_wire_within(self.signal, &held.bytes, len.max(SMALL_JSON))
                .map_err(malformed)?;
        let output = match output {
            Some(output) => output,
            None => {
                let most = self.limit.min(len.saturating_mul(PACKED_BYTES_PER_BYTE));
                held.permit
                    .grow((2 * most).saturating_sub(len))
                    .map_err(out_of_memory)?;
                tributary_otlp::json::to_wire_within(self.signal, &held.bytes, most)
                    .map_err(malformed)?
                    .ok_or_else(|| too_large(self.limit, self.limit_key))?
            }
        };
        let needed = input.saturating_add(output.capacity());
        held.permit
            .grow(needed.saturating_sub(held.permit.bytes()))
            .map_err(out_of_memory)?;
        held.permit.shrink_to(needed);
        replace(held, output);
        Ok(())
    }

    fn refuse(&self, error: DecompressError) -> Nack {
        match error {
            DecompressError::TooLarge(limit) => too_large(limit, self.limit_key),
            DecompressError::NoMemory(no_room) => out_of_memory(no_room),
            DecompressError::Corrupt(reason) => Nack::invalid(reason),
        }
    }
}

/// Minimum output limit for JSON, in bytes: below it, the size of the text does not matter.
const SMALL_JSON: usize = 1 << 10;
/// Growth of packed numbers: `0,` in JSON takes eight bytes in protobuf.
const PACKED_BYTES_PER_BYTE: usize = 4;
/// Maximum output, in bytes, of a short body.
const SHORT_OUTPUT: usize = 1 << 20;
/// Memory of a request besides its bytes: the batch, its permit, and an entry in a queue. A request
/// of one empty span has six bytes; without this charge, a flood of such requests would use forty
/// times the budget.
const BATCH_BYTES: usize = 512;

/// Replaces a body by `output`, for which the permit has grown.
fn replace(held: &mut ReceivedBytes, output: Vec<u8>) {
    let capacity = output.capacity();
    held.bytes = Bytes::from(output);
    held.permit.shrink_to(capacity);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use prost::Message;

    use super::*;

    /// Stamps a request of one record within this budget.
    fn stamped(budget: &Arc<Budget>) -> Result<ReceivedBytes, Nack> {
        let scope = ScopeLogs {
            log_records: vec![LogRecord::default()],
            ..ScopeLogs::default()
        };
        let request = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                scope_logs: vec![scope],
                ..ResourceLogs::default()
            }],
        };
        let bytes = Bytes::from(request.encode_to_vec());
        let permit = budget.acquire(bytes.len()).unwrap();
        let work = Work {
            signal: Signal::Logs,
            format: Format::Protobuf,
            codec: None,
            limit: 1000,
            limit_key: "a key",
            max_items: 1,
            stamp: Some((Arc::new(Stamp::new("who")), Some(Arc::from("me")))),
        };
        work.run(ReceivedBytes { bytes, permit })
            .map(|(items, held)| {
                assert_eq!(items, 1);
                held
            })
    }

    #[test]
    fn stamped_request_is_in_the_memory_budget() {
        let budget = Budget::new(1000);
        let held = stamped(&budget).unwrap();
        assert_eq!(held.permit.bytes(), held.bytes.len());
        assert_eq!(budget.used(), held.bytes.len());
        // The budget has no room for the request and its copy.
        let budget = Budget::new(held.bytes.len());
        let refused = stamped(&budget).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(budget.used(), 0);
    }
}
