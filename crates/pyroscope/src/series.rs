//! OTLP profiles as series of `push.v1`, with the names that Pyroscope's own agents give them.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tributary_otlp::room::{Room, RoomExhausted};
use tributary_profiles::Dictionary;
use tributary_profiles::id::Id as _;
use tributary_profiles::model::{Profile, Profiles, ResourceProfiles, ScopeProfiles};
use tributary_profiles::names;
use tributary_profiles::pprof::LinkLabels;
use tributary_profiles::pprof::write::write;
use xxhash_rust::xxh3::xxh3_128;

use crate::labels::{DELTA, MAX_NAME, MAX_VALUE, NAME, SERVICE_NAME, SeriesLabel, is_public};
use crate::push::put_series;

/// Attribute with the name of a service.
const SERVICE: &str = "service.name";
/// Service name of resources without a service name, as in OpenTelemetry.
const UNKNOWN_SERVICE: &str = "unknown_service";
/// Maximum number of sample types of a file.
const MAX_TYPES: usize = 64;
/// Bytes of a series besides its labels and its profile.
const SERIES_BYTES: usize = 1024;
/// Bytes of a sample in a pprof file besides its locations and labels: a key, a length and a value.
const SAMPLE_BYTES: usize = 32;
/// Bytes of a reference to a location.
const LOCATION_BYTES: usize = 5;
/// Bytes of a label.
const LABEL_BYTES: usize = 24;

/// Writes profiles as a request in protobuf encoding: a series for each set of labels, time and period. At most
/// `max_labels` labels are written for each series; further resource attributes are left out.
///
/// Each file has tables of its own, so the request may be much larger than the profiles. `room` covers the request, and
/// each file before it is written.
///
/// # Errors
/// There is no room for the request.
pub fn write_request(
    profiles: Profiles,
    max_labels: usize,
    room: &impl Room,
) -> Result<Vec<u8>, RoomExhausted> {
    let Profiles {
        mut dictionary,
        resources,
    } = profiles;
    let mut request = Vec::new();
    for mut resource in resources {
        for scope in std::mem::take(&mut resource.scopes) {
            for (name, scope) in by_name(scope, &mut dictionary) {
                let labels = labels_of(&resource, &name, &scope, &dictionary, max_labels);
                let text: usize = labels.iter().map(|(a, b)| a.len() + b.len()).sum();
                for scope in by_interval(scope) {
                    let largest = bytes_of(&scope, &dictionary);
                    room.take(largest)?;
                    let files = write(&dictionary, &resource, &scope, &LinkLabels::default());
                    let written: usize = files.iter().map(Vec::len).sum();
                    let series = written + files.len() * (text + SERIES_BYTES);
                    // The request grows by doubling.
                    room.take(series.saturating_mul(2))?;
                    for file in files {
                        put_series(&labels, &file, &id(&scope, &file), &mut request);
                    }
                    room.release(largest);
                }
            }
        }
    }
    Ok(request)
}

/// Divides the profiles of a scope into those that share a file: equal intervals, and different sample types.
fn by_interval(scope: ScopeProfiles) -> impl Iterator<Item = ScopeProfiles> {
    let (said, schema_url) = (scope.scope, scope.schema_url);
    let mut divided: BTreeMap<_, Vec<Vec<Profile>>> = BTreeMap::new();
    for profile in scope.profiles {
        let header = &profile.header;
        let period_type = [header.period_type.kind, header.period_type.unit];
        let period_type = period_type.map(|text| text.index());
        let interval = (header.time, header.duration, header.period, period_type);
        let files = divided.entry(interval).or_default();
        let kind = header.sample_type;
        let fits = |file: &&mut Vec<Profile>| {
            let has = |other: &Profile| other.header.sample_type == kind;
            file.len() < MAX_TYPES && !file.iter().any(has)
        };
        match files.last_mut().filter(fits) {
            Some(file) => file.push(profile),
            None => files.push(vec![profile]),
        }
    }
    divided
        .into_values()
        .flatten()
        .map(move |profiles| ScopeProfiles {
            scope: said.clone(),
            schema_url: schema_url.clone(),
            profiles,
        })
}

