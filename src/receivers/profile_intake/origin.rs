//! The origin of a pprof file, and the resource and scope derived from the origin.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;

use tributary_profiles::Dictionary;
use tributary_profiles::id::MappingId;
use tributary_profiles::model::Header;
use tributary_profiles::names;
use tributary_profiles::pprof::write::{EXECUTABLE_NAME, EXECUTABLE_PATH};

/// Resource attribute with the name of the service.
pub(crate) const SERVICE_NAME: &str = "service.name";
/// Name of a scope whose profiles have no named sample type.
const UNKNOWN: &str = "pprof";
/// First plausible start of a profile in nanoseconds since 1970: some agents write microseconds instead.
const EARLIEST: u64 = 365 * 86_400 * 1_000_000_000;
pub(crate) use tributary_profiles::names::PROFILE_NAME;

/// Origin of a file.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Profiled subject, shared by all its files.
    pub(crate) subject: Arc<Subject>,
    /// Name of the profile (see [`PROFILE_NAME`]), if known.
    pub(crate) profile: Option<Arc<str>>,
    /// Start of the profile in nanoseconds since 1970 (UTC), for a file without a start time. 0:
    /// not known.
    pub(crate) start: u64,
    /// Duration of the profile, for a file with neither a duration nor a start time.
    pub(crate) duration: Duration,
    /// Whether the request states the interval that a file covers. Then `start` replaces a time of the year 1970 also, and
    /// `duration` applies to every file without a duration.
    pub(crate) is_interval: bool,
}

/// Profiled subject, such as a process.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    /// Resource attributes of the subject.
    attributes: Vec<KeyValue>,
    /// Name of the service if neither the attributes nor the files contain one.
    fallback: Option<String>,
    /// Attribute that a file cannot set, because the sender's certificate sets it.
    certified: Option<String>,
    /// Name of the program according to the last file that contained one. Some files do not: a
    /// profile without samples has no mapping.
    program: Mutex<Option<String>>,
}

impl Subject {
    /// Creates a subject with these resource attributes. Without `service.name`, the name of the
    /// service is the name of the program, which most files contain, or else `fallback`.
    pub(crate) fn new(attributes: Vec<KeyValue>, fallback: Option<String>) -> Self {
        Subject {
            attributes,
            fallback,
            certified: None,
            program: Mutex::default(),
        }
    }

    /// Prevents files from setting this attribute. Only `attributes` can contain its value.
    pub(crate) fn certified(self, key: String) -> Self {
        Subject {
            certified: Some(key),
            ..self
        }
    }

    /// Returns the resource of a file with this main mapping.
    pub(crate) fn resource(&self, dictionary: &Dictionary, main: Option<MappingId>) -> Resource {
        let mut attributes = self.attributes.clone();
        let has = |attributes: &[KeyValue], key: &str| {
            self.certified.as_deref() == Some(key) || attributes.iter().any(|a| a.key == key)
        };
        let program = self.program(dictionary, main);
        let name = program.as_deref().map(|file| {
            let name = file.rsplit('/').next().unwrap_or_default();
            (file, name)
        });
        if !has(&attributes, SERVICE_NAME) {
            let name = name.map(|(_, name)| name).or(self.fallback.as_deref());
            attributes.extend(name.map(|name| text(SERVICE_NAME, name)));
        }
        // The conversion back to pprof finds the main mapping by these attributes.
        if let Some((file, _)) = name
            && !has(&attributes, EXECUTABLE_PATH)
            && !has(&attributes, EXECUTABLE_NAME)
        {
            let key = match file.starts_with('/') {
                true => EXECUTABLE_PATH,
                false => EXECUTABLE_NAME,
            };
            attributes.push(text(key, file));
        }
        Resource {
            attributes,
            ..Resource::default()
        }
    }

    fn program(&self, dictionary: &Dictionary, main: Option<MappingId>) -> Option<String> {
        let mut known = self.program.lock();
        let file = main.map(|main| dictionary.text(dictionary.get_mapping(main).filename));
        // A name in brackets, such as `[vdso]`, is not a file.
        let file = file.filter(|file| {
            let name = file.rsplit('/').next().unwrap_or_default();
            !name.is_empty() && !file.starts_with('[')
        });
        if let Some(file) = file {
            *known = Some(file.to_owned());
        }
        known.clone()
    }
}

impl Origin {
    /// Sets the time and the duration of a profile, if the file has none.
    pub(crate) fn complete_times(&self, header: &mut Header) {
        let is_timed = match self.is_interval {
            true => header.time >= EARLIEST,
            false => header.time != 0,
        };
        if !is_timed {
            header.time = self.start;
        }
        if header.duration == 0 && (self.is_interval || !is_timed) {
            header.duration = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// Adds the name of the profile to the scope of a file with these sample types.
    ///
    /// Backends such as Parca show profiles under the name of their scope. The scope therefore gets
    /// the name that the backends' own scrapers give such a profile.
    pub(crate) fn scope<'t>(
        &self,
        scope: Option<InstrumentationScope>,
        sample_types: impl Iterator<Item = &'t str> + Clone,
    ) -> InstrumentationScope {
        let mut scope = scope.unwrap_or_default();
        let profile = self.profile.as_deref();
        scope.name = match profile {
            Some(name) => names::at_backends(name),
            None => match names::by_sample_types(sample_types) {
                "" => UNKNOWN,
                name => name,
            },
        }
        .to_owned();
        scope
            .attributes
            .extend(profile.map(|name| text(PROFILE_NAME, name)));
        scope
    }
}

/// Creates an attribute with a text value.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        key_strindex: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_has_name_shown_by_backends() {
        let name = |profile: Option<&str>, types: &[&str]| {
            let origin = Origin {
                subject: Arc::default(),
                profile: profile.map(Arc::from),
                start: 0,
                duration: Duration::ZERO,
                is_interval: false,
            };
            origin.scope(None, types.iter().copied()).name
        };
        let heap = [
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space",
        ];
        for (profile, types, expected) in [
            (Some("cpu"), &["samples", "cpu"][..], "process_cpu"),
            (Some("profile"), &[], "process_cpu"),
            (Some("heap"), &heap, "memory"),
            (Some("allocs"), &heap, "allocs"),
            (Some("goroutine"), &["goroutine"], "goroutine"),
            (Some("checkouts"), &["checkouts"], "checkouts"),
            (None, &["samples", "cpu"], "process_cpu"),
            (None, &heap, "memory"),
            (None, &["wall"], "wall"),
            (None, &["contentions", "delay"], "delay"),
            (None, &[""], "pprof"),
        ] {
            assert_eq!(name(profile, types), expected, "{profile:?} {types:?}");
        }
    }
}
