//! Metrics in the making.

use std::collections::HashMap;
use std::sync::Arc;

use super::metadata::{Description, Membership, without_suffix};
use super::point::{Point, PointKind, nanoseconds};
use super::series::Series;
use tributary_prometheus::{ExemplarSample, Kind, NativeHistogram};

/// A metric with its points, in the order of the page.
pub(super) struct Family {
    /// Name of the metric.
    pub(super) name: String,
    /// Name of the family in its metadata.
    described_as: String,
    pub(super) description: Description,
    pub(super) kind: PointKind,
    pub(super) points: Vec<Point>,
    by_hash: HashMap<u64, usize>,
}

/// Values of a series at one time.
pub(super) struct Observation<'a> {
    pub(super) series: &'a Arc<Series>,
    /// Time in milliseconds since 1970.
    pub(super) time: i64,
    /// Start in milliseconds since 1970.
    pub(super) start: Option<i64>,
    pub(super) exemplars: Vec<ExemplarSample>,
}

impl Family {
    /// Creates a metric without points.
    pub(super) fn new(of: Membership, is_native: bool) -> Self {
        let Membership {
            mut description,
            described_as,
            family,
        } = of;
        if is_native {
            description.kind = Kind::Histogram;
        }
        let kind = match description.kind {
            Kind::Counter => PointKind::Sum { is_monotonic: true },
            Kind::Gauge | Kind::Unknown => PointKind::Gauge,
            Kind::Histogram if is_native => PointKind::Exponential,
            Kind::Histogram => PointKind::Histogram,
            Kind::Summary => PointKind::Summary,
            Kind::Info | Kind::StateSet => PointKind::Sum {
                is_monotonic: false,
            },
            Kind::GaugeHistogram => PointKind::Other,
        };
        Family {
            name: family,
            described_as,
            description,
            kind,
            points: Vec::new(),
            by_hash: HashMap::new(),
        }
    }

    /// Whether a metric is a part of the family.
    pub(super) fn includes(&self, metric: &str) -> bool {
        match self.kind {
            PointKind::Sum { .. } => without_suffix(metric) == self.described_as,
            PointKind::Gauge => metric == self.name,
            _ => without_suffix(metric) == self.name,
        }
    }

    /// Returns the point of a series, unless it has another time.
    fn point(&mut self, observation: Observation<'_>) -> Option<&mut Point> {
        let Observation {
            series,
            time,
            start,
            exemplars,
        } = observation;
        let hash = series.hash(self.kind.except());
        let at = *self.by_hash.entry(hash).or_insert_with(|| {
            self.points.push(Point::new(series.clone(), time));
            self.points.len() - 1
        });
        let point = self.points.get_mut(at)?;
        if point.time != time {
            return None;
        }
        if let Some(start) = start {
            point.start = u64::try_from(start)
                .ok()
                .map(|start| start.saturating_mul(1_000_000));
        }
        point.exemplars.extend(exemplars);
        Some(point)
    }

    /// Adds a sample. Returns false if the sample does not fit to the others of its point: it has another time, or it
    /// is a bucket or quantile without its label.
    pub(super) fn add(&mut self, observation: Observation<'_>, value: f64) -> bool {
        let series = observation.series.clone();
        let name = &*series.name;
        let is_created = name.strip_suffix("_created") == Some(self.described_as.as_str());
        let kind = self.kind;
        let Some(point) = self.point(observation) else {
            return false;
        };
        match kind {
            PointKind::Gauge | PointKind::Other => point.number = Some(value),
            _ if is_created => point.start = nanoseconds(value),
            PointKind::Sum { .. } => point.number = Some(value),
            PointKind::Exponential => {}
            PointKind::Histogram | PointKind::Summary if name.ends_with("_sum") => {
                point.sum = Some(value);
            }
            PointKind::Histogram | PointKind::Summary if name.ends_with("_count") => {
                point.count = Some(value);
            }
            PointKind::Histogram | PointKind::Summary => {
                let bound = match kind {
                    PointKind::Histogram => series.le,
                    _ => series.quantile,
                };
                let Some(bound) = bound else {
                    return false;
                };
                point.rows.push((bound, value));
            }
        }
        true
    }

    /// Adds a native histogram. Returns false if its point has another time.
    pub(super) fn add_native(
        &mut self,
        observation: Observation<'_>,
        native: Box<NativeHistogram>,
    ) -> bool {
        let Some(point) = self.point(observation) else {
            return false;
        };
        point.native = Some(native);
        true
    }

    /// Adds the end of a series, unless the point has a value.
    pub(super) fn add_end(&mut self, observation: Observation<'_>, stale: f64) {
        let hash = observation.series.hash(self.kind.except());
        let is_alive = self.by_hash.get(&hash).and_then(|at| self.points.get(*at));
        if is_alive.is_some_and(|point| point.has_value() && !point.is_stale()) {
            return;
        }
        match self.kind {
            PointKind::Exponential => {
                if let Some(point) = self.point(observation) {
                    point.count = Some(stale);
                }
            }
            _ => {
                self.add(observation, stale);
            }
        }
    }
}
