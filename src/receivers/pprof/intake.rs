//! Processing of a pprof file from any source: decompress, convert, count, forward.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::config::Config;
use super::delta::{Deltas, Difference, Fit, Series};
use super::ids;
use super::metrics::Repaired;
use super::origin::Origin;
use crate::pipeline::Consumer;
use crate::pipeline::account::Pending;
use crate::pipeline::batch::{Batch, Code, Metadata, Nack, metadata_bytes};
use crate::pipeline::turns;
use crate::receivers::metrics::ReceiverMetrics;
/// A file, with or without gzip, and its memory permit.
pub(super) use crate::serving::body::Held;
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_config::ComponentId;
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_otlp::Signal;
use tributary_profiles::model::ResourceProfiles;
use tributary_profiles::pprof;
use tributary_profiles::pprof::{PprofReader, ReadOptions};
use tributary_profiles::relocations::Relocations;
use tributary_profiles::write::encode;
use tributary_profiles::{Dictionary, Profiles};

/// Entry to the pipeline, shared by all sections of the receiver. Clones refer to the same intake.
#[derive(Clone)]
pub(super) struct Intake {
    /// Next stage of the pipeline.
    pub(super) consumer: Arc<dyn Consumer>,
    /// Memory budget.
    pub(super) budget: Arc<Budget>,
    /// Counters of accepted, refused and unreadable data.
    pub(super) metrics: ReceiverMetrics,
    repaired: Repaired,
    /// Maximum size of a file in bytes, both as received and after decompression.
    pub(super) limit: usize,
    /// Key of the configuration that sets the limit.
    pub(super) limit_key: &'static str,
    /// Treatment of labels and of the original file.
    options: ReadOptions,
}

/// A converted file.
#[derive(Debug)]
pub(super) struct Converted {
    /// One resource with one scope, with a profile for each sample type.
    pub(super) profiles: Profiles,
    /// Headers of the request that contained the file, if they are kept.
    pub(super) metadata: Option<Arc<Metadata>>,
    /// Memory permit of the profiles.
    permit: Permit,
}

/// Result of an accepted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Number of profiles: one for each sample type.
    pub(super) profiles: usize,
    /// Number of samples. If there are none, nothing was forwarded.
    pub(super) samples: usize,
}

/// Reason why a file was refused. The refusal is already counted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Refused {
    /// The file is not a valid pprof file. A retry is useless.
    #[error("{0}")]
    Unreadable(pprof::Error),
    /// The file exceeds the limit of this key of the configuration.
    #[error("the profile is larger than {0} bytes; raise `{1}` to accept it")]
    TooLarge(usize, &'static str),
    /// The memory budget has no room to convert the file.
    #[error("{0}")]
    NoRoom(NoRoom),
    /// The pipeline refused the profiles.
    #[error("{0}")]
    Pipeline(Nack),
    /// The collector is shutting down.
    #[error("the collector is shutting down")]
    ShuttingDown,
}

impl Refused {
    /// Whether the same file may be accepted later.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Refused::Unreadable(_) | Refused::TooLarge(..) => false,
            Refused::NoRoom(no_room) => no_room.may_fit_later(),
            Refused::Pipeline(nack) => nack.retryable,
            Refused::ShuttingDown => true,
        }
    }
}

