//! Limits the expansion of a request: data that many rows share occurs once in the request, but in
//! each row of a table. A megabyte can share 100000 attributes among 10000 spans.

use super::copies::{MOST_COPIED, MOST_COPIED_PER_BYTE, copied};
use super::cost::{RowError, TooMuch};
use super::read::{bytes, fields, head};
use super::resolve::indices;
use super::stack_expansion::{OfStacks, of, of_stacks, one, resolved};
use super::{Layout, ProfilesLayout};
use tributary_otlp::room::Room;
use tributary_otlp::{Malformed, Signal};
use tributary_profiles::entries::Entries;

/// Amount of shared data, counted once per row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expansion {
    /// Attributes of resources, scopes, profiles and metrics, and frames of stacks.
    entries: u64,
    /// For profiles: bytes of the names and attributes that frames share.
    bytes: u64,
    /// Bytes of all shared data if each item were in a table of its own.
    copied: u64,
    /// For profiles: memory of the dictionary in a table that uses all of it, in bytes.
    pub(super) dictionary: u64,
    /// For profiles: largest memory for resolving references of a resource or scope, in bytes.
    pub(super) largest_head: u64,
}

/// Number of shared entries that the rows of any request may have.
pub(super) const MOST_ENTRIES: u64 = 64 << 20;
/// Additional entries for each byte of the request. A sample takes 15 bytes, and stacks of 200
/// frames are usual for Java.
pub(super) const MOST_ENTRIES_PER_BYTE: u64 = 16;
/// Bytes that the frames of any request may have: the default limit of a request's size.
const MOST_BYTES: u64 = 64 << 20;
/// Additional bytes for each byte of the request. A location of 20 bytes may have a name and a path
/// of 200 bytes, and attributes.
const MOST_BYTES_PER_BYTE: u64 = 32;

impl Expansion {
    /// Checks the expansion of a request of that signal, for a sink with that many tables at a
    /// time.
    pub(super) fn check(
        self,
        signal: Signal,
        request: &[u8],
        by_service: bool,
        room: &dyn Room,
        tables: usize,
    ) -> Result<(), RowError> {
        /// Memory for the hours of items, for each byte of the request: an item of ten bytes has
        /// an hour of its own in three sets.
        const HOURS_PER_BYTE: usize = 6;
        let bound = |most: u64, per_byte: u64| {
            let more = per_byte.saturating_mul(request.len() as u64);
            most.saturating_add(more)
        };
        let within = |what, found, most| match found <= most {
            true => Ok(()),
            false => Err(TooMuch { what, found, most }),
        };
        let most = bound(MOST_ENTRIES, MOST_ENTRIES_PER_BYTE);
        within("attributes and frames", self.entries, most)?;
        let most = bound(MOST_BYTES, MOST_BYTES_PER_BYTE);
        within("bytes of names", self.bytes, most)?;
        let most = bound(MOST_COPIED, MOST_COPIED_PER_BYTE);
        // The upper bound is nearly always sufficient.
        if self.copied > most {
            let hours = request.len().saturating_mul(HOURS_PER_BYTE);
            room.take(hours)?;
            let found = copied(signal, request, self.bytes, by_service, tables)?;
            room.release(hours);
            within("bytes", found, most)?;
        }
        Ok(())
    }

    fn copy(&mut self, items: u64, bytes: u64) {
        self.copied = self.copied.saturating_add(items.saturating_mul(bytes));
    }

    fn add(&mut self, rows: u64, entries: u64) {
        self.entries = self.entries.saturating_add(rows.saturating_mul(entries));
    }
}

/// Returns the expansion of the rows of traces, metrics or logs.
pub(super) fn of_items(signal: Signal, request: &[u8]) -> Result<Expansion, Malformed> {
    let mut expansion = Expansion::default();
    of_scopes(request, |(shared, bytes), items| {
        for (number, item) in items {
            if number == 2 && signal == Signal::Metrics {
                let metric = of_metric(item)?;
                expansion.add(metric.points, shared.saturating_add(metric.metadata));
                expansion.copy(metric.points, bytes.saturating_add(metric.bytes));
            } else if number == 2 {
                expansion.add(1, shared);
                expansion.copy(1, bytes);
            }
        }
        Ok(())
    })?;
    Ok(expansion)
}

