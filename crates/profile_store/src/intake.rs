//! Reads requests: finds the series and the window of each profile, and merges profiles with the same series and
//! window.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tributary_profiles::Dictionary;
use tributary_profiles::id::LinkId;
use tributary_profiles::ingest::ingest;
use tributary_profiles::merge::{MergeOptions, Merger};
use tributary_profiles::model::{Header, Profile, ResourceProfiles, ScopeProfiles};
use tributary_profiles::names;
use tributary_profiles::reindex::{CopiedEntries, ProfileFault};
use tributary_profiles::relocations::Relocations;
use tributary_profiles::write::Encoder;

use super::block::{Builder, Unwritten};
use super::heat::Cells;
use super::journal::Record;
use super::options::{ProfileStoreOptions, WINDOWS};
use super::series::{Labeller, Labels, SeriesTable, labels};

const NANOS: u64 = 1_000_000_000;
/// Maximum time by which a profile may be ahead of the clock of the store, in seconds. A profile that is further ahead
/// is stored at its time of arrival: with a wrong clock, it would never expire.
const MAX_CLOCK_LEAD_SECONDS: u64 = 600;

/// A profile with its series and its window.
pub(crate) struct Placed {
    pub(crate) series: Arc<Labels>,
    /// Start of the window, in seconds since 1970.
    pub(crate) window: u64,
    pub(crate) profile: Profile,
}

#[derive(Default)]
pub(crate) struct Intake {
    pub(crate) placed: Vec<Placed>,
    /// Number of samples in profiles that are older than the retention.
    pub(crate) too_old: u64,
    /// Number of profiles whose time is later than the time of the store.
    pub(crate) from_the_future: u64,
}

#[derive(Debug)]
pub(crate) struct SeriesFinder {
    pub(crate) rules: RwLock<Arc<Rules>>,
    pub(crate) series: SeriesTable,
}

/// The settings that decide about series and acceptance.
#[derive(Debug)]
pub(crate) struct Rules {
    labeller: Labeller,
    /// Age from which profiles are not accepted, in seconds.
    retention: u64,
}

impl Rules {
    pub(crate) fn of(options: &ProfileStoreOptions) -> Self {
        Rules {
            labeller: Labeller::new(&options.labels),
            retention: options.retention.as_secs(),
        }
    }
}

impl SeriesFinder {
    pub(crate) fn set_rules(&self, rules: Rules) {
        let mut place = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(rules);
    }

    fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.clone()
    }

    /// Reads a request over a dictionary. The result depends on the request, its time of arrival and the rules only.
    pub(crate) fn read(
        &self,
        record: &Record,
        dictionary: &mut Dictionary,
        memo: &mut CopiedEntries,
        relocations: Option<&mut Relocations>,
    ) -> Result<Intake, ProfileFault> {
        let read = ingest(&record.request, dictionary, memo, relocations)?;
        let rules = self.rules();
        let arrival = record.arrival / NANOS;
        let mut intake = Intake::default();
        for mut resource in read.resources {
            let scopes = std::mem::take(&mut resource.scopes);
            let of_resource = rules.labeller.of_resource(&resource);
            for mut scope in scopes {
                for profile in std::mem::take(&mut scope.profiles) {
                    if profile.samples.is_empty() {
                        continue;
                    }
                    let time = match profile.header.time / NANOS {
                        0 => arrival,
                        time if time > arrival.saturating_add(MAX_CLOCK_LEAD_SECONDS) => {
                            intake.from_the_future += 1;
                            arrival
                        }
                        time => time,
                    };
                    if time < arrival.saturating_sub(rules.retention) {
                        intake.too_old += profile.samples.len() as u64;
                        continue;
                    }
                    let labels = labels(&of_resource, &scope, dictionary, &profile.header);
                    intake.placed.push(Placed {
                        series: self.series.intern(labels),
                        window: window_of(time, 0),
                        profile: plain(profile, dictionary),
                    });
                }
            }
        }
        Ok(intake)
    }
}

/// Returns the start of the window that a time is in, in seconds.
pub(crate) fn window_of(seconds: u64, level: u8) -> u64 {
    let len = WINDOWS.get(usize::from(level)).copied().unwrap_or(1);
    seconds - seconds % len
}

/// Removes the content of a header that a merged profile cannot have. Patterns of frames to drop stay.
fn plain(profile: Profile, dictionary: &mut Dictionary) -> Profile {
    let header = profile.header;
    let kept = [names::DROP_FRAMES, names::KEEP_FRAMES].map(|key| {
        let mut ids = dictionary.attributes(header.attributes).iter().copied();
        ids.find(|id| dictionary.text(dictionary.get_attribute(*id).key) == key)
    });
    let kept: Vec<_> = kept.into_iter().flatten().collect();
    Profile {
        header: Header {
            profile_id: None,
            original: None,
            attributes: dictionary.attribute_set(&kept),
            ..header
        },
        samples: profile.samples,
    }
}

