//! The metrics of one scrape, by resource and scope.

use std::collections::HashMap;
use std::sync::Arc;

use super::family::{Family, Observation};
use super::metadata::Descriptions;
use super::point::{Point, stale};
use super::resource::{Attributes, resource};
use super::series::{Scope, Series};
use tributary_prometheus::{Kind, NativeHistogram};

/// Name of the metric whose labels become resource attributes.
const TARGET_INFO: &str = "target_info";

/// Memory of a metric besides its names and all points but the first, in bytes. Vectors and tables double, so that half
/// of them may be empty, and the first element takes the place of four.
const FAMILY: usize =
    2 * size_of::<Family>() + 3 * size_of::<Point>() + 8 * size_of::<(u64, usize)>();

/// Memory of an entry of a table by names, besides the name, in bytes.
const NAME: usize = 2 * size_of::<((Box<str>, bool), usize)>();

/// The metrics of one scrape.
pub(super) struct Transaction {
    pub(super) resources: Vec<OfResource>,
    /// Places of resources by job and instance.
    by_origin: HashMap<(String, String), usize>,
    /// Place of the resource of the target itself.
    own: Option<usize>,
    /// Memory of new metrics, scopes and resources in bytes, since the last call of [`take_bytes`](Self::take_bytes).
    bytes: usize,
}

/// Metrics of one resource.
pub(super) struct OfResource {
    pub(super) attributes: Attributes,
    pub(super) scopes: Vec<OfScope>,
    by_scope: HashMap<Scope, usize>,
}

/// Metrics of one scope.
pub(super) struct OfScope {
    /// The scope, unless it is the receiver.
    pub(super) scope: Option<Scope>,
    pub(super) families: Vec<Family>,
    /// Places of metrics by the names of their samples, native histograms apart.
    by_name: HashMap<(Box<str>, bool), usize>,
}

/// The target of a scrape.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) job: String,
    pub(super) instance: String,
    /// Attributes that follow from labels of the target.
    pub(super) of_target: Attributes,
}

impl Transaction {
    /// Creates an empty transaction.
    pub(super) fn new() -> Self {
        Transaction {
            resources: Vec::new(),
            by_origin: HashMap::new(),
            own: None,
            bytes: 0,
        }
    }

    /// Adds a sample. Returns false if it does not fit to the others of its point.
    pub(super) fn add(
        &mut self,
        origin: &Origin,
        descriptions: &Descriptions,
        observation: Observation<'_>,
        value: f64,
    ) -> bool {
        if &*observation.series.name == TARGET_INFO {
            let at = self.resource(origin, observation.series);
            if let Some(of_resource) = self.resources.get_mut(at) {
                of_resource.describe(observation.series);
            }
            return true;
        }
        let family = self.family(origin, descriptions, observation.series, false);
        family.is_some_and(|family| family.add(observation, value))
    }

    /// Adds a native histogram. Returns false if its point has another time.
    pub(super) fn add_native(
        &mut self,
        origin: &Origin,
        descriptions: &Descriptions,
        observation: Observation<'_>,
        native: Box<NativeHistogram>,
    ) -> bool {
        let family = self.family(origin, descriptions, observation.series, true);
        family.is_some_and(|family| family.add_native(observation, native))
    }

    /// Returns the memory of the metrics, scopes and resources that were added since the last call, in bytes.
    pub(super) fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// Number of points.
    pub(super) fn points(&self) -> usize {
        let scopes = self.resources.iter().flat_map(|resource| &resource.scopes);
        let families = scopes.flat_map(|scope| &scope.families);
        families.map(|family| family.points.len()).sum()
    }

    /// Sets the start of all points that have none, in nanoseconds since 1970.
    pub(super) fn set_starts(&mut self, start: u64) {
        let scopes = self
            .resources
            .iter_mut()
            .flat_map(|resource| &mut resource.scopes);
        let families = scopes.flat_map(|scope| &mut scope.families);
        for point in families.flat_map(|family| &mut family.points) {
            point.start.get_or_insert(start);
        }
    }