/// Divides the profiles of a scope by their names.
fn by_name(
    mut scope: ScopeProfiles,
    dictionary: &mut Dictionary,
) -> BTreeMap<String, ScopeProfiles> {
    for profile in &mut scope.profiles {
        let kind = &mut profile.header.sample_type.kind;
        if let Some(legal) = legal_type(dictionary.text(*kind)) {
            *kind = dictionary.string(&legal);
        }
    }
    let attributes = scope.scope.iter().flat_map(|scope| &scope.attributes);
    let own = attributes
        .filter(|attribute| attribute.key == names::PROFILE_NAME)
        .find_map(text)
        .filter(|name| !name.is_empty());
    if let Some(name) = own {
        return [(names::at_backends(&name).to_owned(), scope)].into();
    }
    let is_time = |profile: &Profile| dictionary.text(profile.header.sample_type.kind) == "cpu";
    let has_time = scope.profiles.iter().any(is_time);
    let mut divided: BTreeMap<String, ScopeProfiles> = BTreeMap::new();
    let (said, schema_url) = (scope.scope, scope.schema_url);
    for mut profile in scope.profiles {
        if !has_time {
            count_as_time(&mut profile, dictionary);
        }
        let kind = dictionary.text(profile.header.sample_type.kind);
        let name = match names::by_sample_types([kind].into_iter()) {
            "contentions" | "delay" => names::MUTEX,
            // Pyroscope shows Go's CPU profiles by both of their sample types.
            "samples" if has_time => names::CPU,
            "" => UNKNOWN_PROFILE,
            name => name,
        };
        let of_name = divided.entry(name.to_owned());
        let of_name = of_name.or_insert_with(|| ScopeProfiles {
            scope: said.clone(),
            schema_url: schema_url.clone(),
            profiles: Vec::new(),
        });
        of_name.profiles.push(profile);
    }
    divided
}

/// Multiplies samples by the CPU time that each stands for, as agents of Pyroscope do. Profilers of OTLP count samples.
fn count_as_time(profile: &mut Profile, dictionary: &mut Dictionary) {
    let header = &mut profile.header;
    let texts = [header.sample_type.kind, header.sample_type.unit];
    let period = [header.period_type.kind, header.period_type.unit];
    let is_count = texts.map(|id| dictionary.text(id)) == ["samples", "count"];
    let is_time = period.map(|id| dictionary.text(id)) == ["cpu", "nanoseconds"];
    if !is_count || !is_time || header.period <= 0 {
        return;
    }
    header.sample_type = header.period_type;
    profile.samples = profile.samples.scaled(header.period);
}

/// Returns the labels of a series, the most important first.
fn labels_of(
    resource: &ResourceProfiles,
    name: &str,
    scope: &ScopeProfiles,
    dictionary: &Dictionary,
    max_labels: usize,
) -> Vec<SeriesLabel> {
    let attributes = || resource.resource.iter().flat_map(|of| &of.attributes);
    let service = attributes().find(|attribute| attribute.key == SERVICE);
    let service = service.and_then(text).filter(|name| !name.is_empty());
    let service = service.unwrap_or_else(|| UNKNOWN_SERVICE.to_owned());
    let mut all = vec![
        (NAME.to_owned(), legal_name(name)),
        (SERVICE_NAME.to_owned(), shortened(service)),
    ];
    let counts_from_start = scope.profiles.iter().any(|Profile { header, .. }| {
        let [kind, unit] =
            [header.sample_type.kind, header.sample_type.unit].map(|id| dictionary.text(id));
        names::is_cumulative(kind, unit, header.duration)
    });
    if !counts_from_start {
        all.push((DELTA.to_owned(), "false".to_owned()));
    }
    for attribute in attributes().filter(|attribute| attribute.key != SERVICE) {
        let name = label_name(&attribute.key);
        // Pyroscope stores dots as underscores.
        let stored = name.replace('.', "_");
        let is_new = is_public(&stored)
            && !name.is_empty()
            && all
                .iter()
                .all(|(known, _)| known.replace('.', "_") != stored);
        if let Some(value) = text(attribute).filter(|value| is_new && !value.is_empty()) {
            if all.len() >= max_labels {
                break;
            }
            all.push((name, shortened(value)));
        }
    }
    all
}

/// Returns the label of an attribute: characters other than letters, digits, `_` and `.` become `_`.
fn label_name(key: &str) -> String {
    legal(key, '.', MAX_NAME)
}

/// Returns a profile's name that Pyroscope accepts: a name of a metric in Prometheus.
fn legal_name(name: &str) -> String {
    legal(name, ':', MAX_VALUE)
}

/// Returns at most `longest` characters of a name. Characters other than letters, digits, `_` and `also` become `_`, and a
/// `_` precedes a digit at the start.
fn legal(name: &str, also: char, longest: usize) -> String {
    let prefix = name.starts_with(|first: char| first.is_ascii_digit());
    let characters = name.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() || c == also => c,
        _ => '_',
    });
    let prefix = prefix.then_some('_').into_iter();
    prefix.chain(characters).take(longest).collect()
}

