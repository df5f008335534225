//! Common labels of all series of a resource and scope.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;

use super::config::{Config, SERVICE_ATTRIBUTES};
use super::hash::{hash_name, hash_value, is_reserved};
use super::naming::{Name, Namer, is_of_scope_itself};
use super::room::Room;
use tributary_otlp::view::{AnyValue, Attribute, Resource, ResourceEntry, ScopeEntry, attribute};

/// The labels of a resource and scope.
#[derive(Debug)]
pub(super) struct Origin {
    labels: Vec<Label>,
    /// The sum of the hashes of the labels.
    pub(super) hash: u64,
    target: Option<Target>,
    /// Time of the last request, in ticks of the table.
    seen: AtomicU32,
}

#[derive(Debug)]
pub(super) struct Label {
    pub(super) name: Name,
    pub(super) value: Box<str>,
    hash: u64,
}

/// A resource with an identity: it has a `job` and an `instance`.
#[derive(Debug)]
pub(super) struct Target {
    job: Box<str>,
    instance: Box<str>,
    /// Labels of `target_info`.
    pub(super) labels: Vec<(Name, String)>,
}

impl Origin {
    pub(super) fn labels(&self) -> impl Iterator<Item = (&Name, &str)> {
        self.labels.iter().map(|label| (&label.name, &*label.value))
    }

    /// Returns the value of the label with that name, given the name's hash.
    pub(super) fn value_of(&self, hash: u64, escaped: &str) -> Option<&str> {
        let mut same = self.labels.iter().filter(|label| label.hash == hash);
        let label = same.find(|label| *label.name.escaped == *escaped)?;
        Some(&label.value)
    }

    fn new(
        resource: Option<Resource<'_>>,
        scope: &ScopeEntry<'_>,
        config: &Config,
        namer: &Namer,
    ) -> Self {
        let target = resource.and_then(|resource| Target::new(resource, namer));
        let mut labels = Shared::default();
        let configured = config.const_labels.iter();
        for (key, value) in configured {
            labels.add(namer.label(key), value);
        }
        if let Some(resource) = resource {
            labels.add(Some("job".to_owned()), &job(resource).unwrap_or_default());
            labels.add(
                Some("instance".to_owned()),
                &instance(resource).unwrap_or_default(),
            );
        }
        if !config.without_scope_info {
            let itself = scope.scope();
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            for (label, value) in [
                ("otel_scope_name", text(itself.map(|scope| scope.name()))),
                (
                    "otel_scope_version",
                    text(itself.map(|scope| scope.version())),
                ),
                ("otel_scope_schema_url", scope.schema_url().to_owned()),
            ] {
                labels.add(Some(label.to_owned()), &value);
            }
            let attributes = itself.into_iter().flat_map(|scope| scope.attributes());
            labels.add_all(
                attributes.filter(|attribute| !is_of_scope_itself(attribute.key())),
                |key| namer.label(&format!("otel_scope_{key}")),
            );
        }
        let attributes = resource
            .into_iter()
            .flat_map(|resource| resource.attributes());
        labels.add_all(
            attributes.filter(|attribute| config.is_resource_label(attribute.key())),
            |key| namer.label(key),
        );
        let labels = labels.0;
        let sum = |sum: u64, label: &Label| sum.wrapping_add(hash_value(label.hash, &label.value));
        Origin {
            hash: labels.iter().fold(0, sum),
            labels,
            target,
            seen: AtomicU32::new(0),
        }
    }

    /// Returns the approximate memory in bytes.
    fn bytes(&self) -> usize {
        let label = |label: &Label| 96 + 2 * label.name.full.len() + label.value.len();
        let of_target = |target: &Target| {
            let label = |(name, value): &(Name, String)| 96 + 2 * name.full.len() + value.len();
            target.labels.iter().map(label).sum::<usize>()
        };
        let labels = self.labels.iter().map(label).sum::<usize>();
        size_of::<Origin>() + labels + self.target.as_ref().map_or(0, of_target)
    }
}

impl Target {
    fn new(resource: Resource<'_>, namer: &Namer) -> Option<Self> {
        let (job, instance) = (job(resource)?, instance(resource)?);
        if job.is_empty() || instance.is_empty() {
            return None;
        }
        let mut labels = Shared::default();
        labels.add(Some("job".to_owned()), &job);
        labels.add(Some("instance".to_owned()), &instance);
        let others = resource
            .attributes()
            .filter(|attribute| !SERVICE_ATTRIBUTES.contains(&attribute.key()));
        labels.add_all(others, |key| namer.label(key));
        let labels = labels.0.into_iter();
        Some(Target {
            job: job.into(),
            instance: instance.into(),
            labels: labels
                .map(|label| (label.name, label.value.into()))
                .collect(),
        })
    }
}

/// Labels under construction, and their names.
#[derive(Default)]
struct Shared(Vec<Label>, HashSet<Box<str>>);

