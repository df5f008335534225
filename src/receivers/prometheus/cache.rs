//! State of a target between scrapes: its series and metadata.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::metadata::Descriptions;
use super::series::Series;
use tributary_memory::{Budget, NoRoom, Permit};

/// Memory of an entry besides its text and series, in bytes.
const ENTRY: usize = 96;

/// Smallest step in which the permit grows, in bytes.
const STEP: usize = 16 << 10;

/// Series and metadata of one target.
pub(super) struct Cache {
    entries: HashMap<Box<[u8]>, Entry>,
    /// Series whose end has to be reported if they are missing from the next scrape.
    previous: Vec<Arc<Series>>,
    current: Vec<Arc<Series>>,
    pub(super) descriptions: Descriptions,
    /// Number of the current scrape, from 1.
    scrape: u64,
    /// Number of entries after the last successful scrape.
    settled: usize,
    bytes: usize,
    permit: Permit,
}

/// A series on pages of the target.
struct Entry {
    /// The series; `None` if a rule drops it.
    series: Option<Arc<Series>>,
    last: u64,
}

/// Result of a lookup.
pub(super) enum Known {
    /// The series is new.
    New,
    /// A rule drops the series.
    Dropped,
    /// The series is known. `again`: the same scrape had it before.
    Series { series: Arc<Series>, again: bool },
}

impl Cache {
    /// Creates an empty cache.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Cache {
            entries: HashMap::new(),
            previous: Vec::new(),
            current: Vec::new(),
            descriptions: Descriptions::default(),
            scrape: 1,
            settled: 0,
            bytes: 0,
            permit: budget.empty_permit(),
        }
    }

    /// Looks a series up by its text on the page.
    pub(super) fn get(&mut self, text: &[u8]) -> Known {
        let scrape = self.scrape;
        let Some(entry) = self.entries.get_mut(text) else {
            return Known::New;
        };
        let again = entry.last == scrape;
        entry.last = scrape;
        match &entry.series {
            None => Known::Dropped,
            Some(series) => Known::Series {
                series: series.clone(),
                again,
            },
        }
    }

    /// Adds a series, or the fact that it is dropped.
    ///
    /// # Errors
    /// The memory budget has no room for the series.
    pub(super) fn add(
        &mut self,
        text: &[u8],
        series: Option<Series>,
    ) -> Result<Option<Arc<Series>>, NoRoom> {
        let bytes = bytes(text, series.as_ref());
        self.bytes += bytes;
        if let Err(no_room) = self.reserve() {
            self.bytes -= bytes;
            return Err(no_room);
        }
        let series = series.map(Arc::new);
        let entry = Entry {
            series: series.clone(),
            last: self.scrape,
        };
        self.entries.insert(text.into(), entry);
        Ok(series)
    }

    /// Makes the permit cover the cache.
    ///
    /// # Errors
    /// The memory budget has no room.
    pub(super) fn reserve(&mut self) -> Result<(), NoRoom> {
        let needed = self.bytes + self.descriptions.bytes();
        match needed.checked_sub(self.permit.bytes()) {
            Some(more) if more > 0 => self.permit.grow(more.max(STEP)),
            _ => Ok(()),
        }
    }

    /// Marks a series whose end has to be reported.
    pub(super) fn track(&mut self, series: &Arc<Series>) {
        if series.tracked.swap(self.scrape, Relaxed) != self.scrape {
            self.current.push(series.clone());
        }
    }

    /// Ends a successful scrape. Returns the series that it no longer had.
    pub(super) fn succeeded(&mut self) -> Vec<Arc<Series>> {
        let scrape = self.scrape;
        let mut ended = std::mem::replace(&mut self.previous, std::mem::take(&mut self.current));
        ended.retain(|series| series.tracked.load(Relaxed) != scrape);
        self.flush();
        self.end(true);
        ended
    }

    /// Ends a failed scrape. Returns all series of the previous one. If the failure was that the memory budget has
    /// `no_room`, all entries are removed, because a smaller page would find no room beside those of a large one.
    pub(super) fn failed(&mut self, no_room: bool) -> Vec<Arc<Series>> {
        self.current.clear();
        let ended = std::mem::take(&mut self.previous);
        if no_room {
            self.entries = HashMap::new();
            (self.bytes, self.settled) = (0, 0);
        }
        // Labels that vary from scrape to scrape must not fill the memory while all scrapes fail.
        if self.entries.len() > 2 * self.settled + 1000 {
            self.flush();
        }
        self.end(false);
        ended
    }

    /// Removes the entries that the current scrape did not have.
    fn flush(&mut self) {
        let scrape = self.scrape;
        let removed = &mut self.bytes;
        self.entries.retain(|text, entry| {
            let stays = entry.last == scrape;
            if !stays {
                *removed -= bytes(text, entry.series.as_deref());
            }
            stays
        });
        self.settled = self.entries.len();
    }

    fn end(&mut self, is_successful: bool) {
        self.descriptions.end(is_successful);
        self.scrape += 1;
        self.permit
            .shrink_to(self.bytes + self.descriptions.bytes() + STEP);
    }
}

fn bytes(text: &[u8], series: Option<&Series>) -> usize {
    ENTRY + text.len() + series.map_or(0, Series::bytes)
}

#[cfg(test)]
mod tests {
    use tributary_prometheus::{LabelBuilder, PageLabels};

    use super::*;

    fn series(name: &str) -> Series {
        let labels = PageLabels::from_iter([("__name__".to_owned(), name.to_owned())]);
        Series::new(LabelBuilder::from(labels).build(), "job", "instance")
    }

    fn scrape(cache: &mut Cache, names: &[&str]) {
        for name in names {
            let series = match cache.get(name.as_bytes()) {
                Known::Series { series, .. } => series,
                _ => cache
                    .add(name.as_bytes(), Some(series(name)))
                    .unwrap()
                    .unwrap(),
            };
            cache.track(&series);
        }
    }

    fn names(ended: Vec<Arc<Series>>) -> Vec<String> {
        ended.iter().map(|series| series.name.to_string()).collect()
    }

    #[test]
    fn vanished_series_end_once() {
        let budget = Budget::new(1 << 20);
        let mut cache = Cache::new(&budget);
        scrape(&mut cache, &["a", "b"]);
        assert!(cache.succeeded().is_empty());
        scrape(&mut cache, &["b", "c"]);
        assert_eq!(names(cache.succeeded()), ["a"]);
        scrape(&mut cache, &["c"]);
        assert_eq!(names(cache.failed(false)), ["b", "c"]);
        assert!(cache.failed(false).is_empty());
        scrape(&mut cache, &["c"]);
        assert!(cache.succeeded().is_empty());
        drop(cache);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn series_beyond_the_budget_are_refused() {
        let budget = Budget::new(64 << 10);
        let mut cache = Cache::new(&budget);
        let refused = (0..1000).find(|number| {
            let name = format!("series_{number}");
            cache.add(name.as_bytes(), Some(series(&name))).is_err()
        });
        assert!(refused.is_some());
        assert!(cache.bytes <= cache.permit.bytes());
        cache.failed(true);
        scrape(&mut cache, &["small"]);
        assert!(cache.succeeded().is_empty());
        drop(cache);
        assert_eq!(budget.used(), 0);
    }
}