/// Returns the expansion of the rows of profiles, and the number of frames of each stack.
pub(super) fn of_profiles(
    request: &[u8],
    dictionary: &Entries<'_>,
    layout: &Layout,
) -> Result<(Expansion, Vec<u64>), Malformed> {
    let apart = layout.options.profiles == ProfilesLayout::Stacks;
    let OfStacks {
        depths,
        bytes,
        memory,
    } = of_stacks(dictionary, apart)?;
    let deepest = depths.iter().copied().max().unwrap_or_default();
    let mut expansion = Expansion {
        bytes,
        dictionary: memory,
        ..Expansion::default()
    };
    of_heads(request, |head| {
        let memory = resolved(head, &dictionary.strings);
        expansion.largest_head = expansion.largest_head.max(memory);
    })?;
    if apart {
        // Each stack occurs once.
        depths.iter().for_each(|depth| expansion.add(1, *depth));
    }
    of_scopes(request, |(shared, bytes_of_heads), profiles| {
        for (number, profile) in profiles {
            if number != 2 {
                continue;
            }
            let (mut samples, mut attributes) = (0, 0_u64);
            for field in fields(profile) {
                match field? {
                    (2, _) => samples += 1,
                    // An attribute may have a unit, which is an entry, too.
                    (11, value) => indices(value, |_| attributes = attributes.saturating_add(2)),
                    _ => {}
                }
            }
            expansion.add(samples, shared.saturating_add(attributes));
            expansion.copy(1, bytes_of_heads.saturating_add(bytes));
            if apart {
                continue;
            }
            // The upper bound is nearly always sufficient.
            if samples.saturating_mul(deepest) <= MOST_ENTRIES / 64 {
                expansion.add(samples, deepest);
                continue;
            }
            for field in fields(profile) {
                if let (2, sample) = field? {
                    let stack = one(super::read::bytes(sample), 1)?;
                    expansion.add(1, of(&depths, stack));
                }
            }
        }
        Ok(())
    })?;
    Ok((expansion, depths))
}

/// Calls `each` with the shared attributes of a scope's items and their bytes, and with the fields
/// of the scope.
fn of_scopes(
    request: &[u8],
    mut each: impl FnMut((u64, u64), &mut dyn Iterator<Item = (u32, &[u8])>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for field in fields(request) {
        let (1, entry) = field? else { continue };
        let (resource, url) = head(bytes(entry))?;
        let of_resource = count(resource, 1)?;
        let bytes_of_resource = resource.len() + url.len();
        for field in fields(bytes(entry)) {
            let (2, scope) = field? else { continue };
            let (head, url) = head(bytes(scope))?;
            let of_scope = count(head, 3)?;
            let length = (bytes_of_resource + head.len() + url.len()) as u64;
            let items = fields(bytes(scope)).map_while(Result::ok);
            let mut items = items.map(|(number, value)| (number, bytes(value)));
            each((of_resource.saturating_add(of_scope), length), &mut items)?;
        }
    }
    Ok(())
}

/// Calls `each` with all encoded resources and scopes.
fn of_heads(request: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), Malformed> {
    for field in fields(request) {
        let (1, entry) = field? else { continue };
        each(head(bytes(entry))?.0);
        for field in fields(bytes(entry)) {
            if let (2, scope) = field? {
                each(head(bytes(scope))?.0);
            }
        }
    }
    Ok(())
}

/// Counts the occurrences of a field.
fn count(message: &[u8], number: u32) -> Result<u64, Malformed> {
    let mut count = 0;
    for field in fields(message) {
        count += u64::from(field?.0 == number);
    }
    Ok(count)
}

#[derive(Default)]
struct OfMetric {
    points: u64,
    /// Shared data of the points: number of metadata entries, and bytes of the metric without its
    /// points.
    metadata: u64,
    bytes: u64,
}

fn of_metric(metric: &[u8]) -> Result<OfMetric, Malformed> {
    let mut found = OfMetric::default();
    for field in fields(metric) {
        let (number, value) = field?;
        if let 5 | 7 | 9 | 10 | 11 = number {
            found.points = found.points.saturating_add(count(bytes(value), 1)?);
            continue;
        }
        found.bytes += bytes(value).len() as u64;
        found.metadata += u64::from(number == 12);
    }
    Ok(found)
}
