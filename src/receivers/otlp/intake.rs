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
use crate::receivers::span_translation::translate_body;
use crate::serving::body::{
    BodyRate, Bounds, OUT_OF_MEMORY, ReceivedBytes, out_of_memory, too_large,
};
use crate::serving::metadata;
use crate::serving::refusal::log_refusal;
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_config::{ComponentId, Section};
use tributary_memory::Budget;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::Peer;
use tributary_net::tls::ServerTls;
use tributary_otlp::Signal;
use tributary_otlp::stamp::Stamp;
use tributary_profiles::layout;
use tributary_profiles::layout::OldLayout;
use tributary_span_formats::SpanFormat;

/// State shared by both transports.
pub(in crate::receivers) struct Intake {
    pub(in crate::receivers) id: ComponentId,
    pub(in crate::receivers) outputs: Outputs,
    pub(in crate::receivers) budget: Arc<Budget>,
    pub(in crate::receivers) metrics: ReceiverMetrics,
    pub(in crate::receivers) introspection: Arc<Introspection>,
    /// Limits the log lines that a client can cause by refused requests.
    pub(in crate::receivers) refusals: SampledLog,
    /// Episode without room in the memory budget.
    pub(in crate::receivers) no_memory: Episode,
    /// Adds the client's identity to the data.
    pub(in crate::receivers) stamp: Option<Arc<Stamp>>,
    pub(in crate::receivers) include_metadata: bool,
    pub(in crate::receivers) body_rate: BodyRate,
    /// Maximum size of a body in bytes, before and after decompression.
    pub(in crate::receivers) limit: usize,
    /// Key of the configuration that sets the limit.
    pub(in crate::receivers) limit_key: &'static str,
    /// Maximum number of items in a request.
    pub(in crate::receivers) max_items: usize,
}

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::receivers) enum Format {
    Protobuf,
    Json,
    /// Spans of another schema, which become OTLP; the flag is `parse_string_tags`.
    Spans(SpanFormat, bool),
}