/// Converts a refusal for the client that sent the file.
impl From<Refused> for Nack {
    fn from(refused: Refused) -> Nack {
        let reason = refused.to_string();
        match refused {
            Refused::Unreadable(_) => Nack::invalid(format!("not a usable pprof file: {reason}")),
            Refused::TooLarge(..) => Nack::permanent(Code::ResourceExhausted, reason),
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
    pub(super) fn new(
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

    /// Sets the conversion options of the configuration.
    pub(super) fn converting(mut self, config: &Config) -> Self {
        self.options.links = config.links.labels();
        self.options.keep_original = config.include_original;
        self
    }

    /// Returns the rules for reading a file.
    fn rules(&self, keep_original: bool) -> Rules {
        Rules {
            options: ReadOptions {
                limit: self.limit,
                links: self.options.links.clone(),
                keep_original,
            },
            limit_key: self.limit_key,
        }
    }

    /// Processes a file until the pipeline's outcome is known.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(super) async fn take(&self, held: Held, origin: Origin) -> Result<Accepted, Refused> {
        let converted = self.convert(held, origin).await?;
        self.hand_on(converted).await
    }

    /// Converts a file. The caller may change the profiles before it [forwards](Self::hand_on)
    /// them.
    ///
    /// Conversion runs on separate threads, not on the workers that serve connections. At most one
    /// conversion runs per core: more would need more memory and not be faster. A waiting caller
    /// buffers only the file as received.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(super) async fn convert(&self, held: Held, origin: Origin) -> Result<Converted, Refused> {
        let rules = self.rules(self.options.keep_original);
        let converted = on_a_turn(move || convert(held, &origin, &rules)).await;
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

    /// Counts a file that can never be converted. A file refused for lack of memory is not
    /// unreadable: scrapes count it as dropped, the server as refused.
    fn not_converted(&self, refused: &Refused) {
        if matches!(refused, Refused::Unreadable(_) | Refused::TooLarge(..)) {
            self.metrics.unreadable(Signal::Profiles);
        }
    }

    /// Decodes the content encodings of a received file.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(super) async fn unpack(
        &self,
        mut held: Held,
        codec: Option<Codec>,
    ) -> Result<Held, Refused> {
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

    /// Processes a file of a series, and forwards the difference to the previous file of that name:
    /// see [`delta`](super::delta).
    ///
    /// # Errors
    /// See [`Refused`]. After a retryable refusal, the next file includes the difference.
    pub(super) async fn take_difference(
        &self,
        held: Held,
        origin: Origin,
        deltas: &Deltas,
        name: &str,
    ) -> Result<(Accepted, Fit), Refused> {
        let mut taken = deltas.take(name);
        // The file is not the original of its difference.
        let rules = self.rules(false);
        let (mut taken, subtracted) = on_a_turn(move || {
            let subtracted = subtract(held, &origin, &rules, &mut taken.series);
            (taken, subtracted)
        })
        .await?;
        let forgotten = |count: usize| self.repaired.forgotten(count);
        let (held, difference, repairs) = match subtracted {
            Ok(subtracted) => subtracted,
            Err(refused) => {
                forgotten(deltas.put(name, taken));
                self.not_converted(&refused);
                return Err(refused);
            }
        };
        self.repaired.count(repairs);
        let profiles = &difference.profiles.profiles;
        let accepted = Accepted {
            profiles: profiles.len(),
            samples: profiles.iter().map(|profile| profile.samples.len()).sum(),
        };
        let result = self.push(held, accepted.samples, None).await;
        let fit = difference.fit;
        if result
            .as_ref()
            .err()
            .is_none_or(|refused| !refused.is_retryable())
        {
            taken.series.delivered(difference);
        }
        forgotten(deltas.put(name, taken));
        result.map(|()| (accepted, fit))
    }

    /// Encodes the profiles and forwards them to the pipeline.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(super) async fn hand_on(&self, converted: Converted) -> Result<Accepted, Refused> {
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
    async fn push(
        &self,
        held: Held,
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

impl Converted {
    fn encode(self) -> Result<Held, NoRoom> {
        let Converted {
            profiles,
            metadata,
            mut permit,
        } = self;
        let kept = metadata.as_deref().map_or(0, metadata_bytes) + BATCH_BYTES;
        // Encoded profiles are smaller than decoded ones; both exist together for a moment.
        permit.grow(bytes_of(&profiles).saturating_add(kept))?;
        let bytes = profiles.encode();
        drop(profiles);
        permit.shrink_to(bytes.len().saturating_add(kept));
        Ok(Held { bytes, permit })
    }
}

/// Rules for reading files.
struct Rules {
    options: ReadOptions,
    limit_key: &'static str,
}

fn convert(
    held: Held,
    origin: &Origin,
    rules: &Rules,
) -> Result<(Converted, pprof::Repairs), Refused> {
    let mut dictionary = Dictionary::new();
    let (resource, mut permit, repairs) = read(held, origin, rules, &mut dictionary, None)?;
    let profiles = Profiles {
        dictionary,
        resources: vec![resource],
    };
    permit
        .resize(bytes_of(&profiles))
        .map_err(Refused::NoRoom)?;
    let converted = Converted {
        profiles,
        metadata: None,
        permit,
    };
    Ok((converted, repairs))
}

/// Computes the encoded difference to the previous file of a series.
fn subtract(
    held: Held,
    origin: &Origin,
    rules: &Rules,
    series: &mut Series,
) -> Result<(Held, Difference, pprof::Repairs), Refused> {
    let (dictionary, relocations) = series.tables();
    let (mut resource, mut permit, repairs) =
        read(held, origin, rules, dictionary, Some(relocations))?;
    let scope = resource.scopes.pop().unwrap_or_default();
    let difference = series.difference(scope);
    resource.scopes.push(difference.profiles.clone());
    let bytes = encode(series.dictionary(), &[resource]);
    permit
        .resize(bytes.len().saturating_add(BATCH_BYTES))
        .map_err(Refused::NoRoom)?;
    Ok((Held { bytes, permit }, difference, repairs))
}

/// Reads a file into a dictionary. Until it is shrunk, the permit covers more than the result.
fn read(
    held: Held,
    origin: &Origin,
    rules: &Rules,
    dictionary: &mut Dictionary,
    relocations: Option<&mut Relocations>,
) -> Result<(ResourceProfiles, Permit, pprof::Repairs), Refused> {
    let Held { bytes, mut permit } = held;
    let Rules { options, limit_key } = rules;
    let refuse = |error| refuse(error, limit_key);
    // Decompression happens here and not in the reader, so that the memory for the profiles can be
    // reserved by size.
    let bytes = match bytes.starts_with(&GZIP) {
        true => {
            let output = decompress(Codec::Gzip, &bytes, options.limit, &mut permit)
                .map_err(|error| refuse(error.into()))?;
            drop(bytes);
            permit.shrink_to(output.capacity());
            Bytes::from(output)
        }
        false => bytes,
    };
    let needed = bytes.len().saturating_mul(CONVERTED_BYTES_PER_BYTE);
    permit.grow(needed).map_err(Refused::NoRoom)?;
    let read = PprofReader::new().read(&bytes, options, &mut permit, dictionary, relocations);
    let file = ids::of_file(&bytes);
    drop(bytes);
    let pprof::Converted {
        profiles: mut scope,
        main,
        repairs,
    } = read.map_err(refuse)?;
    let said = scope.scope.take();
    let types = scope.profiles.iter().map(|of| of.header.sample_type.kind);
    let types = types.map(|kind| dictionary.text(kind));
    scope.scope = Some(origin.scope(said, types));
    for profile in &mut scope.profiles {
        if profile.header.time == 0 {
            profile.header.time = origin.start;
            if profile.header.duration == 0 {
                let duration = u64::try_from(origin.duration.as_nanos());
                profile.header.duration = duration.unwrap_or(u64::MAX);
            }
        }
    }
    let mut resource = ResourceProfiles {
        resource: Some(origin.subject.resource(dictionary, main)),
        schema_url: String::new(),
        scopes: vec![scope],
    };
    ids::assign(&mut resource, file);
    Ok((resource, permit, repairs))
}

fn refuse(error: pprof::Error, limit_key: &'static str) -> Refused {
    match error {
        pprof::Error::TooLarge(limit)
        | pprof::Error::Compressed(DecompressError::TooLarge(limit)) => {
            Refused::TooLarge(limit, limit_key)
        }
        pprof::Error::Compressed(DecompressError::NoMemory(no_room))
        | pprof::Error::NoRoom(no_room) => Refused::NoRoom(no_room),
        error => Refused::Unreadable(error),
    }
}

/// Returns the memory size of profiles in bytes.
fn bytes_of(profiles: &Profiles) -> usize {
    let samples = profiles.iter().map(|profile| profile.samples.bytes());
    profiles.dictionary.bytes() + samples.sum::<usize>()
}

/// Runs slow work on another thread, with a limit on concurrent work.
async fn on_a_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    turns::on_a_turn(work).await.ok_or(Refused::ShuttingDown)
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Memory of profiles for each byte of the file.
const CONVERTED_BYTES_PER_BYTE: usize = 8;
/// Memory of a request besides its bytes: the batch, its permit, and an entry in a queue.
const BATCH_BYTES: usize = 512;
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::receivers::pprof::origin::Subject;
    use crate::receivers::pprof::testing::{Sink, small_file};

    #[tokio::test]
    async fn file_without_memory_is_retryable() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let budget = Budget::new(1000);
        let id = "pprof".parse().unwrap();
        let intake = metrics::with_local_recorder(&recorder, || {
            let consumer = Arc::new(Sink::default());
            Intake::new(&id, consumer, budget.clone(), "http", 1 << 20, "limit")
        });
        let take = async |bytes: Vec<u8>| {
            let held = Held {
                permit: budget.acquire(bytes.len()).unwrap(),
                bytes: bytes.into(),
            };
            let origin = Origin {
                subject: Arc::new(Subject::default()),
                profile: None,
                start: 1,
                duration: Duration::ZERO,
            };
            intake.take(held, origin).await.unwrap_err()
        };
        let unreadable = || {
            let page = page.render();
            let line = page
                .lines()
                .find(|line| line.starts_with("tributary_receiver_unreadable_requests"));
            line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
        };
        let _others = budget.acquire(800).unwrap();
        assert!(matches!(take(small_file(1)).await, Refused::NoRoom(_)));
        assert_eq!(unreadable(), 0);
        assert!(matches!(take(vec![0xff]).await, Refused::Unreadable(_)));
        assert_eq!(unreadable(), 1);
    }
}