/// Returns resources with one profile and without attributes, so that profiles of all series can be merged.
pub(crate) fn anonymous(profile: Profile) -> ResourceProfiles {
    ResourceProfiles {
        // Empty instead of absent, because some readers fail on an absent resource or scope.
        resource: Some(Resource::default()),
        scopes: vec![ScopeProfiles {
            scope: Some(Default::default()),
            profiles: vec![profile],
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }
}

/// Sum of all values, saturating.
fn total(profile: &Profile) -> i64 {
    let values = profile
        .samples
        .iter()
        .map(|sample| i128::from(sample.total().0));
    let sum: i128 = values.sum();
    i64::try_from(sum.clamp(i64::MIN.into(), i64::MAX.into())).unwrap_or_default()
}

fn has_links(profile: &Profile) -> bool {
    profile
        .samples
        .iter()
        .any(|sample| sample.key.link != LinkId::default())
}

/// Key of the resource attribute that separates the series of a merger.
const POSITION: &str = "position";

/// Merges the profiles of requests by series and window.
pub(crate) struct Merging {
    merger: Merger,
    memo: CopiedEntries,
    heat: Vec<Cells>,
    keys: Vec<(Arc<Labels>, u64)>,
    positions: HashMap<(*const Labels, u64), usize, RandomState>,
}

impl Merging {
    pub(crate) fn new() -> Self {
        Merging {
            merger: Merger::new(MergeOptions::default()),
            memo: CopiedEntries::default(),
            heat: Vec::new(),
            keys: Vec::new(),
            positions: HashMap::default(),
        }
    }

    pub(crate) fn add(
        &mut self,
        finder: &SeriesFinder,
        record: &Record,
    ) -> Result<(), ProfileFault> {
        let (dictionary, relocations) = self.merger.dictionary();
        let intake = finder.read(record, dictionary, &mut self.memo, Some(relocations))?;
        for placed in intake.placed {
            let next = self.keys.len();
            let key = (Arc::as_ptr(&placed.series), placed.window);
            let position = *self.positions.entry(key).or_insert(next);
            if position == next {
                self.keys.push((placed.series, placed.window));
                self.heat.push(Cells::default());
            }
            if let Some(heat) = self.heat.get_mut(position) {
                heat.add_samples(&placed.profile.samples, placed.window);
            }
            let mut resource = anonymous(placed.profile);
            resource.resource = Some(Resource {
                attributes: vec![KeyValue {
                    key: POSITION.to_owned(),
                    value: Some(AnyValue {
                        value: Some(Value::IntValue(position as i64)),
                    }),
                    ..KeyValue::default()
                }],
                ..Resource::default()
            });
            self.merger.add_profiles(&[resource]);
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        let heat: u64 = self.heat.iter().map(Cells::bytes).sum();
        self.merger.bytes() as u64 + heat
    }

    /// Writes the merged profiles.
    pub(crate) fn finish(self, builder: &mut Builder) -> std::io::Result<()> {
        let profiles = self.merger.finish();
        let mut encoder = Encoder::new(&profiles.dictionary);
        for from in profiles.resources {
            let attribute = from
                .resource
                .as_ref()
                .and_then(|from| from.attributes.first());
            let value = attribute.and_then(|from| from.value.as_ref()?.value.as_ref());
            let Some(Value::IntValue(position)) = value else {
                continue;
            };
            let position = usize::try_from(*position).unwrap_or_default();
            let Some((series, window)) = self.keys.get(position) else {
                continue;
            };
            let heat = self.heat.get(position);
            let profiles = from.scopes.into_iter().flat_map(|scope| scope.profiles);
            let key = (series, *window);
            write_profiles(profiles, &mut encoder, key, heat, builder)?;
        }
        Ok(())
    }
}

/// Writes the profiles of a series in a window, mostly one profile. The first profile gets the cells of the heat map.
pub(crate) fn write_profiles(
    profiles: impl Iterator<Item = Profile>,
    encoder: &mut Encoder<'_>,
    (series, window): (&Arc<Labels>, u64),
    mut heat: Option<&Cells>,
    builder: &mut Builder,
) -> std::io::Result<()> {
    let none = Cells::default();
    for profile in profiles.filter(|profile| !profile.samples.is_empty()) {
        let (total, samples) = (total(&profile), profile.samples.len() as u64);
        let has_links = has_links(&profile);
        let request = encoder.encode(&[anonymous(profile)]);
        let unwritten = Unwritten {
            series,
            window,
            request: &request,
            total,
            samples,
            has_links,
        };
        builder.push(&unwritten, heat.take().unwrap_or(&none))?;
    }
    Ok(())
}

/// A request in memory, with the index of its profiles.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) record: Record,
    pub(crate) entries: Vec<BatchEntry>,
}

/// A series in a window of a request.
#[derive(Debug)]
pub(crate) struct BatchEntry {
    pub(crate) series: Arc<Labels>,
    pub(crate) window: u64,
    pub(crate) total: i64,
    pub(crate) has_links: bool,
    pub(crate) heat: Cells,
}

impl Batch {
    /// Makes the index of a request.
    pub(crate) fn new(
        finder: &SeriesFinder,
        arrival: u64,
        request: Bytes,
    ) -> Result<(Self, Intake), ProfileFault> {
        let record = Record { arrival, request };
        let mut dictionary = Dictionary::new();
        let intake = finder.read(
            &record,
            &mut dictionary,
            &mut CopiedEntries::default(),
            None,
        )?;
        let entries = intake.placed.iter().map(|placed| {
            let mut heat = Cells::default();
            heat.add_samples(&placed.profile.samples, placed.window);
            BatchEntry {
                series: placed.series.clone(),
                window: placed.window,
                total: total(&placed.profile),
                has_links: has_links(&placed.profile),
                heat,
            }
        });
        let entries = entries.collect();
        Ok((Batch { record, entries }, intake))
    }

    pub(crate) fn bytes(&self) -> u64 {
        let heat: u64 = self.entries.iter().map(|entry| entry.heat.bytes()).sum();
        let entries = self.entries.capacity() * size_of::<BatchEntry>();
        (self.record.request.len() + entries + size_of::<Self>()) as u64 + heat
    }
}
