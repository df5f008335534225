//! Limits how often shared data of a request is copied into tables. Each hour has a table with its
//! own copy of resources, scopes, metrics and names of functions. A megabyte of attributes with
//! 100000 log records of 100000 hours would take 100 GB.

use std::collections::HashSet;

use super::read::{bytes, fields, head, messages, number};
use super::rows::hour;
use tributary_otlp::Malformed;
use tributary_otlp::Signal;

/// Bytes of shared data that all tables of any request may have in total.
pub(super) const MOST_COPIED: u64 = 256 << 20;
/// Additional bytes of shared data for each byte of the request. Two days of small records in one
/// request, with a kilobyte of attributes for every ten records, take half of the limit.
pub(super) const MOST_COPIED_PER_BYTE: u64 = 128;

/// Returns the bytes that are copied if the items of a request reach their tables in order, with at
/// most that many tables at a time. Each table has `texts` bytes of the dictionary.
pub(super) fn copied(
    signal: Signal,
    request: &[u8],
    texts: u64,
    by_service: bool,
    tables: usize,
) -> Result<u64, Malformed> {
    let mut copies = Copies::default();
    let mut of_request = Hours::default();
    let mut resources = 0_usize;
    for entry in messages(request, 1) {
        let entry = entry?;
        resources += 1;
        let mut of_resource = Hours::default();
        for scope in messages(entry, 2) {
            let scope = scope?;
            let mut of_scope = Hours::default();
            for item in messages(scope, 2) {
                let mut of_item = Hours::default();
                let own = times(signal, item?, &mut |time| {
                    let hour = hour(time);
                    for hours in [&mut of_request, &mut of_resource, &mut of_scope] {
                        hours.add(hour);
                    }
                    // Items of other signals have one timestamp and no further shared data.
                    if signal == Signal::Metrics {
                        of_item.add(hour);
                    }
                })?;
                copies.add(&of_item, own);
            }
            copies.add(&of_scope, length(scope)?);
        }
        copies.add(&of_resource, length(entry)?);
    }
    copies.add(&of_request, texts);
    let services = if by_service { resources } else { 1 };
    let partitions = of_request.all.len().saturating_mul(services);
    Ok(match partitions <= tables {
        true => copies.once,
        // Files end in between, so the same hour may begin another file each time it occurs.
        false => copies.each_time,
    })
}

/// Hours in the order in which they occur.
#[derive(Default)]
struct Hours {
    all: HashSet<i64>,
    last: Option<i64>,
    changes: u64,
}

impl Hours {
    fn add(&mut self, hour: i64) {
        if self.last != Some(hour) {
            self.last = Some(hour);
            self.changes += 1;
            self.all.insert(hour);
        }
    }
}

/// Copied bytes: with one table per hour, and with a new table at each change of the hour.
#[derive(Default)]
struct Copies {
    once: u64,
    each_time: u64,
}

impl Copies {
    fn add(&mut self, hours: &Hours, bytes: u64) {
        let of = |tables: u64| tables.saturating_mul(bytes);
        self.once = self.once.saturating_add(of(hours.all.len() as u64));
        self.each_time = self.each_time.saturating_add(of(hours.changes));
    }
}

/// Returns the length of a resource or scope.
fn length(entry: &[u8]) -> Result<u64, Malformed> {
    head(entry).map(|(head, schema_url)| (head.len() + schema_url.len()) as u64)
}

/// Calls `each` with the timestamps of an item, or of its data points. Returns the number of bytes
/// that these share.
fn times(signal: Signal, item: &[u8], each: &mut dyn FnMut(u64)) -> Result<u64, Malformed> {
    let (mut time, mut otherwise) = (0, 0);
    let mut shared = 0;
    for field in fields(item) {
        match (signal, field?) {
            (Signal::Logs, (1, value))
            | (Signal::Traces, (7, value))
            | (Signal::Profiles, (3, value)) => time = number(value),
            (Signal::Logs, (11, value)) => otherwise = number(value),
            (Signal::Metrics, (5 | 7 | 9 | 10 | 11, data)) => {
                for point in messages(bytes(data), 1) {
                    let mut time = 0;
                    for field in fields(point?) {
                        if let (3, value) = field? {
                            time = number(value);
                        }
                    }
                    each(time);
                }
            }
            (Signal::Metrics, (_, value)) => shared += bytes(value).len() as u64,
            _ => {}
        }
    }
    if signal != Signal::Metrics {
        each(if time == 0 { otherwise } else { time });
    }
    Ok(shared)
}