impl Intake {
    /// Returns the limits of a body.
    pub(in crate::receivers) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            size: self.limit,
            key: self.limit_key,
            budget: &self.budget,
        }
    }

    /// Processes a body until the pipeline's outcome is known.
    pub(in crate::receivers) async fn take(
        &self,
        signal: Signal,
        format: Format,
        codec: Option<Codec>,
        body: ReceivedBytes,
        metadata: Option<Arc<Metadata>>,
        peer: &Peer,
    ) -> Result<(), Nack> {
        let prepared = self.prepare(signal, format, codec, body, peer).await;
        let (items, mut body) = prepared.inspect_err(|nack| self.unreadable(signal, nack))?;
        if items == 0 {
            return Ok(());
        }
        let consumer = self
            .outputs
            .get(signal)
            .ok_or_else(|| self.unserved(signal))?;
        let kept = metadata.as_deref().map_or(0, metadata_bytes);
        body.permit
            .grow(BATCH_BYTES + kept)
            .map_err(out_of_memory)
            .inspect_err(|nack| self.unreadable(signal, nack))?;
        let bytes = body.bytes.len();
        let mut batch = Batch::new(signal, items, body.bytes);
        batch.hold(body.permit);
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
    pub(in crate::receivers) fn refused(&self, nack: &Nack, peer: &Peer) {
        self.refused_request(peer);
        log_refusal(&self.id, &self.refusals, nack, peer);
    }

    /// Counts a refused request that is not an export request.
    pub(in crate::receivers) fn refused_request(&self, peer: &Peer) {
        self.metrics.refused_request(peer.identity.as_ref());
    }

    /// Counts a request that was refused before its items could be counted.
    pub(in crate::receivers) fn unreadable(&self, signal: Signal, nack: &Nack) {
        self.metrics.unreadable(signal);
        if nack.reason != OUT_OF_MEMORY {
            return;
        }
        // The number of items is unknown, but at least one.
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

    /// Logs that memory is available again, with the number of refused requests.
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
    pub(in crate::receivers) fn unserved(&self, signal: Signal) -> Nack {
        Nack::permanent(
            Code::Unimplemented,
            format!(
                "this collector has no {signal} pipeline with the receiver `{}`",
                self.id
            ),
        )
    }

    /// Returns the headers to keep with a batch.
    pub(in crate::receivers) fn metadata(&self, headers: &HeaderMap) -> Option<Arc<Metadata>> {
        self.include_metadata.then(|| metadata::of(headers))
    }

    /// Converts the body to a valid protobuf request, and counts its items. Slow work runs on a turn
    /// (see `turns`), off the threads that serve connections. While it waits for a turn, a request
    /// buffers only the body as sent.
    async fn prepare(
        &self,
        signal: Signal,
        format: Format,
        codec: Option<Codec>,
        mut body: ReceivedBytes,
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
        if work.is_short(body.bytes.len()) {
            let max = SHORT_OUTPUT.min(self.limit);
            match work.decompress(&mut body, max) {
                Ok(()) => return work.read(body),
                // The body is larger than its size suggested.
                Err(_) if max < self.limit => {}
                Err(error) => return Err(work.refuse(error)),
            }
        }
        // The limit per connection comes first, so that a connection with a thousand decompression
        // bombs delays only itself.
        let ending = || Nack::unavailable("the collector is shutting down");
        let _own = peer.turns.acquire().await.map_err(|_| ending())?;
        let done = on_a_turn(move || work.run(body)).await;
        done.ok_or_else(ending)?
    }
}

/// Returns the stamp for the client's identity, if the settings of a server ask for one.
pub(in crate::receivers) fn identity_stamp(tls: &Section<ServerTls>) -> Option<Arc<Stamp>> {
    let key = &(**tls).as_ref()?.client_identity_attribute;
    (!key.is_empty()).then(|| Arc::new(Stamp::new(key)))
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
    /// Whether the work probably takes at most about a millisecond, estimated from the size of the
    /// body as sent. Telemetry compresses about 10 to 1. A body that decompresses to more than
    /// [`SHORT_OUTPUT`] is moved to a turn.
    fn is_short(&self, bytes: usize) -> bool {
        let longest = match (self.codec, self.format) {
            (None, Format::Protobuf) => 1 << 20,
            (None, Format::Json | Format::Spans(..)) => 256 << 10,
            (Some(_), _) => 32 << 10,
        };
        bytes <= longest
    }

    /// Returns the number of items and the request.
    pub(in crate::receivers) fn run(
        self,
        mut body: ReceivedBytes,
    ) -> Result<(usize, ReceivedBytes), Nack> {
        self.decompress(&mut body, self.limit)
            .map_err(|error| self.refuse(error))?;
        self.read(body)
    }

    /// Decompresses a body to at most `limit` bytes.
    fn decompress(&self, body: &mut ReceivedBytes, limit: usize) -> Result<(), DecompressError> {
        if let Some(codec) = self.codec {
            let output = decompress(codec, &body.bytes, limit, &mut body.permit)?;
            replace(body, output);
        }
        Ok(())
    }

    fn read(self, mut body: ReceivedBytes) -> Result<(usize, ReceivedBytes), Nack> {
        if self.format == Format::Json {
            if self.signal == Signal::Profiles {
                layout::check_json(&body.bytes).map_err(outdated)?;
            }
            self.transcode(&mut body)?;
        }
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        if let Format::Spans(format, parse_string_tags) = self.format {
            translate_body(format, parse_string_tags, &mut body)?;
        }
        let checked = tributary_otlp::check(self.signal, &body.bytes);
        if self.signal == Signal::Profiles {
            // If an invalid request is valid in an old layout, report the old layout.
            let recognised = match checked {
                Ok(_) => layout::check_first_samples(&body.bytes),
                Err(_) => layout::check(&body.bytes),
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
            // No SDK writes such a request, but a hostile client must not exceed the budget.
            body.permit
                .grow(tributary_otlp::decoded_bytes(self.signal, &body.bytes))
                .map_err(out_of_memory)?;
            body.bytes =
                tributary_otlp::merge_repeated(self.signal, &body.bytes).map_err(malformed)?;
            body.permit.shrink_to(body.bytes.len());
        }
        if let Some((stamp, identity)) = &self.stamp
            && checked.items > 0
        {
            self.stamp(stamp, identity.as_deref(), &mut body)?;
        }
        Ok((checked.items, body))
    }

    fn stamp(
        &self,
        stamp: &Stamp,
        identity: Option<&str>,
        body: &mut ReceivedBytes,
    ) -> Result<(), Nack> {
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        let stamping = stamp
            .prepare(self.signal, identity, &body.bytes)
            .map_err(malformed)?;
        // The request and its copy exist at the same time.
        body.permit
            .grow(stamping.bytes().unwrap_or(0))
            .map_err(out_of_memory)?;
        if let Some(output) = stamping.write().map_err(malformed)? {
            replace(body, output);
        }
        Ok(())
    }

    fn transcode(&self, body: &mut ReceivedBytes) -> Result<(), Nack> {
        let input = body.permit.bytes();
        let len = body.bytes.len();
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        // A text with escapes is decoded into a separate buffer.
        let unescaped_bytes = memchr::memchr(b'\\', &body.bytes).map_or(0, |_| len);
        // The output starts with half of the text's size. While the output grows, its old and new
        // buffers exist at the same time.
        body.permit
            .grow(len + len / 2 + unescaped_bytes)
            .map_err(out_of_memory)?;
        let output =
            tributary_otlp::json::to_wire_within(self.signal, &body.bytes, len.max(SMALL_JSON))
                .map_err(malformed)?;
        let output = match output {
            Some(output) => output,
            None => {
                let max = self.limit.min(len.saturating_mul(PACKED_BYTES_PER_BYTE));
                body.permit
                    .grow((2 * max).saturating_sub(len))
                    .map_err(out_of_memory)?;
                tributary_otlp::json::to_wire_within(self.signal, &body.bytes, max)
                    .map_err(malformed)?
                    .ok_or_else(|| too_large(self.limit, self.limit_key))?
            }
        };
        let needed = input.saturating_add(output.capacity());
        body.permit
            .grow(needed.saturating_sub(body.permit.bytes()))
            .map_err(out_of_memory)?;
        body.permit.shrink_to(needed);
        replace(body, output);
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

/// Minimum output limit for JSON in bytes, for short texts.
const SMALL_JSON: usize = 1 << 10;
/// Maximum growth of packed numbers: `0,` in JSON takes eight bytes in protobuf.
const PACKED_BYTES_PER_BYTE: usize = 4;
/// Maximum output, in bytes, of a short body.
const SHORT_OUTPUT: usize = 1 << 20;
/// Memory of a request in addition to its bytes: the batch, its permit, and an entry in a queue. A
/// request of one empty span has six bytes. Without this charge, a flood of such requests would use
/// forty times the budget.
const BATCH_BYTES: usize = 512;

/// Replaces a body by `output`, for which the permit has grown.
fn replace(body: &mut ReceivedBytes, output: Vec<u8>) {
    let capacity = output.capacity();
    body.bytes = Bytes::from(output);
    body.permit.shrink_to(capacity);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use prost::Message;

    use super::*;

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
            .map(|(items, body)| {
                assert_eq!(items, 1);
                body
            })
    }

    #[test]
    fn stamped_request_is_in_the_memory_budget() {
        let budget = Budget::new(1000);
        let body = stamped(&budget).unwrap();
        assert_eq!(body.permit.bytes(), body.bytes.len());
        assert_eq!(budget.used(), body.bytes.len());
        // The budget has no room for the request and its copy.
        let budget = Budget::new(body.bytes.len());
        let refused = stamped(&budget).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(budget.used(), 0);
    }
}
