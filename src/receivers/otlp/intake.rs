//! What happens to a body after it was read, whichever way it came: decompress, transcode, validate, hand on.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use crate::component::Outputs;
use crate::pipeline::batch::{Batch, Code, Metadata, Nack, metadata_bytes};
use crate::pipeline::episode::Episode;
use crate::pipeline::turns::on_a_turn;
use crate::receivers::metrics::ReceiverMetrics;
use crate::serving::body::{Bounds, Held, OUT_OF_MEMORY, Pace, out_of_memory, too_large};
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

/// The common part of both transports.
pub(super) struct Intake {
    pub(super) id: ComponentId,
    pub(super) outputs: Outputs,
    pub(super) budget: Arc<Budget>,
    pub(super) metrics: ReceiverMetrics,
    /// Limits what a client can write into the log by being refused.
    pub(super) refusals: SampledLog,
    /// The memory budget is used up.
    pub(super) no_memory: Episode,
    /// Puts the client's identity on what it sends.
    pub(super) stamp: Option<Arc<Stamp>>,
    pub(super) include_metadata: bool,
    pub(super) pace: Pace,
    /// Largest body in bytes, before and after decompression.
    pub(super) limit: usize,
    /// The key of the configuration that sets the limit.
    pub(super) limit_key: &'static str,
}

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::receivers) enum Format {
    Protobuf,
    Json,
}

impl Intake {
    /// What a body may be.
    pub(super) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            size: self.limit,
            key: self.limit_key,
            budget: &self.budget,
        }
    }

    /// Takes a body all the way to the pipeline's answer.
    pub(super) async fn take(
        &self,
        signal: Signal,
        format: Format,
        codec: Option<Codec>,
        held: Held,
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
        let mut batch = Batch::new(signal, items, held.bytes);
        batch.hold(held.permit);
        batch.metadata = metadata;
        let counted = Counted {
            metrics: &self.metrics,
            signal,
            items,
            accepted: false,
        };
        let result = consumer.consume(batch).await;
        counted.end(result.is_ok());
        if result.is_ok() {
            self.log_room();
        }
        result
    }

    /// Counts an answer that is a refusal, and says who got it.
    pub(super) fn refused(&self, nack: &Nack, peer: &Peer) {
        self.turned_away(peer);
        log_refusal(&self.id, &self.refusals, nack, peer);
    }

    /// Counts a refusal of what is no request for telemetry.
    pub(super) fn turned_away(&self, peer: &Peer) {
        self.metrics.refused_request(peer.identity.as_ref());
    }

    /// Counts a request that was refused before its items could be counted.
    pub(super) fn unreadable(&self, signal: Signal, nack: &Nack) {
        self.metrics.unreadable(signal);
        if nack.reason != OUT_OF_MEMORY {
            return;
        }
        // Nobody knows how many items it has: one at least.
        self.metrics.refused(signal, 1);
        if self.no_memory.occurs(1) {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                limit_bytes = self.budget.limit(),
                "The memory budget is used up. Requests are refused until there is room: check the exporters' queues, \
                 or raise the limit of `memory_limiter`."
            );
        }
    }

    /// Says that there is memory again, and what it cost that there was none.
    fn log_room(&self) {
        if let Some(ended) = self.no_memory.over() {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                lasted = ?ended.lasted,
                refused_requests = ended.times,
                "The memory budget has room again."
            );
        }
    }

    /// The refusal of a signal without a pipeline.
    pub(super) fn unserved(&self, signal: Signal) -> Nack {
        Nack::permanent(
            Code::Unimplemented,
            format!(
                "no {signal} pipeline of this collector has the receiver `{}`",
                self.id
            ),
        )
    }

    /// The headers to keep with a batch.
    pub(super) fn metadata(&self, headers: &HeaderMap) -> Option<Arc<Metadata>> {
        self.include_metadata.then(|| metadata::of(headers))
    }

    /// Makes a valid protobuf request of the body, and counts its items. What takes long is done off the workers that
    /// serve connections, by as many threads as there are cores: more would need more memory, and be no faster. Who
    /// waits for a turn holds no more than the body as sent.
    async fn prepare(
        &self,
        signal: Signal,
        format: Format,
        codec: Option<Codec>,
        mut held: Held,
        peer: &Peer,
    ) -> Result<(usize, Held), Nack> {
        let work = Work {
            signal,
            format,
            codec,
            limit: self.limit,
            limit_key: self.limit_key,
            stamp: self
                .stamp
                .clone()
                .map(|stamp| (stamp, peer.identity.clone())),
        };
        if work.is_short(held.bytes.len()) {
            let Some(codec) = codec else {
                return work.read(held);
            };
            let most = SHORT_OUTPUT.min(self.limit);
            match decompress(codec, &held.bytes, most, &mut held.permit) {
                Ok(output) => return work.read(replace(held, output)),
                // It was not what it looked like.
                Err(_) if most < self.limit => {}
                Err(error) => return Err(work.refuse(error)),
            }
        }
        // A connection's own turns first: one that brings a thousand bombs waits behind itself.
        let ending = || Nack::unavailable("the collector is shutting down");
        let _own = peer.turns.acquire().await.map_err(|_| ending())?;
        let done = on_a_turn(move || work.run(held)).await;
        done.ok_or_else(ending)?
    }
}

fn outdated(layout: OldLayout) -> Nack {
    Nack::invalid(layout.to_string())
}

/// Everything between the body as sent and the request.
pub(in crate::receivers) struct Work {
    pub(in crate::receivers) signal: Signal,
    pub(in crate::receivers) format: Format,
    pub(in crate::receivers) codec: Option<Codec>,
    pub(in crate::receivers) limit: usize,
    pub(in crate::receivers) limit_key: &'static str,
    /// What to put on the request, and who sent it.
    pub(in crate::receivers) stamp: Option<(Arc<Stamp>, Option<Arc<str>>)>,
}

