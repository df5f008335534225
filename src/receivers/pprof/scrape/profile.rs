//! Profiles of a target: well-known names, or any path.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration as Span;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use tributary_config::Problems;
use tributary_config::units::Duration;

/// Profiles of Go's net/http/pprof by their names here, each with its path below the prefix.
const KNOWN: [(&str, &str); 7] = [
    ("cpu", "profile"),
    ("heap", "heap"),
    ("allocs", "allocs"),
    ("goroutine", "goroutine"),
    ("mutex", "mutex"),
    ("block", "block"),
    ("threadcreate", "threadcreate"),
];

/// Default duration of a CPU profile, in seconds.
const CPU_SECONDS: u32 = 10;

/// One profile of a target: a name, or a mapping.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScrapedProfile(pub ProfileSettings);

/// A profile as a mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSettings {
    /// Name of the profile: `cpu`, `heap`, `allocs`, `goroutine`, `mutex`, `block`, `threadcreate`, or any name
    /// together with `path`. The name becomes the attribute `pprof.profile.name` of the profile's scope. Required.
    pub name: String,
    /// Path of the profile: from the root of the target (`/debug/fgprof`), or below `path_prefix`
    /// (`checkouts`). Default: the path of the well-known name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Duration of the profile in seconds, sent as `?seconds=`. For `cpu` and profiles with a
    /// `path`; at most `collection_interval`. Default: 10 for `cpu`, otherwise not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Interval of scrapes. Default: the `collection_interval` of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection_interval: Option<Duration>,
    /// Whether to subtract the previous profile from a cumulative one. Default: the `delta` of the
    /// target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<bool>,
}

impl ScrapedProfile {
    /// Creates a well-known profile.
    pub(super) fn named(name: &str) -> Self {
        ScrapedProfile(ProfileSettings {
            name: name.to_owned(),
            path: None,
            seconds: None,
            collection_interval: None,
            delta: None,
        })
    }

    /// Returns the time that the target takes for the profile.
    pub(super) fn takes(&self) -> Option<Span> {
        let default = || (self.0.name == "cpu" && self.0.path.is_none()).then_some(CPU_SECONDS);
        let seconds = self.0.seconds.or_else(default)?;
        Some(Span::from_secs(u64::from(seconds)))
    }

    /// Returns the path and query, below this prefix unless the path is absolute.
    pub(super) fn path(&self, prefix: &str) -> String {
        let known = KNOWN.iter().find(|(name, _)| *name == self.0.name);
        let known = known.map(|(_, path)| *path);
        let path = self.0.path.as_deref().or(known).unwrap_or_default();
        let mut path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{}/{path}", prefix.trim_end_matches('/')),
        };
        if let Some(takes) = self.takes() {
            let and = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{and}seconds={}", takes.as_secs()));
        }
        path
    }
}

impl ScrapedProfile {
    /// Reports invalid settings, for a target with this interval.
    pub(super) fn check(&self, interval: Duration, problems: &mut Problems) {
        let ProfileSettings {
            name,
            path,
            seconds,
            collection_interval,
            ..
        } = &self.0;
        let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
        if name.is_empty() {
            problems.error(&["name"], "must not be empty");
        } else if path.is_none() && !known.contains(&name.as_str()) {
            let message = match tributary_config::closest(name, &known) {
                Some(known) => format!("unknown profile `{name}`, did you mean `{known}`?"),
                None if name == "trace" => {
                    "an execution trace is not a profile and is not supported".to_owned()
                }
                None => format!(
                    "unknown profile `{name}`: use one of {}, or set its `path`",
                    known.join(", ")
                ),
            };
            problems.error(&[], message);
        }
        if let Some(path) = path
            && format!("/{path}")
                .parse::<http::uri::PathAndQuery>()
                .is_err()
        {
            problems.error(&["path"], format!("`{path}` is not a URL path"));
        }
        if path
            .as_deref()
            .is_some_and(|path| path.contains("seconds="))
        {
            problems.error(
                &["path"],
                "must not contain `seconds`: set the key `seconds`",
            );
        }
        if path.as_deref().is_some_and(|path| path.contains("debug=")) {
            let message =
                "must not contain `debug=`, which requests text instead of a pprof file: remove it";
            problems.error(&["path"], message);
        }
        if collection_interval.is_some_and(|interval| interval.is_zero()) {
            problems.error(&["collection_interval"], "must be above 0");
        }
        let interval = collection_interval.unwrap_or(interval);
        match (seconds, self.takes()) {
            (Some(0), _) => problems.error(&["seconds"], "must be above 0"),
            (Some(_), _) if path.is_none() && name != "cpu" => problems.error(
                &["seconds"],
                "is only for `cpu` and profiles with a `path`: remove it",
            ),
            (Some(_), Some(takes)) if takes > *interval => problems.error(
                &["seconds"],
                format!("must be at most `collection_interval` ({interval})"),
            ),
            (None, Some(takes)) if takes > *interval => problems.error(
                &[],
                format!(
                    "`collection_interval` ({interval}) is shorter than a CPU profile ({CPU_SECONDS} seconds): set \
                     `seconds`, or raise the interval"
                ),
            ),
            _ => {}
        }
    }
}

impl<'de> Deserialize<'de> for ScrapedProfile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ProfileVisitor)
    }
}

struct ProfileVisitor;

impl<'de> Visitor<'de> for ProfileVisitor {
    type Value = ScrapedProfile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a profile, such as `heap`, or a mapping with `name`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<ScrapedProfile, E> {
        Ok(ScrapedProfile::named(name))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScrapedProfile, A::Error> {
        ProfileSettings::deserialize(MapAccessDeserializer::new(map)).map(ScrapedProfile)
    }
}

impl JsonSchema for ScrapedProfile {
    fn schema_name() -> Cow<'static, str> {
        "Profile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
        let settings = generator.subschema_for::<ProfileSettings>();
        json_schema!({"anyOf": [{"enum": names}, settings]})
    }
}
