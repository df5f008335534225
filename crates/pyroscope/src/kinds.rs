//! Names of profiles and sample types, as Pyroscope's server derives them from what agents send.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_profiles::names;

/// Profile, sample type and unit of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Name of the profile (`__name__`).
    pub profile: &'static str,
    /// Sample type.
    pub sample_type: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// Whether the values count samples, each of which stands for the period of the sample rate.
    pub is_time: bool,
}

/// Suffixes of the names of services, each with what it says about stacks.
const SUFFIXES: [(&str, &str, &str, &str); 26] = [
    ("cpu", names::CPU, "cpu", "nanoseconds"),
    ("itimer", names::CPU, "cpu", "nanoseconds"),
    ("wall", names::WALL, "wall", "nanoseconds"),
    ("seconds", names::WALL, "wall", "nanoseconds"),
    ("milliseconds", names::WALL, "wall", "nanoseconds"),
    ("microseconds", names::WALL, "wall", "nanoseconds"),
    ("nanoseconds", names::WALL, "wall", "nanoseconds"),
    ("inuse_objects", names::MEMORY, "inuse_objects", "count"),
    ("inuse_space", names::MEMORY, "inuse_space", "bytes"),
    ("alloc_objects", names::MEMORY, "alloc_objects", "count"),
    ("alloc_space", names::MEMORY, "alloc_space", "bytes"),
    (
        "alloc_in_new_tlab_objects",
        names::MEMORY,
        "alloc_in_new_tlab_objects",
        "count",
    ),
    (
        "alloc_in_new_tlab_bytes",
        names::MEMORY,
        "alloc_in_new_tlab_bytes",
        "bytes",
    ),
    (
        "alloc_outside_tlab_objects",
        names::MEMORY,
        "alloc_outside_tlab_objects",
        "count",
    ),
    (
        "alloc_outside_tlab_bytes",
        names::MEMORY,
        "alloc_outside_tlab_bytes",
        "bytes",
    ),
    ("live", names::MEMORY, "live", "count"),
    ("bytes", names::MEMORY, "samples", "bytes"),
    ("goroutines", "goroutine", "goroutines", "count"),
    ("goroutine", "goroutine", "goroutines", "count"),
    ("mutex_count", names::MUTEX, "contentions", "count"),
    ("mutex_duration", names::MUTEX, "delay", "nanoseconds"),
    ("block_count", names::BLOCK, "contentions", "count"),
    ("block_duration", names::BLOCK, "delay", "nanoseconds"),
    ("lock_count", names::BLOCK, "contentions", "count"),
    ("lock_duration", names::BLOCK, "delay", "nanoseconds"),
    ("exceptions", "exceptions", "samples", "count"),
];

/// Takes the suffix of a type off the name of a service. A name without a dot is that of a CPU profile. `None` if the
/// suffix is no type: Pyroscope refuses such stacks too.
pub fn of_service(name: &str) -> Option<(&str, Kind)> {
    let (service, suffix) = name.rsplit_once('.').unwrap_or((name, "cpu"));
    let found = SUFFIXES.iter().find(|(known, ..)| *known == suffix);
    let (_, profile, sample_type, unit) = *found?;
    let kind = Kind {
        profile,
        sample_type,
        unit,
        is_time: matches!(profile, names::CPU | names::WALL),
    };
    Some((service, kind))
}

/// Sample types of a pprof file, as an agent describes them (`sample_type_config`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SampleTypes(BTreeMap<String, SampleTypeSettings>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct SampleTypeSettings {
    #[serde(rename = "display-name")]
    display_name: String,
}

/// Maximum size of a description in bytes: agents send some hundred.
const MAX_CONFIG: usize = 64 << 10;

impl SampleTypes {
    /// Reads a description as JSON.
    ///
    /// # Errors
    /// The reason why the description is not usable.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        if json.len() > MAX_CONFIG {
            return Err(format!("it is larger than {MAX_CONFIG} bytes"));
        }
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }

    /// Returns the name of the profile with these sample types.
    pub fn profile<'t>(&'t self, types: impl Iterator<Item = &'t str> + Clone) -> &'t str {
        let shown = |kind: &'t str| {
            let shown = self
                .0
                .get(kind)
                .map(|settings| settings.display_name.as_str());
            match (shown.filter(|name| !name.is_empty()), kind) {
                (Some(name), _) => name,
                // Pyroscope's defaults, for agents without a description.
                (None, "samples") if self.0.is_empty() => "cpu",
                (None, "goroutine") if self.0.is_empty() => "goroutines",
                (None, "contentions") if self.0.is_empty() => "mutex_count",
                (None, "delay") if self.0.is_empty() => "mutex_duration",
                (None, kind) => kind,
            }
        };
        names::by_sample_types(types.map(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_of_service_is_the_type_of_its_stacks() {
        let (service, kind) = of_service("shop.eu.alloc_space").unwrap();
        assert_eq!(service, "shop.eu");
        assert_eq!(
            (kind.profile, kind.sample_type, kind.unit),
            ("memory", "alloc_space", "bytes")
        );
        assert!(!kind.is_time);
        let (service, kind) = of_service("shop").unwrap();
        assert_eq!(
            (service, kind.profile, kind.is_time),
            ("shop", "process_cpu", true)
        );
        assert_eq!(of_service("shop.eu"), None);
    }

    #[test]
    fn description_of_sample_types_names_the_profile() {
        let config = br#"{"contentions": {"display-name": "block_count", "units": "lock_samples", "cumulative": false},
            "delay": {"display-name": "block_duration", "units": "lock_nanoseconds"}}"#;
        let types = SampleTypes::parse(config).unwrap();
        assert_eq!(types.profile(["contentions", "delay"].into_iter()), "block");
        let none = SampleTypes::default();
        assert_eq!(none.profile(["samples"].into_iter()), "process_cpu");
        assert_eq!(none.profile(["samples", "wall"].into_iter()), "wall");
        assert_eq!(none.profile(["objects", "space"].into_iter()), "memory");
        assert_eq!(none.profile(["goroutine"].into_iter()), "goroutines");
        assert_eq!(none.profile(["exceptions"].into_iter()), "exceptions");
        assert!(SampleTypes::parse(b"[]").is_err());
        assert!(SampleTypes::parse(&vec![b' '; MAX_CONFIG + 1]).is_err());
    }
}
