//! Names of the detectors, and the switches of their attributes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The detectors of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the name of each detector is its documentation"
)]
pub enum BuiltInDetector {
    Env,
    System,
    Docker,
    Ec2,
    Ecs,
    Eks,
    ElasticBeanstalk,
    Lambda,
    Gcp,
    Azure,
    Aks,
    Heroku,
    Consul,
    KubernetesApi,
    /// The former name of [`KubernetesApi`](Self::KubernetesApi), with a section of its own.
    KubernetesNode,
}

impl BuiltInDetector {
    /// All detectors.
    pub const ALL: [BuiltInDetector; 15] = [
        BuiltInDetector::Env,
        BuiltInDetector::System,
        BuiltInDetector::Docker,
        BuiltInDetector::Ec2,
        BuiltInDetector::Ecs,
        BuiltInDetector::Eks,
        BuiltInDetector::ElasticBeanstalk,
        BuiltInDetector::Lambda,
        BuiltInDetector::Gcp,
        BuiltInDetector::Azure,
        BuiltInDetector::Aks,
        BuiltInDetector::Heroku,
        BuiltInDetector::Consul,
        BuiltInDetector::KubernetesApi,
        BuiltInDetector::KubernetesNode,
    ];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            BuiltInDetector::Env => "env",
            BuiltInDetector::System => "system",
            BuiltInDetector::Docker => "docker",
            BuiltInDetector::Ec2 => "ec2",
            BuiltInDetector::Ecs => "ecs",
            BuiltInDetector::Eks => "eks",
            BuiltInDetector::ElasticBeanstalk => "elastic_beanstalk",
            BuiltInDetector::Lambda => "lambda",
            BuiltInDetector::Gcp => "gcp",
            BuiltInDetector::Azure => "azure",
            BuiltInDetector::Aks => "aks",
            BuiltInDetector::Heroku => "heroku",
            BuiltInDetector::Consul => "consul",
            BuiltInDetector::KubernetesApi => "k8s_api",
            BuiltInDetector::KubernetesNode => "k8snode",
        }
    }

    /// Returns the detector with the name `name`. The names `gce` and `gke` are former names of `gcp`.
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "gce" | "gke" => Some(BuiltInDetector::Gcp),
            "elasticbeanstalk" => Some(BuiltInDetector::ElasticBeanstalk),
            name => Self::ALL
                .into_iter()
                .find(|detector| detector.name() == name),
        }
    }
}

/// The attributes of a detector.
pub trait AttributeTable: JsonSchema + 'static {
    /// Attributes with their defaults: whether they are emitted.
    const ATTRIBUTES: &'static [(&'static str, bool)];
    /// Names of the attributes.
    const NAMES: &'static [&'static str];
}

/// Declares the attributes of a detector, as in `attributes!(Name: "key" = true)`.
macro_rules! attributes {
    ($($name:ident: $($key:literal = $default:literal),+;)+) => {$(
        /// Attributes of a detector.
        #[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema)]
        pub struct $name;

        impl $crate::table::AttributeTable for $name {
            const ATTRIBUTES: &'static [(&'static str, bool)] = &[$(($key, $default)),+];
            const NAMES: &'static [&'static str] = &[$($key),+];
        }
    )+};
}
pub(crate) use attributes;

/// Switches of a detector's attributes: `NAME: {enabled: BOOLEAN}`. Attributes without a switch have their default.
#[derive(Clone, PartialEq)]
pub struct Switches<T> {
    set: BTreeMap<&'static str, bool>,
    table: PhantomData<T>,
}

impl<T: AttributeTable> Switches<T> {
    /// Whether the attribute is emitted.
    pub fn is_enabled(&self, key: &str) -> bool {
        let default = || {
            let mut all = T::ATTRIBUTES.iter();
            all.find(|(name, _)| *name == key)
                .is_some_and(|(_, on)| *on)
        };
        self.set.get(key).copied().unwrap_or_else(default)
    }

    /// Whether one of the attributes is emitted.
    pub(crate) fn any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.is_enabled(key))
    }
}

impl<T> Default for Switches<T> {
    fn default() -> Self {
        Switches {
            set: BTreeMap::new(),
            table: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Switches<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}

/// The value of a switch.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttributeSwitch {
    enabled: bool,
}

impl<T: AttributeTable> Serialize for Switches<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(T::ATTRIBUTES.len()))?;
        for (key, _) in T::ATTRIBUTES {
            let enabled = self.is_enabled(key);
            map.serialize_entry(key, &AttributeSwitch { enabled })?;
        }
        map.end()
    }
}

impl<'de, T: AttributeTable> Deserialize<'de> for Switches<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SwitchesVisitor(PhantomData))
    }
}

struct SwitchesVisitor<T>(PhantomData<T>);

impl<'de, T: AttributeTable> Visitor<'de> for SwitchesVisitor<T> {
    type Value = Switches<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of attributes to `{enabled: true}` or `{enabled: false}`")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Switches::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut switches = Switches::default();
        while let Some(name) = map.next_key_seed(NameVisitor::<T>(PhantomData))? {
            let value: AttributeSwitch = map.next_value()?;
            switches.set.insert(name, value.enabled);
        }
        Ok(switches)
    }
}

/// Reads the name of an attribute. An error at the name has the position of the name.
struct NameVisitor<T>(PhantomData<T>);

impl<'de, T: AttributeTable> DeserializeSeed<'de> for NameVisitor<T> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<T: AttributeTable> Visitor<'_> for NameVisitor<T> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an attribute")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        let mut names = T::NAMES.iter().copied();
        names
            .find(|name| *name == key)
            .ok_or_else(|| E::unknown_field(key, T::NAMES))
    }
}

impl<T: AttributeTable> JsonSchema for Switches<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}Switches", T::schema_name()).into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let properties: serde_json::Map<String, serde_json::Value> = T::ATTRIBUTES
            .iter()
            .map(|(key, default)| {
                let switch = serde_json::json!({
                    "type": "object",
                    "description": format!("The attribute `{key}`."),
                    "properties": {"enabled": {
                        "type": "boolean",
                        "default": default,
                        "description": format!("Whether the attribute is emitted. Default: {default}."),
                    }},
                    "required": ["enabled"],
                    "additionalProperties": false,
                });
                ((*key).to_owned(), switch)
            })
            .collect();
        json_schema!({
            "type": ["object", "null"],
            "additionalProperties": false,
            "properties": properties,
        })
    }
}