impl Work {
    /// Whether it takes about a millisecond at most, judged by the size of the body as sent. Telemetry compresses
    /// about 10 to 1; what unpacks to more than [`SHORT_OUTPUT`] is not short after all.
    fn is_short(&self, bytes: usize) -> bool {
        let longest = match (self.codec, self.format) {
            (None, Format::Protobuf) => 1 << 20,
            (None, Format::Json) => 256 << 10,
            (Some(_), _) => 32 << 10,
        };
        bytes <= longest
    }

    /// The request, and how many items it has.
    pub(in crate::receivers) fn run(self, mut held: Held) -> Result<(usize, Held), Nack> {
        if let Some(codec) = self.codec {
            let output = decompress(codec, &held.bytes, self.limit, &mut held.permit)
                .map_err(|error| self.refuse(error))?;
            held = replace(held, output);
        }
        self.read(held)
    }

    /// Reads what is not, or no longer, compressed.
    fn read(self, mut held: Held) -> Result<(usize, Held), Nack> {
        if self.format == Format::Json {
            if self.signal == Signal::Profiles {
                layout::recognise_json(&held.bytes).map_err(outdated)?;
            }
            held = self.transcode(held)?;
        }
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        let checked = tributary_otlp::check(self.signal, &held.bytes);
        if self.signal == Signal::Profiles {
            // What is not valid may well be valid in an old layout, and then that is what is wrong with it.
            let recognised = match checked {
                Ok(_) => layout::glance(&held.bytes),
                Err(_) => layout::recognise(&held.bytes),
            };
            recognised.map_err(outdated)?;
        }
        let checked = checked.map_err(malformed)?;
        if checked.repeats_single {
            // No SDK writes this; a hostile client gets no more memory by it than the budget has.
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
            held = self.stamped(stamp, identity.as_deref(), held)?;
        }
        Ok((checked.items, held))
    }

    fn stamped(&self, stamp: &Stamp, identity: Option<&str>, held: Held) -> Result<Held, Nack> {
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        let Held { bytes, mut permit } = held;
        let stamping = stamp
            .prepare(self.signal, identity, &bytes)
            .map_err(malformed)?;
        // The request and its copy are both there for a moment.
        permit
            .grow(stamping.bytes().unwrap_or(0))
            .map_err(out_of_memory)?;
        let output = stamping.write().map_err(malformed)?;
        let held = Held { bytes, permit };
        Ok(match output {
            Some(output) => replace(held, output),
            None => held,
        })
    }

    fn transcode(&self, mut held: Held) -> Result<Held, Nack> {
        let input = held.permit.bytes();
        let len = held.bytes.len();
        let malformed =
            |error| Nack::invalid(format!("malformed {} request: {error}", self.signal));
        // A text with escapes is put together aside.
        let aside = memchr::memchr(b'\\', &held.bytes).map_or(0, |_| len);
        // The output begins with half of the text's size, and old and new place are held while it moves.
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
        Ok(replace(held, output))
    }

    fn refuse(&self, error: DecompressError) -> Nack {
        match error {
            DecompressError::TooLarge(limit) => too_large(limit, self.limit_key),
            DecompressError::NoMemory(no_room) => out_of_memory(no_room),
            DecompressError::Corrupt(reason) => Nack::invalid(reason),
        }
    }
}

/// Below this the size of JSON does not matter.
const SMALL_JSON: usize = 1 << 10;
/// `0,` in JSON, eight bytes in protobuf.
const PACKED_BYTES_PER_BYTE: usize = 4;
/// What a short body may unpack to.
const SHORT_OUTPUT: usize = 1 << 20;
/// What a request costs on its way besides its bytes: the batch, its permit, and an entry in a queue. A request of one
/// empty span has six bytes; without this a flood of them would hold forty times what the budget says.
const BATCH_BYTES: usize = 512;

/// Puts `output`, for which the permit has grown, in the place of what it was made from.
fn replace(held: Held, output: Vec<u8>) -> Held {
    let Held { bytes, mut permit } = held;
    drop(bytes);
    permit.shrink_to(output.capacity());
    Held {
        bytes: Bytes::from(output),
        permit,
    }
}

/// Counts items as refused unless they were accepted: an answer that never came, because the client's deadline passed
/// or it went away, is no acceptance.
struct Counted<'a> {
    metrics: &'a ReceiverMetrics,
    signal: Signal,
    items: usize,
    accepted: bool,
}

impl Counted<'_> {
    fn end(mut self, accepted: bool) {
        self.accepted = accepted;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.accepted {
            self.metrics.accepted(self.signal, self.items);
        } else {
            self.metrics.refused(self.signal, self.items);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use prost::Message;

    use super::*;

    /// Stamps a request of one record within that budget.
    fn stamped(budget: &Arc<Budget>) -> Result<Held, Nack> {
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
            stamp: Some((Arc::new(Stamp::new("who")), Some(Arc::from("me")))),
        };
        work.run(Held { bytes, permit }).map(|(items, held)| {
            assert_eq!(items, 1);
            held
        })
    }

    #[test]
    fn a_stamp_is_in_the_memory_budget_while_it_is_made_and_afterwards() {
        let budget = Budget::new(1000);
        let held = stamped(&budget).unwrap();
        assert_eq!(held.permit.bytes(), held.bytes.len());
        assert_eq!(budget.used(), held.bytes.len());
        // The request and its copy do not fit together.
        let budget = Budget::new(held.bytes.len());
        let refused = stamped(&budget).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(budget.used(), 0);
    }
}
