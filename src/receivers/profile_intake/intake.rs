//! Processing of a pprof file from any source: decompress, convert, count, forward.

use std::sync::Arc;

use bytes::Bytes;

use super::convert::{Converted, Refused};
use super::convert::{RETRY_AFTER, Rules, convert, refuse};
use super::origin::Origin;
use super::repairs::Repaired;
use crate::pipeline::Consumer;
use crate::pipeline::account::Pending;
use crate::pipeline::batch::{Batch, Code, Metadata, Nack};
use crate::pipeline::turns;
use crate::receivers::metrics::ReceiverMetrics;
/// A file, with or without gzip, and its memory permit.
pub(crate) use crate::serving::body::ReceivedBytes;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_otlp::Signal;
use tributary_profile_formats::FormatError;
use tributary_profiles::pprof::{ReadOptions, Repairs};

/// Entry to the pipeline, shared by all sections of the receiver. Clones refer to the same intake.
#[derive(Clone)]
pub(crate) struct Intake {
    /// Next stage of the pipeline.
    pub(crate) consumer: Arc<dyn Consumer>,
    /// Memory budget.
    pub(crate) budget: Arc<Budget>,
    /// Counters of accepted, refused and unreadable data.
    pub(crate) metrics: ReceiverMetrics,
    pub(crate) repaired: Repaired,
    /// Maximum size of a file in bytes, both as received and after decompression.
    pub(crate) limit: usize,
    /// Key of the configuration that sets the limit.
    pub(crate) limit_key: &'static str,
    /// Treatment of labels and of the original file.
    options: ReadOptions,
}

/// Result of an accepted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Number of profiles: one for each sample type.
    pub(crate) profiles: usize,
    /// Number of samples. If there are none, nothing was forwarded.
    pub(crate) samples: usize,
}

/// Converts a refusal for the client that sent the file.
impl From<Refused> for Nack {
    fn from(refused: Refused) -> Nack {
        let reason = refused.to_string();
        match refused {
            Refused::Unreadable(_) => Nack::invalid(format!("not a usable pprof file: {reason}")),
            Refused::Malformed(reason) => Nack::invalid(reason),
            Refused::Unusable(FormatError::TooLarge { .. }) | Refused::TooLarge(..) => {
                Nack::permanent(Code::ResourceExhausted, reason)
            }
            Refused::Unusable(_) => Nack::invalid(reason),
            Refused::NoRoom(no_room) if no_room.may_fit_later() => Nack::exhausted(
                "the memory budget of this collector is used up; try again later",
                RETRY_AFTER,
            ),
            Refused::NoRoom(_) => Nack::permanent(
                Code::ResourceExhausted,
                format!("{reason}; send smaller profiles, or raise the limit of `memory_limiter`"),
            ),
            Refused::Pipeline(nack) => nack,
            Refused::ShuttingDown => Nack::unavailable(reason),
        }
    }
}

impl Intake {
    /// Creates the intake of the receiver `id` for data received over `transport`, with files of at
    /// most `limit` bytes, which the key `limit_key` sets.
    pub(crate) fn new(
        id: &ComponentId,
        consumer: Arc<dyn Consumer>,
        budget: Arc<Budget>,
        transport: &'static str,
        limit: usize,
        limit_key: &'static str,
    ) -> Self {
        Intake {
            consumer,
            budget,
            metrics: ReceiverMetrics::of(id, transport, &[Signal::Profiles]),
            repaired: Repaired::new(id),
            limit,
            limit_key,
            options: ReadOptions::default(),
        }
    }

    /// Sets the conversion options of a configuration, except for the limit.
    pub(crate) fn converting(mut self, options: ReadOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the rules for reading a file.
    pub(crate) fn rules(&self, keep_original: bool) -> Rules {
        Rules {
            options: ReadOptions {
                limit: self.limit,
                links: self.options.links.clone(),
                keep_original,
                lenient: self.options.lenient,
            },
            limit_key: self.limit_key,
        }
    }

    /// Processes a file until the pipeline's outcome is known.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(crate) async fn take(
        &self,
        held: ReceivedBytes,
        origin: Origin,
    ) -> Result<Accepted, Refused> {
        let converted = self.convert(held, origin).await?;
        self.hand_on(converted).await
    }

