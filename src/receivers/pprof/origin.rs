//! The origin of a pprof file, and the resource and scope derived from the origin.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;

use tributary_profiles::Dictionary;
use tributary_profiles::id::MappingId;
use tributary_profiles::pprof::write::{EXECUTABLE_NAME, EXECUTABLE_PATH};

/// Resource attribute with the name of the service.
pub(super) const SERVICE_NAME: &str = "service.name";
/// Name of a scope whose profiles have no named sample type.
const UNKNOWN: &str = "pprof";
pub(super) use tributary_profiles::names::PROFILE_NAME;

/// Origin of a file.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// Profiled subject, shared by all its files.
    pub(super) subject: Arc<Subject>,
    /// Name of the profile (see [`PROFILE_NAME`]), if known.
    pub(super) profile: Option<Arc<str>>,
    /// Start of the profile in nanoseconds since 1970 (UTC), for a file without a start time. 0:
    /// not known.
    pub(super) start: u64,
    /// Duration of the profile, for a file with neither a duration nor a start time.
    pub(super) duration: Duration,
}

/// Profiled subject, such as a process.
#[derive(Debug, Default)]
pub(super) struct Subject {
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
    pub(super) fn new(attributes: Vec<KeyValue>, fallback: Option<String>) -> Self {
        Subject {
            attributes,
            fallback,
            certified: None,
            program: Mutex::default(),
        }
    }

    /// Prevents files from setting this attribute. Only `attributes` can contain its value.
    pub(super) fn certified(self, key: String) -> Self {
        Subject {
            certified: Some(key),
            ..self
        }
    }

    /// Returns the resource of a file with this main mapping.
    pub(super) fn resource(&self, dictionary: &Dictionary, main: Option<MappingId>) -> Resource {
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
    /// Adds the name of the profile to the scope of a file with these sample types.
    ///
    /// Backends such as Parca show profiles under the name of their scope. The scope therefore gets
    /// the name that the backends' own scrapers give such a profile.
    pub(super) fn scope<'t>(
        &self,
        scope: Option<InstrumentationScope>,
        sample_types: impl Iterator<Item = &'t str>,
    ) -> InstrumentationScope {
        let mut scope = scope.unwrap_or_default();
        let profile = self.profile.as_deref();
        scope.name = match profile {
            Some("cpu" | "profile") => "process_cpu",
            Some("heap") => "memory",
            Some(name) => name,
            None => name_by_types(sample_types),
        }
        .to_owned();
        scope
            .attributes
            .extend(profile.map(|name| text(PROFILE_NAME, name)));
        scope
    }
}

/// Returns the name of a profile by its sample types. If no sample type is well known, this is the
/// name of the last sample type, which pprof shows.
fn name_by_types<'t>(sample_types: impl Iterator<Item = &'t str>) -> &'t str {
    let mut last = UNKNOWN;
    for kind in sample_types {
        match kind {
            "cpu" => return "process_cpu",
            "inuse_space" | "inuse_objects" => return "memory",
            "" => {}
            kind => last = kind,
        }
    }
    last
}

/// Creates an attribute with a text value.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
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
            (None, &["contentions", "delay"], "delay"),
            (None, &[""], "pprof"),
        ] {
            assert_eq!(name(profile, types), expected, "{profile:?} {types:?}");
        }
    }
}
