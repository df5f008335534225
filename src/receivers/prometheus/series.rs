//! Series of a target, with what their points need at each scrape.

use std::sync::atomic::AtomicU64;

use tributary_prometheus::{LabelSet, number};
use xxhash_rust::xxh3::Xxh3Default;

/// Prefix of labels that describe the instrumentation scope.
const SCOPE: &str = "otel_scope_";

/// A series after relabelling.
#[derive(Debug)]
pub(super) struct Series {
    /// Name of the metric.
    pub(super) name: Box<str>,
    /// All labels, the name included.
    pub(super) labels: LabelSet,
    /// Job and instance, if they are not those of the target.
    pub(super) origin: Option<Box<(String, String)>>,
    /// Instrumentation scope according to the labels.
    pub(super) scope: Option<Box<Scope>>,
    /// Value of the label `le`.
    pub(super) le: Option<f64>,
    /// Value of the label `quantile`.
    pub(super) quantile: Option<f64>,
    hashes: Hashes,
    /// Last scrape for which the end of the series would be reported.
    pub(super) tracked: AtomicU64,
}

/// Hashes of the attributes of points.
#[derive(Debug)]
struct Hashes {
    all: u64,
    without_le: u64,
    without_quantile: u64,
}

/// An instrumentation scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) schema_url: String,
    pub(super) attributes: Vec<(String, String)>,
}

impl Scope {
    /// Memory of the texts and attributes in bytes.
    pub(super) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes = attributes
            .map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len());
        let texts = self.name.len() + self.version.len() + self.schema_url.len();
        texts + attributes.sum::<usize>()
    }
}

/// A label that is not an attribute of a point, because the point has it in another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Except {
    /// None.
    Nothing,
    /// The bound of a bucket.
    Le,
    /// The quantile of a summary.
    Quantile,
}

impl Except {
    fn name(self) -> Option<&'static str> {
        match self {
            Except::Nothing => None,
            Except::Le => Some("le"),
            Except::Quantile => Some("quantile"),
        }
    }
}

impl Series {
    /// Creates a series of a target with this job and instance.
    pub(super) fn new(labels: LabelSet, job: &str, instance: &str) -> Self {
        let own = |name, of_target: &str| match labels.get(name) {
            None | Some("") => of_target.to_owned(),
            Some(own) => own.to_owned(),
        };
        let origin = (own("job", job), own("instance", instance));
        let is_other = origin.0 != job || origin.1 != instance;
        let value = |name| labels.get(name).and_then(number::parse);
        Series {
            name: labels.metric().into(),
            origin: is_other.then(|| Box::new(origin)),
            scope: scope(&labels),
            le: value("le"),
            quantile: value("quantile"),
            hashes: Hashes {
                all: hash(&labels, Except::Nothing),
                without_le: hash(&labels, Except::Le),
                without_quantile: hash(&labels, Except::Quantile),
            },
            labels,
            tracked: AtomicU64::new(0),
        }
    }

    /// Returns a hash that is equal for the series of one point.
    pub(super) fn hash(&self, except: Except) -> u64 {
        match except {
            Except::Nothing => self.hashes.all,
            Except::Le => self.hashes.without_le,
            Except::Quantile => self.hashes.without_quantile,
        }
    }

    /// Returns the attributes of the point.
    pub(super) fn attributes(&self, except: Except) -> impl Iterator<Item = (&str, &str)> {
        attributes(&self.labels, except)
    }

    /// Memory of the series in bytes.
    pub(super) fn bytes(&self) -> usize {
        let scope = self.scope.as_ref().map_or(0, |_| self.labels.bytes());
        size_of::<Self>() + self.name.len() + self.labels.bytes() + scope
    }
}

fn attributes(labels: &LabelSet, except: Except) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(move |(name, _)| {
        !matches!(*name, "__name__" | "job" | "instance")
            && Some(*name) != except.name()
            && !name.starts_with(SCOPE)
    })
}

fn hash(labels: &LabelSet, except: Except) -> u64 {
    let mut hasher = Xxh3Default::new();
    for (name, value) in attributes(labels, except) {
        for text in [name, value] {
            hasher.update(text.as_bytes());
            // Not a part of UTF-8.
            hasher.update(&[0xff]);
        }
    }
    hasher.digest()
}

fn scope(labels: &LabelSet) -> Option<Box<Scope>> {
    let mut scope: Option<Box<Scope>> = None;
    for (name, value) in labels.iter() {
        let Some(name) = name.strip_prefix(SCOPE) else {
            continue;
        };
        let scope = scope.get_or_insert_default();
        match name {
            "name" => value.clone_into(&mut scope.name),
            "version" => value.clone_into(&mut scope.version),
            "schema_url" => value.clone_into(&mut scope.schema_url),
            name => scope.attributes.push((name.to_owned(), value.to_owned())),
        }
    }
    scope
}