    /// Converts a file. The caller may change the profiles before it [forwards](Self::hand_on)
    /// them.
    ///
    /// Conversion runs on a turn (see `turns`), off the threads that serve connections. A waiting
    /// caller buffers only the file as received.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(crate) async fn convert(
        &self,
        held: ReceivedBytes,
        origin: Origin,
    ) -> Result<Converted, Refused> {
        self.convert_with(move |rules| convert(held, &origin, rules))
            .await
    }

    /// Converts files with `work`, which gets the rules for reading a file, on a turn.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(crate) async fn convert_with(
        &self,
        work: impl FnOnce(&Rules) -> Result<(Converted, Repairs), Refused> + Send + 'static,
    ) -> Result<Converted, Refused> {
        let rules = self.rules(self.options.keep_original);
        let converted = on_a_turn(move || work(&rules)).await;
        match converted.and_then(std::convert::identity) {
            Ok((converted, repairs)) => {
                self.repaired.count(repairs);
                Ok(converted)
            }
            Err(refused) => {
                self.not_converted(&refused);
                Err(refused)
            }
        }
    }

    /// Counts a file that can never be converted. A file refused for lack of memory does not count
    /// as unreadable: a scrape counts it as dropped, the server as refused.
    pub(crate) fn not_converted(&self, refused: &Refused) {
        let never = matches!(
            refused,
            Refused::Unreadable(_)
                | Refused::Malformed(_)
                | Refused::Unusable(_)
                | Refused::TooLarge(..)
        );
        if never {
            self.metrics.unreadable(Signal::Profiles);
        }
    }

    /// Decodes the content encodings of a received file.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(crate) async fn unpack(
        &self,
        mut held: ReceivedBytes,
        codec: Option<Codec>,
    ) -> Result<ReceivedBytes, Refused> {
        let Some(codec) = codec else {
            return Ok(held);
        };
        let (limit, limit_key) = (self.limit, self.limit_key);
        let unpacked = on_a_turn(move || {
            let output = decompress(codec, &held.bytes, limit, &mut held.permit)
                .map_err(|error| refuse(error.into(), limit_key))?;
            held.permit.shrink_to(output.capacity());
            held.bytes = Bytes::from(output);
            Ok(held)
        });
        let unpacked = unpacked.await.and_then(std::convert::identity);
        unpacked.inspect_err(|refused| self.not_converted(refused))
    }

    /// Encodes the profiles and forwards them to the pipeline.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(crate) async fn hand_on(&self, converted: Converted) -> Result<Accepted, Refused> {
        let accepted = Accepted {
            profiles: converted.profiles.iter().count(),
            samples: converted.profiles.samples(),
        };
        if accepted.samples == 0 {
            return Ok(accepted);
        }
        let metadata = converted.metadata.clone();
        let held = on_a_turn(move || converted.encode())
            .await?
            .map_err(Refused::NoRoom);
        let held =
            held.inspect_err(|_| self.metrics.refused(Signal::Profiles, accepted.samples))?;
        let pushed = self.push(held, accepted.samples, metadata).await;
        pushed.map(|()| accepted)
    }

    /// Forwards an encoded request to the pipeline, unless it is empty.
    pub(crate) async fn push(
        &self,
        held: ReceivedBytes,
        samples: usize,
        metadata: Option<Arc<Metadata>>,
    ) -> Result<(), Refused> {
        if samples == 0 {
            return Ok(());
        }
        let pending = Pending::new(self.metrics.of_signal(Signal::Profiles), samples);
        let mut batch = Batch::new(Signal::Profiles, samples, held.bytes);
        batch.hold(held.permit);
        batch.metadata = metadata;
        let taken = self.consumer.consume(batch).await;
        taken.map_err(Refused::Pipeline)?;
        pending.accepted();
        Ok(())
    }
}

/// Runs slow work on another thread, with a limit on concurrent work.
pub(crate) async fn on_a_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    turns::on_a_turn(work).await.ok_or(Refused::ShuttingDown)
}

#[cfg(test)]
mod tests;
