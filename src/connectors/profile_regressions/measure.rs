//! Measurement of a request of profiles: sums by function of each profile.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

use super::super::profile_metrics::{Bounds, is_level};
use super::finding::SeriesKey;
use super::shares::FunctionSum;
use super::window::{Measured, Skipped};
use tributary_memory::Permit;
use tributary_profiles::frames::Selection;
use tributary_profiles::id::StackId;
use tributary_profiles::ingest::ingest;
use tributary_profiles::model::{Header, Profile, ResourceProfiles, ScopeProfiles};
use tributary_profiles::reindex::CopiedEntries;
use tributary_profiles::top::count;
use tributary_profiles::{Dictionary, names};

/// Service name of resources without one, as in the profile store.
const UNKNOWN_SERVICE: &str = "unknown_service";
/// Maximum length of a service name, a version and a sample type in bytes, as in the profile store.
const LONGEST_TEXT: usize = 1024;

/// Content of a request: profiles, and the numbers of skipped samples.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) profiles: Vec<Measured>,
    pub(super) skipped: Vec<(Skipped, u64)>,
}

/// Measures a request with this number of samples. `memory` grows by the size of the values.
pub(super) fn measure(request: &[u8], samples: u64, memory: &mut Permit) -> Content {
    let mut content = Content::default();
    let mut dictionary = Dictionary::new();
    let read = ingest(
        request,
        &mut dictionary,
        &mut CopiedEntries::default(),
        None,
    );
    let Ok(read) = read else {
        content.skipped.push((Skipped::Unusable, samples));
        return content;
    };
    let mut reader = Reader {
        dictionary: &dictionary,
        stacks: HashMap::default(),
        left: Bounds::of(request.len()),
        memory,
    };
    for resource in &read.resources {
        let attributes = resource.resource.as_ref();
        let attributes = attributes.map_or(&[][..], |resource| &resource.attributes);
        let service = text(attributes, "service.name").unwrap_or(UNKNOWN_SERVICE);
        let version = text(attributes, "service.version").unwrap_or_default();
        reader.resource(resource, (service, version), &mut content);
    }
    content
}

struct Reader<'d> {
    dictionary: &'d Dictionary,
    /// Number of frames by stack.
    stacks: HashMap<StackId, u64, RandomState>,
    /// Frames and bytes of names that the request may still have.
    left: Bounds,
    memory: &'d mut Permit,
}

impl Reader<'_> {
    fn resource(
        &mut self,
        from: &ResourceProfiles,
        (service, version): (&str, &str),
        into: &mut Content,
    ) {
        for scope in &from.scopes {
            for profile in &scope.profiles {
                let samples = profile.samples.len() as u64;
                let series = self.series(service, scope, &profile.header);
                let functions = match self.is_redundant(scope, &profile.header) {
                    true => Err(Skipped::Redundant),
                    false => self.functions(profile),
                };
                match functions {
                    Ok((total, functions)) => into.profiles.push(Measured {
                        series,
                        version: version.to_owned(),
                        total,
                        samples,
                        functions,
                    }),
                    Err(reason) => into.skipped.push((reason, samples)),
                }
            }
        }
    }

    /// Whether a profile only counts the samples that another profile of the scope multiplies by
    /// their period. Both would have the same findings.
    fn is_redundant(&self, scope: &ScopeProfiles, header: &Header) -> bool {
        let kind = self.dictionary.text(header.sample_type.kind);
        let mut types = scope.profiles.iter().map(|other| other.header.sample_type);
        matches!(kind, "samples" | "sample" | "events")
            && header.period_type != header.sample_type
            && types.any(|other| other == header.period_type)
    }

    fn series(&self, service: &str, scope: &ScopeProfiles, header: &Header) -> SeriesKey {
        let own = |id| shortened(self.dictionary.text(id));
        let [kind, unit] = [header.sample_type.kind, header.sample_type.unit].map(own);
        let [period, period_unit] = [header.period_type.kind, header.period_type.unit].map(own);
        let attributes = scope.scope.as_ref();
        let attributes = attributes.map_or(&[][..], |scope| &scope.attributes);
        let name = text(attributes, names::PROFILE_NAME).unwrap_or(kind);
        SeriesKey {
            service: service.to_owned(),
            sample_type: kind.to_owned(),
            profile_type: [name, kind, unit, period, period_unit].join(":"),
        }
    }

    /// Returns the total of a profile, and its values by function.
    fn functions(
        &mut self,
        profile: &Profile,
    ) -> Result<(f64, Vec<(String, FunctionSum)>), Skipped> {
        let header = &profile.header;
        let [kind, unit] =
            [header.sample_type.kind, header.sample_type.unit].map(|id| self.dictionary.text(id));
        if names::is_cumulative(kind, unit, header.duration) {
            return Err(Skipped::Cumulative);
        }
        if is_level(kind, unit) {
            return Err(Skipped::Level);
        }
        let frames = self.frames(profile);
        take(&mut self.left.frames, frames)?;
        let counts = count(
            self.dictionary,
            std::iter::once(profile),
            &Selection::default(),
        );
        let mut functions = Vec::new();
        for (name, own, total) in counts.rows(self.dictionary) {
            take(&mut self.left.names, name.len() as u64)?;
            let bytes = name.len() + size_of::<(String, FunctionSum)>();
            self.memory.grow(bytes).map_err(|_| Skipped::NoRoom)?;
            let sum = FunctionSum {
                own: own.max(0) as f64,
                total: total.max(0) as f64,
            };
            functions.push((name.into_owned(), sum));
        }
        Ok((counts.total as f64, functions))
    }

    /// Returns the number of frames in the distinct stacks of a profile.
    fn frames(&mut self, profile: &Profile) -> u64 {
        let mut stacks: HashSet<StackId, RandomState> = HashSet::default();
        let mut frames: u64 = 0;
        for sample in profile.samples.iter() {
            let stack = sample.key.stack;
            if stacks.insert(stack) {
                let Reader {
                    dictionary, stacks, ..
                } = self;
                let known = stacks.entry(stack);
                let of_stack = *known.or_insert_with(|| frames_of(dictionary, stack));
                frames = frames.saturating_add(of_stack);
            }
        }
        frames
    }
}

fn frames_of(dictionary: &Dictionary, stack: StackId) -> u64 {
    let locations = dictionary.locations(stack).iter();
    let lines = locations.map(|location| {
        let lines = dictionary.get_location(*location).lines;
        dictionary.get_lines(lines).len().max(1) as u64
    });
    lines.sum()
}

fn take(left: &mut u64, used: u64) -> Result<(), Skipped> {
    *left = left.checked_sub(used).ok_or(Skipped::Unusable)?;
    Ok(())
}

/// Returns the value of an attribute, unless it is empty or no text.
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) if !text.is_empty() => Some(shortened(text)),
        _ => None,
    }
}

fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(LONGEST_TEXT);
    text.get(..end).unwrap_or(text)
}