    /// Adds the ends of series.
    pub(super) fn add_ends<'s>(
        &mut self,
        origin: &Origin,
        descriptions: &Descriptions,
        series: impl IntoIterator<Item = &'s Arc<Series>>,
        time: i64,
    ) {
        for series in series {
            if &*series.name == TARGET_INFO {
                continue;
            }
            // Only native histograms have samples under the name of a family of histograms.
            let own = descriptions.get(&series.name);
            let is_native = own.is_some_and(|own| own.kind == Kind::Histogram);
            let observation = Observation {
                series,
                time,
                start: None,
                exemplars: Vec::new(),
            };
            if let Some(family) = self.family(origin, descriptions, series, is_native) {
                family.add_end(observation, stale());
            }
        }
    }

    fn family(
        &mut self,
        origin: &Origin,
        descriptions: &Descriptions,
        series: &Series,
        is_native: bool,
    ) -> Option<&mut Family> {
        let resource = self.resource(origin, series);
        let of_resource = self.resources.get_mut(resource)?;
        let scope = of_resource.scope(series.scope.as_deref(), &mut self.bytes);
        let of_scope = of_resource.scopes.get_mut(scope)?;
        let family = of_scope.family(descriptions, &series.name, is_native, &mut self.bytes);
        of_scope.families.get_mut(family)
    }

    fn resource(&mut self, origin: &Origin, series: &Series) -> usize {
        let (job, instance) = match series.origin.as_deref() {
            Some((job, instance)) => (job.as_str(), instance.as_str()),
            None => (origin.job.as_str(), origin.instance.as_str()),
        };
        if let (None, Some(own)) = (&series.origin, self.own) {
            return own;
        }
        let key = (job.to_owned(), instance.to_owned());
        let (resources, bytes) = (&mut self.resources, &mut self.bytes);
        let at = *self.by_origin.entry(key).or_insert_with(|| {
            *bytes += 4 * (size_of::<OfResource>() + job.len() + instance.len());
            resources.push(OfResource {
                attributes: resource(job, instance, &origin.of_target),
                scopes: Vec::new(),
                by_scope: HashMap::new(),
            });
            resources.len() - 1
        });
        if series.origin.is_none() {
            self.own = Some(at);
        }
        at
    }
}

impl OfResource {
    /// Adds the labels of `target_info`.
    fn describe(&mut self, series: &Series) {
        for (name, value) in series.labels.iter() {
            if !matches!(name, "job" | "instance" | "__name__") {
                self.attributes.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Returns the place of a scope. Adds the memory of a new one to `bytes`.
    fn scope(&mut self, scope: Option<&Scope>, bytes: &mut usize) -> usize {
        let key = scope.cloned().unwrap_or_default();
        if let Some(at) = self.by_scope.get(&key) {
            return *at;
        }
        *bytes += 2 * (size_of::<OfScope>() + size_of::<(Scope, usize)>() + key.bytes());
        self.scopes.push(OfScope {
            scope: scope.filter(|scope| **scope != Scope::default()).cloned(),
            families: Vec::new(),
            by_name: HashMap::new(),
        });
        self.by_scope.insert(key, self.scopes.len() - 1);
        self.scopes.len() - 1
    }
}

impl OfScope {
    /// Returns the place of a metric. Adds the memory of a new one to `bytes`.
    fn family(
        &mut self,
        descriptions: &Descriptions,
        metric: &str,
        is_native: bool,
        bytes: &mut usize,
    ) -> usize {
        let key = (Box::from(metric), is_native);
        if let Some(at) = self.by_name.get(&key) {
            return *at;
        }
        let membership = descriptions.of(metric);
        let family = (Box::from(membership.family.as_str()), is_native);
        let known = self.by_name.get(&family).copied();
        let includes = |at: &usize| {
            self.families
                .get(*at)
                .is_some_and(|family| family.includes(metric))
        };
        let at = known.filter(includes).unwrap_or_else(|| {
            let names = 2 * membership.family.len() + membership.described_as.len();
            *bytes += FAMILY + NAME + names;
            self.families.push(Family::new(membership, is_native));
            self.families.len() - 1
        });
        *bytes += NAME + metric.len();
        self.by_name.entry(family).or_insert(at);
        self.by_name.insert(key, at);
        at
    }
}