/// Returns the sample type for Pyroscope if it differs: a dash is refused, and a colon separates the parts of a profile's
/// type.
fn legal_type(kind: &str) -> Option<String> {
    let is_illegal = |c: char| matches!(c, '-' | ':');
    kind.contains(is_illegal)
        .then(|| kind.replace(is_illegal, "_"))
}

/// Returns the value of an attribute as text; `None` for a list, a map or bytes.
fn text(attribute: &KeyValue) -> Option<String> {
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::BoolValue(value) => Some(value.to_string()),
        Value::IntValue(value) => Some(value.to_string()),
        Value::DoubleValue(value) => Some(value.to_string()),
        _ => None,
    }
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_VALUE));
    text
}

/// Returns the size of pprof files with these samples, at most.
fn bytes_of(scope: &ScopeProfiles, dictionary: &Dictionary) -> usize {
    let samples = scope.profiles.iter().flat_map(|of| of.samples.iter());
    let sizes = samples.map(|sample| {
        let locations = dictionary.locations(sample.key.stack).len();
        let attributes = dictionary.attributes(sample.key.attributes).len();
        SAMPLE_BYTES + locations * LOCATION_BYTES + attributes * LABEL_BYTES
    });
    let samples = sizes.fold(0, usize::saturating_add);
    samples.saturating_add(dictionary.bytes())
}

/// Returns the id of a profile as a UUID: the same for the same profile. Pyroscope does not promise that a profile that was
/// sent twice counts once.
fn id(scope: &ScopeProfiles, file: &[u8]) -> String {
    let own = scope.profiles.iter().find_map(|of| of.header.profile_id);
    let id = match (own, scope.profiles.len()) {
        (Some(id), 1) => u128::from_be_bytes(id),
        _ => xxh3_128(file),
    };
    let hex = format!("{id:032x}");
    let part = |range| hex.get(range).unwrap_or_default();
    [
        part(0..8),
        part(8..12),
        part(12..16),
        part(16..20),
        part(20..32),
    ]
    .join("-")
}

