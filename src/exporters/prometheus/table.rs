//! The last value of every series, by metric.
//!
//! Each metric has its own lock. A request holds it for its points of one metric, a scrape for some
//! hundred series. A scrape therefore does not block requests for long, and clients with different
//! metrics do not contend.

mod expiry;

use std::collections::{self, BTreeMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use tokio::time::Instant;
use tracing::warn;

use self::expiry::ticks;
use super::config::Config;
use super::exponential::Exponential;
use super::family::Family;
use super::kind::Kind;
use super::naming::{Name, Namer};
use super::origin::{Origin, Origins};
use super::points::{Attributes, Nature, made, nature, number_point, points_of};
use super::room::Room;
use super::slot::{Place, Point, Rejection};
use super::value::{Histogram, Summary, Value};
use crate::component::BuildContext;
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::view::{Data, Metric, Request};

/// All series of one exporter.
#[derive(Debug)]
pub(super) struct Table {
    id: ComponentId,
    config: Config,
    namer: Namer,
    began: Instant,
    scrapes: AtomicU32,
    families: RwLock<Families>,
    origins: Origins,
    room: Room,
    /// Whether a conflict about the name of the metric that describes targets was logged.
    target_info_contested: AtomicBool,
    /// Rate-limited log of points without room.
    full: SampledLog,
}

/// The families, by their lookup keys.
#[derive(Debug)]
struct Families {
    /// Families by escaped name, in the order of the page.
    by_name: BTreeMap<Box<str>, Arc<Family>>,
    /// Families by the name, unit and type in requests.
    by_metric: HashMap<Box<[u8]>, Arc<Family>, RandomState>,
    /// Sample names that differ from the name of their family, with their family; `None` for the
    /// metric that describes targets.
    lines: collections::HashMap<Box<str>, Option<Arc<Family>>>,
}

/// Number of rejected points, by reason.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejected(pub(super) [usize; Rejection::ALL.len()]);

impl Rejected {
    pub(super) fn total(&self) -> usize {
        self.0.iter().sum()
    }

    fn count(&mut self, points: usize, why: Rejection) {
        self.0[why as usize] += points;
    }
}

/// Maximum bytes of resources and scopes that are read for a request; a resource counts once for
/// each of its scopes.
const MOST_ORIGINS: usize = 64 << 20;
/// Additional bytes for each byte of the request.
const MOST_ORIGINS_PER_BYTE: usize = 16;

/// State while a request is read.
struct Reading {
    now: u32,
    rejected: Rejected,
    key: Vec<u8>,
}

impl Table {
    /// Returns an empty table.
    pub(super) fn new(config: &Config, cx: &BuildContext) -> Self {
        let namer = Namer::new(config.strategy(), &config.namespace);
        let target_info = Name::of_metric(&namer.target_info());
        Table {
            id: cx.id.clone(),
            room: Room::new(cx, config.max_series),
            families: RwLock::new(Families {
                by_name: BTreeMap::new(),
                by_metric: HashMap::with_hasher(RandomState::default()),
                lines: [(target_info.escaped, None)].into(),
            }),
            origins: Origins::new(),
            config: config.clone(),
            namer,
            began: Instant::now(),
            scrapes: AtomicU32::new(0),
            target_info_contested: AtomicBool::new(false),
            full: SampledLog::of_one_line(),
        }
    }

    /// Updates the metrics of series and memory.
    pub(super) fn show(&self) {
        self.room.show();
    }

    /// Logs that points would begin series for which there is no room.
    fn log_no_room(&self, points: usize) {
        let Some(suppressed) = self.full.admit() else {
            return;
        };
        let (reason, advice) = match self.room.has_most_series() {
            true => (
                "the limit `max_series` is reached",
                "Raise `max_series`, or send fewer series",
            ),
            false => (
                "the memory budget is used up",
                "Raise the limit of `memory_limiter`, or send fewer series",
            ),
        };
        warn!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "exporter",
            reason,
            max_series = self.config.max_series,
            dropped_points = points,
            suppressed = (suppressed > 0).then_some(suppressed),
            "Dropped points of new series. {advice}."
        );
    }

    /// Accepts the valid points of a request, and returns the rejected ones.
    pub(super) fn take(&self, request: &[u8]) -> Rejected {
        let mut reading = Reading {
            now: self.now(),
            rejected: Rejected::default(),
            key: Vec::new(),
        };
        // A large request may contain a resource that thousands of scopes share.
        let mut left = MOST_ORIGINS + request.len().saturating_mul(MOST_ORIGINS_PER_BYTE);
        for resource in Request::new(request).resources() {
            for scope in resource.scopes() {
                let bytes = Origins::bytes_to_read(&resource, &scope);
                let Some(others) = left.checked_sub(bytes) else {
                    let points = scope.metrics().map(points_of).sum();
                    reading.rejected.count(points, Rejection::NoRoom);
                    continue;
                };
                left = others;
                let within = (&self.config, &self.namer, &self.room);
                let (now, key) = (reading.now, &mut reading.key);
                let origin = self.origins.of(&resource, &scope, within, now, key);
                for metric in scope.metrics() {
                    match &origin {
                        Some(origin) => self.metric(metric, origin, &mut reading),
                        None => reading.rejected.count(points_of(metric), Rejection::NoRoom),
                    }
                }
            }
        }
        let no_room = reading.rejected.0[Rejection::NoRoom as usize];
        if no_room > 0 {
            self.log_no_room(no_room);
        }
        reading.rejected
    }

    /// Returns the families in the order of their names, and the number of the scrape.
    pub(super) fn families(&self) -> (Vec<Arc<Family>>, u32) {
        let scrape = self.scrapes.fetch_add(1, Relaxed).wrapping_add(1);
        let families = self.families.read();
        (families.by_name.values().cloned().collect(), scrape)
    }

    /// Whether a family or a sample has that name.
    pub(super) fn has(&self, escaped: &str) -> bool {
        let families = self.families.read();
        families.by_name.contains_key(escaped) || families.lines.contains_key(escaped)
    }

    /// Returns the name of the metric that describes targets, and the described targets.
    pub(super) fn targets(&self) -> (Name, Vec<Arc<Origin>>) {
        let name = Name::of_metric(&self.namer.target_info());
        (name, self.origins.targets())
    }

    fn now(&self) -> u32 {
        // The first tick is 1, so nothing is expired before tick 0.
        ticks(self.began.elapsed()).saturating_add(1)
    }

    fn metric(&self, metric: Metric<'_>, origin: &Arc<Origin>, reading: &mut Reading) {
        let Some(data) = metric.data() else {
            return;
        };
        let Some(nature) = nature(&metric, &data) else {
            reading
                .rejected
                .count(points_of(metric), Rejection::Invalid);
            return;
        };
        loop {
            let family = match self.family(&metric, nature, &mut reading.key) {
                Ok(family) => family,
                Err(why) => {
                    reading.rejected.count(points_of(metric), why);
                    return;
                }
            };
            let mut series = family.lock();
            if series.closed {
                continue;
            }
            let place = Place {
                origin,
                namer: &self.namer,
                room: &self.room,
                now: reading.now,
                // Read under the lock: a scrape that has passed a slot of this family is counted
                // already.
                scrape: self.scrapes.load(Relaxed),
            };
            let rejected = &mut reading.rejected;
            let mut take = |message, point: Result<Point, Rejection>, number| {
                let attributes = Attributes::new(message, number);
                let taken = point.and_then(|point| series.take(attributes, point, place));
                if let Err(why) = taken {
                    rejected.count(1, why);
                }
            };
            match data {
                Data::Gauge { points } | Data::Sum { points, .. } => {
                    for point in points {
                        take(point.message(), number_point(&point, nature), 7);
                    }
                }
                Data::Histogram { points, .. } => {
                    for point in points {
                        let value = || Histogram::read(&point).map(Box::new).map(Value::Histogram);
                        let exemplars = point.exemplars();
                        let times = (point.start_time_unix_nano(), point.time_unix_nano());
                        let made = made(times, point.flags(), nature, exemplars, || value().ok());
                        take(point.message(), made, 9);
                    }
                }
                Data::ExponentialHistogram { points, .. } => {
                    for point in points {
                        let value = || Some(Value::Exponential(Exponential::read(&point)?.into()));
                        let exemplars = point.exemplars();
                        let times = (point.start_time_unix_nano(), point.time_unix_nano());
                        let made = made(times, point.flags(), nature, exemplars, value);
                        take(point.message(), made, 1);
                    }
                }
                Data::Summary { points } => {
                    for point in points {
                        let value = || Some(Value::Summary(Summary::read(&point).into()));
                        let times = (point.start_time_unix_nano(), point.time_unix_nano());
                        let made = made(times, point.flags(), nature, std::iter::empty(), value);
                        take(point.message(), made, 7);
                    }
                }
            }
            return;
        }
    }

    /// Returns the family of a metric; creates it for the first metric of its name.
    fn family(
        &self,
        metric: &Metric<'_>,
        Nature { kind, suffix, .. }: Nature,
        key: &mut Vec<u8>,
    ) -> Result<Arc<Family>, Rejection> {
        let (name, unit) = (metric.name(), metric.unit());
        key.clear();
        key.extend([kind as u8, suffix as u8]);
        key.extend_from_slice(&(name.len() as u64).to_le_bytes());
        key.extend_from_slice(name.as_bytes());
        key.extend_from_slice(unit.as_bytes());
        let families = self.families.read();
        if let Some(family) = families.by_metric.get(key.as_slice()) {
            return Ok(family.clone());
        }
        drop(families);
        let Some(made) = self.namer.metric(name, unit, suffix) else {
            return Err(Rejection::Invalid);
        };
        let escaped = Name::of_metric(&made).escaped;
        let mut families = self.families.write();
        let line = |suffix: &&str| format!("{escaped}{suffix}").into_boxed_str();
        let family = match families.by_name.get(&escaped) {
            Some(family) if family.kind == kind => family.clone(),
            Some(family) => {
                self.contested(Some(family), &escaped, (name, kind));
                return Err(Rejection::Conflict);
            }
            None => {
                let holder = |line: &str| {
                    let of_line = families.lines.get(line);
                    let family = || families.by_name.get(line).cloned().map(Some);
                    of_line.cloned().or_else(family)
                };
                let mut all = kind.suffixes().iter().map(line);
                let holder = holder(&escaped).or_else(|| all.find_map(|line| holder(&line)));
                if let Some(holder) = holder {
                    self.contested(holder.as_ref(), &escaped, (name, kind));
                    return Err(Rejection::Conflict);
                }
                let family = Family::new(
                    &made,
                    kind,
                    metric.description(),
                    self.namer.unit(&made, unit),
                );
                let family = Arc::new(family);
                if !self.room.take(0, family_bytes(&family)) {
                    return Err(Rejection::NoRoom);
                }
                let lines = kind.suffixes().iter().map(line);
                let lines = lines.map(|line| (line, Some(family.clone())));
                families.lines.extend(lines);
                families.by_name.insert(escaped, family.clone());
                family
            }
        };
        if family.aliases.load(Relaxed) >= ALIASES {
            return Ok(family);
        }
        if !self.room.take(0, key.len() + ENTRY_BYTES) {
            return Err(Rejection::NoRoom);
        }
        let before = families
            .by_metric
            .insert(key.as_slice().into(), family.clone());
        match before {
            Some(_) => self.room.give(0, key.len() + ENTRY_BYTES),
            None => {
                family.aliases.fetch_add(1, Relaxed);
            }
        }
        Ok(family)
    }

    /// Logs a name conflict, once for each family that holds the name; `None` holds the name of
    /// `target_info`.
    fn contested(&self, holder: Option<&Arc<Family>>, escaped: &str, (of, kind): (&str, Kind)) {
        let told = match holder {
            Some(family) => &family.contested,
            None => &self.target_info_contested,
        };
        if !told.swap(true, Relaxed) {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                name = escaped,
                of,
                exposed = holder.map_or("gauge", |family| family.kind.name()),
                dropped = kind.name(),
                "Two metrics have the same Prometheus name, or the same name of a series (such as `h_count` of a \
                 histogram `h`), and different types. Dropping the points of the second metric until the first one \
                 expires; rename one of them"
            );
        }
    }
}

fn family_bytes(family: &Family) -> usize {
    size_of::<Family>() + 4 * family.name.full.len() + family.help.len() + ENTRY_BYTES
}

/// Maximum number of aliases (name, unit and type) remembered for a family. Further aliases are
/// resolved each time.
const ALIASES: usize = 64;
/// Approximate size of a map entry in bytes.
const ENTRY_BYTES: usize = 64;
