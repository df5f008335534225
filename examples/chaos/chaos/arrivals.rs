//! Items that arrived at one place: how often, when, and by which connection.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::load::Made;
use super::locked;

/// The record of one place where items arrive.
pub struct Arrivals {
    began: Instant,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Last arrival of each item, by number.
    last: Vec<Option<Arrival>>,
    items: usize,
    duplicates: Vec<Duplicate>,
    refused: HashSet<u64>,
    /// End of each connection, by number.
    connections: Vec<Option<Duration>>,
    defects: Vec<String>,
    /// Time of the last new item.
    news: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    connection: u32,
    at: Duration,
}

/// A duplicate item.
#[derive(Debug, Clone, Copy)]
struct Duplicate {
    number: u64,
    first: Arrival,
    again: Duration,
}

/// Number of duplicates by cause.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Excuses {
    /// The zone ended after the items were made: it lost its record of seen items, and resends
    /// items whose delivery was not recorded.
    pub zone_ended: usize,
    /// The zone was interrupted after the items were made: it accepted them partly, or its response
    /// was lost.
    pub zone_interrupted: usize,
    /// The connection of the first delivery broke, so the response may be lost.
    pub answer_lost: usize,
    /// No cause: a defect. The first few of these items, with their arrival times.
    pub none: usize,
    /// Duplicates by signal, for any cause.
    pub signals: BTreeMap<&'static str, usize>,
    pub examples: Vec<String>,
}

/// Maximum delay between the two ends' notice of a broken connection, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(15);

impl Arrivals {
    pub fn new(began: Instant) -> Self {
        Arrivals {
            began,
            books: Mutex::default(),
        }
    }

    /// Registers a new connection; returns its number.
    pub fn connected(&self) -> u32 {
        let mut books = locked(&self.books);
        books.connections.push(None);
        u32::try_from(books.connections.len() - 1).unwrap_or(u32::MAX)
    }

    pub fn disconnected(&self, connection: u32) {
        let now = self.began.elapsed();
        if let Some(ended) = locked(&self.books).connections.get_mut(connection as usize) {
            *ended = Some(now);
        }
    }

    /// Records items that arrive now.
    pub fn arrived(&self, numbers: &[u64], connection: u32) {
        self.arrived_at(numbers, connection, self.began.elapsed());
    }

    /// Records items that arrived at this time.
    pub fn arrived_at(&self, numbers: &[u64], connection: u32, at: Duration) {
        let mut books = locked(&self.books);
        for number in numbers {
            let place = usize::try_from(*number).unwrap_or(usize::MAX);
            // No run has as many items; an invented number must not exhaust the memory.
            if place > 1 << 28 {
                books.defects.push(format!("nobody made item {number}"));
                continue;
            }
            if books.last.len() <= place {
                books.last.resize(place + 1, None);
            }
            let arrival = Arrival { connection, at };
            match books.last[place].replace(arrival) {
                None => {
                    books.items += 1;
                    books.news = self.began.elapsed();
                }
                Some(first) => books.duplicates.push(Duplicate {
                    number: *number,
                    first,
                    again: at,
                }),
            }
        }
    }

    /// Records items that were permanently refused.
    pub fn refused_for_good(&self, numbers: &[u64]) {
        locked(&self.books).refused.extend(numbers);
    }

    /// Records an item that no client sent in this form.
    pub fn defect(&self, text: String) {
        locked(&self.books).defects.push(text);
    }

    /// Returns the number of distinct items and of duplicates.
    pub fn counts(&self) -> (usize, usize) {
        let books = locked(&self.books);
        (books.items, books.duplicates.len())
    }

    /// Returns the time of the last new item, since the beginning of the run.
    pub fn news(&self) -> Duration {
        locked(&self.books).news
    }

    pub fn defects(&self) -> Vec<String> {
        locked(&self.books).defects.clone()
    }

    /// Returns the acknowledged items that have not arrived and were not permanently refused.
    pub fn missing(&self, acknowledged: &[u64]) -> Vec<u64> {
        let books = locked(&self.books);
        let is_here = |number: u64| {
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            books.last.get(place).is_some_and(Option::is_some)
        };
        let is_missing = |number: &u64| !is_here(*number) && !books.refused.contains(number);
        acknowledged.iter().copied().filter(is_missing).collect()
    }

    /// Returns the number of items that were permanently refused and never arrived.
    pub fn refused(&self) -> usize {
        let books = locked(&self.books);
        let is_here = |number: &&u64| {
            let place = usize::try_from(**number).unwrap_or(usize::MAX);
            books.last.get(place).is_some_and(Option::is_some)
        };
        books.refused.len() - books.refused.iter().filter(is_here).count()
    }

    /// Returns the number of arrived items that were never made: numbers above the last one.
    pub fn made_up(&self, last: u64) -> usize {
        let books = locked(&self.books);
        let last = usize::try_from(last).unwrap_or(usize::MAX);
        books
            .last
            .iter()
            .skip(last.saturating_add(1))
            .flatten()
            .count()
    }

    /// Classifies duplicates, given the ends of the zone's lives, its interruptions, and the times
    /// at which items were made.
    pub fn excuses(
        &self,
        zone_ends: &[Duration],
        interruptions: &[Duration],
        made: impl Fn(u64) -> Made,
    ) -> Excuses {
        let books = locked(&self.books);
        let mut excuses = Excuses::default();
        for Duplicate {
            number,
            first,
            again,
        } in &books.duplicates
        {
            let Made {
                at: made, signal, ..
            } = made(*number);
            *excuses.signals.entry(signal.name()).or_default() += 1;
            let lived = made..=*again;
            let ended = zone_ends.iter().any(|end| lived.contains(end));
            let interrupted = interruptions.iter().any(|at| lived.contains(at));
            let connection = books.connections.get(first.connection as usize);
            let broke = connection
                .copied()
                .flatten()
                .is_some_and(|broke| broke <= *again + AT_ONCE);
            match (broke, ended, interrupted) {
                (true, _, _) => excuses.answer_lost += 1,
                (_, true, _) => excuses.zone_ended += 1,
                (_, _, true) => excuses.zone_interrupted += 1,
                _ => {
                    excuses.none += 1;
                    if excuses.examples.len() < 5 {
                        let at = first.at;
                        excuses.examples.push(format!(
                            "item {number} of {signal}: made {made:.1?}, came {at:.1?} and {again:.1?}"
                        ));
                    }
                }
            }
        }
        excuses
    }
}