impl Shared {
    /// Adds a label, unless the name is taken or the value is empty. Names that any metric type
    /// reserves are replaced, because the labels apply to metrics of all types.
    fn add(&mut self, name: Option<String>, value: &str) {
        let Some(name) = name.filter(|_| !value.is_empty()) else {
            return;
        };
        let name = match is_reserved(&name, &["le", "quantile"]) {
            true => Name::of_label(&format!("exported_{name}")),
            false => Name::of_label(&name),
        };
        if !self.1.insert(name.escaped.as_ref().into()) {
            return;
        }
        self.0.push(Label {
            hash: hash_name(&name.escaped),
            name,
            value: value.into(),
        });
    }

    /// Adds labels made of attributes. Values of several attributes with one label name are joined
    /// in the order of their keys.
    fn add_all<'a>(
        &mut self,
        attributes: impl Iterator<Item = Attribute<'a>>,
        name: impl Fn(&str) -> Option<String>,
    ) {
        let mut sorted: BTreeMap<&str, Option<AnyValue<'_>>> = BTreeMap::new();
        sorted.extend(attributes.map(|attribute| (attribute.key(), attribute.value())));
        let mut joined: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (key, value) in sorted {
            let value = value.as_ref().map(AnyValue::to_text).unwrap_or_default();
            let Some(name) = name(key).filter(|_| !value.is_empty()) else {
                continue;
            };
            let escaped = Name::of_label(&name).escaped.into_string();
            let (_, values) = joined.entry(escaped).or_insert((name, String::new()));
            if !values.is_empty() {
                values.push(';');
            }
            values.push_str(&value);
        }
        for (name, value) in joined.into_values() {
            self.add(Some(name), &value);
        }
    }
}

fn job(resource: Resource<'_>) -> Option<String> {
    let text =
        |key| attribute(resource.attributes(), key).map(|value| value.to_text().into_owned());
    let name = text("service.name")?;
    Some(match text("service.namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    })
}

fn instance(resource: Resource<'_>) -> Option<String> {
    attribute(resource.attributes(), "service.instance.id")
        .map(|value| value.to_text().into_owned())
}

/// Recently active origins, by their identifying bytes.
#[derive(Debug)]
pub(super) struct Origins(RwLock<HashMap<Box<[u8]>, Arc<Origin>, RandomState>>);

impl Origins {
    /// Returns the state without origins.
    pub(super) fn new() -> Self {
        Origins(RwLock::new(HashMap::with_hasher(RandomState::default())))
    }

    /// Returns the number of bytes that must be read to find the origin of a scope.
    pub(super) fn bytes_to_read(resource: &ResourceEntry<'_>, scope: &ScopeEntry<'_>) -> usize {
        let resource = resource.resource();
        let scope = scope.scope();
        resource.map_or(0, |resource| resource.message().encoded().len())
            + scope.map_or(0, |scope| scope.message().encoded().len())
    }

    /// Returns the origin of a scope's metrics; `None` if there is no room for another one. `key`
    /// is a buffer.
    pub(super) fn of(
        &self,
        resource: &ResourceEntry<'_>,
        scope: &ScopeEntry<'_>,
        (config, namer, room): (&Config, &Namer, &Room),
        now: u32,
        key: &mut Vec<u8>,
    ) -> Option<Arc<Origin>> {
        let described = resource.resource();
        key.clear();
        let itself = scope.scope();
        let encoded = [
            described.map_or(&[][..], |resource| resource.message().encoded()),
            itself.map_or(&[][..], |scope| scope.message().encoded()),
            scope.schema_url().as_bytes(),
        ];
        for part in encoded {
            key.extend_from_slice(&(part.len() as u64).to_le_bytes());
            key.extend_from_slice(part);
        }
        let known = self.0.read();
        if let Some(origin) = known.get(key.as_slice()) {
            origin.seen.store(now, Relaxed);
            return Some(origin.clone());
        }
        drop(known);
        let origin = Origin::new(described, scope, config, namer);
        if !room.take(0, origin.bytes() + key.len()) {
            return None;
        }
        origin.seen.store(now, Relaxed);
        let mut known = self.0.write();
        let added = Arc::new(origin);
        if let Some(before) = known.insert(key.as_slice().into(), added.clone()) {
            room.give(0, before.bytes() + key.len());
        }
        Some(added)
    }

    /// Returns the targets with series, each once. If several resources identify as the same
    /// target, the newest wins.
    pub(super) fn targets(&self) -> Vec<Arc<Origin>> {
        let known = self.0.read();
        let mut targets: BTreeMap<(&str, &str), &Arc<Origin>> = BTreeMap::new();
        for origin in known.values() {
            let Some(target) = origin
                .target
                .as_ref()
                .filter(|_| Arc::strong_count(origin) > 1)
            else {
                continue;
            };
            let best = targets
                .entry((&target.job, &target.instance))
                .or_insert(origin);
            if best.seen.load(Relaxed) < origin.seen.load(Relaxed) {
                *best = origin;
            }
        }
        targets.into_values().cloned().collect()
    }

    /// Removes origins without series that have sent nothing since `before`.
    pub(super) fn expire(&self, before: u32, room: &Room) {
        let mut known = self.0.write();
        known.retain(|key, origin| {
            let used = Arc::strong_count(origin) > 1 || origin.seen.load(Relaxed) >= before;
            if !used {
                room.give(0, origin.bytes() + key.len());
            }
            used
        });
    }
}

impl Origin {
    /// Returns the target that the origin belongs to.
    pub(super) fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }
}