/// Name of a profile without a sample type.
const UNKNOWN_PROFILE: &str = "unknown";

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use tributary_memory::Budget;
    use tributary_profiles::folded;
    use tributary_profiles::pprof::{PprofReader, ReadOptions};

    use super::*;
    use crate::push::{Series, from_protobuf};

    /// Bytes that are left.
    struct Limit(Cell<usize>);

    impl Room for Limit {
        fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
            self.0
                .set(self.0.get().checked_sub(bytes).ok_or(RoomExhausted)?);
            Ok(())
        }

        fn release(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }

    fn attribute(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(value.to_owned())),
            }),
            key_strindex: 0,
        }
    }

    /// Profiles of one stack that was sampled three times, of this sample type and name.
    fn profiles(kind: [&str; 2], name: Option<&str>, attributes: &[KeyValue]) -> Profiles {
        let mut profiles = folded::from_stacks([("main;a", 3)]);
        let dictionary = &mut profiles.dictionary;
        let period = [dictionary.string("cpu"), dictionary.string("nanoseconds")];
        let kind = kind.map(|text| dictionary.string(text));
        let resource = &mut profiles.resources[0];
        resource.resource = Some(Resource {
            attributes: attributes.to_vec(),
            ..Resource::default()
        });
        let scope = &mut resource.scopes[0];
        scope.scope = Some(InstrumentationScope {
            attributes: name
                .map(|name| attribute(names::PROFILE_NAME, name))
                .into_iter()
                .collect(),
            ..InstrumentationScope::default()
        });
        let header = &mut scope.profiles[0].header;
        [header.sample_type.kind, header.sample_type.unit] = kind;
        [header.period_type.kind, header.period_type.unit] = period;
        header.period = 10_000_000;
        profiles
    }

    fn written(profiles: Profiles, max_labels: usize) -> Vec<Series> {
        let room = Limit(Cell::new(1 << 20));
        let request = write_request(profiles, max_labels, &room).unwrap();
        // What the files took was given back.
        assert!(room.0.get() > (1 << 20) - 10_000);
        from_protobuf(&request.into()).unwrap()
    }

    /// Labels, and sample type with total, of the only series.
    fn single(profiles: Profiles) -> (BTreeMap<String, String>, String) {
        let all = written(profiles, 30);
        let [Series { labels, profiles }] = all.as_slice() else {
            panic!("{all:?}");
        };
        let mut permit = Budget::new(1 << 20).empty_permit();
        let mut dictionary = Dictionary::new();
        let options = ReadOptions::default();
        let read =
            PprofReader::new().read(&profiles[0], &options, &mut permit, &mut dictionary, None);
        let profile = &read.unwrap().profiles.profiles[0];
        let total: i64 = profile.samples.iter().map(|sample| sample.total().0).sum();
        let kind = [
            profile.header.sample_type.kind,
            profile.header.sample_type.unit,
        ];
        let [kind, unit] = kind.map(|id| dictionary.text(id));
        (
            labels.iter().cloned().collect(),
            format!("{kind}:{unit} {total}"),
        )
    }

    #[test]
    fn profiles_have_the_names_of_pyroscopes_agents() {
        for (kind, name, expected, values) in [
            (
                ["cpu", "nanoseconds"],
                None,
                "process_cpu",
                "cpu:nanoseconds 3",
            ),
            (
                ["cpu", "nanoseconds"],
                Some("cpu"),
                "process_cpu",
                "cpu:nanoseconds 3",
            ),
            // An eBPF profiler counts samples.
            (
                ["samples", "count"],
                None,
                "process_cpu",
                "cpu:nanoseconds 30000000",
            ),
            (
                ["inuse_space", "bytes"],
                None,
                "memory",
                "inuse_space:bytes 3",
            ),
            (
                ["alloc_space", "bytes"],
                Some("heap"),
                "memory",
                "alloc_space:bytes 3",
            ),
            (
                ["goroutine", "count"],
                Some("goroutine"),
                "goroutine",
                "goroutine:count 3",
            ),
            (
                ["delay", "nanoseconds"],
                Some("block"),
                "block",
                "delay:nanoseconds 3",
            ),
            (
                ["delay", "nanoseconds"],
                None,
                "mutex",
                "delay:nanoseconds 3",
            ),
            (["wall", "nanoseconds"], None, "wall", "wall:nanoseconds 3"),
            (["events", "count"], None, "events", "events:count 3"),
            (
                ["L1-dcache-loads", "count"],
                None,
                "L1_dcache_loads",
                "L1_dcache_loads:count 3",
            ),
            (
                ["sched:sched_switch", "count"],
                Some("7 a/b:c"),
                "_7_a_b:c",
                "sched_sched_switch:count 3",
            ),
        ] {
            let (labels, written) = single(profiles(kind, name, &[]));
            assert_eq!(
                (labels[NAME].as_str(), written.as_str()),
                (expected, values)
            );
            assert_eq!(labels[SERVICE_NAME], "unknown_service");
        }
    }

    #[test]
    fn counters_from_the_start_are_marked() {
        let delta = |duration| {
            let mut profiles = profiles(["alloc_space", "bytes"], None, &[]);
            profiles.resources[0].scopes[0].profiles[0].header.duration = duration;
            single(profiles).0.get(DELTA).cloned()
        };
        assert_eq!((delta(0), delta(1)), (None, Some("false".to_owned())));
    }

    #[test]
    fn attributes_become_labels_up_to_the_limit() {
        let attributes = [
            attribute("k8s.pod.name", "a"),
            attribute("service.name", "shop"),
            attribute("a b", "c"),
            attribute("a.b", "stored as a_b"),
            attribute("service_name", "stored twice"),
            attribute("", "empty"),
            attribute("9a", "e"),
            attribute("__name__", "wrong"),
            attribute("__session_id__", "0a"),
            attribute("late", "d"),
        ];
        let all = written(profiles(["cpu", "nanoseconds"], None, &attributes), 7);
        let labels: Vec<_> = all[0]
            .labels
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let expected = [
            ("__name__", "process_cpu"),
            ("service_name", "shop"),
            ("__delta__", "false"),
            ("k8s.pod.name", "a"),
            ("a_b", "c"),
            ("_9a", "e"),
            ("__session_id__", "0a"),
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn output_is_reserved_before_it_is_written() {
        let mut profiles = profiles(
            ["cpu", "nanoseconds"],
            None,
            &[attribute("a", &"b".repeat(2000))],
        );
        let scope = &mut profiles.resources[0].scopes[0];
        let first = scope.profiles[0].clone();
        // Each has a file of its own, and all labels.
        scope.profiles = (0..1000)
            .map(|time| {
                let mut profile = first.clone();
                profile.header.time = time;
                profile
            })
            .collect();
        let room = Limit(Cell::new(1 << 20));
        assert_eq!(write_request(profiles, 30, &room), Err(RoomExhausted));
    }
}
