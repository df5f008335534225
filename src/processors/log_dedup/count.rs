//! Keys and counts of equal records, and the requests with one record for all equal records.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use foldhash::fast::RandomState;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::fields::{self, ATTRIBUTES, Path};
use crate::processors::dedup::keys::{Keys, messages};
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::{Fields, put_varint};

/// Fields by which records are compared.
pub(super) struct Identity {
    keys: Keys,
    exclude: Vec<Path>,
    include: Vec<Path>,
}

/// A record of a request.
pub(super) struct Record<'a> {
    /// Hash of the compared fields, including the resource and scope.
    key: u128,
    /// Index of the record's resource and scope in [`Found::contexts`].
    context: u32,
    /// The encoded record without its excluded fields.
    bytes: Cow<'a, [u8]>,
}

/// A resource and a scope.
struct Context<'a> {
    resource_key: u128,
    key: u128,
    /// The messages `ResourceLogs` and `ScopeLogs`.
    resource: &'a [u8],
    scope: &'a [u8],
}

/// The records of a request.
#[derive(Default)]
pub(super) struct Found<'a> {
    contexts: Vec<Context<'a>>,
    records: Vec<Record<'a>>,
}

/// Memory for one record of a request while the request is read, in bytes.
pub(super) const FOUND_BYTES: usize = size_of::<Record<'_>>() + size_of::<Context<'_>>();

/// Fields that are not compared: times, the number of dropped attributes, flags, trace id, span id, time of
/// observation.
const NOT_COMPARED: [u32; 6] = [1, 7, 8, 9, 10, 11];

impl Identity {
    pub(super) fn new(exclude: Vec<Path>, include: Vec<Path>) -> Self {
        Identity {
            keys: Keys::new(Vec::new()),
            exclude,
            include,
        }
    }

    pub(super) fn find<'a>(&self, request: &'a [u8], found: &mut Found<'a>) {
        for resource in messages(request, 1) {
            let resource_key = self.keys.resource(resource);
            for scope in messages(resource, 2) {
                let key = self.keys.scope(resource_key, scope);
                let context = u32::try_from(found.contexts.len()).unwrap_or(u32::MAX);
                found.contexts.push(Context {
                    resource_key,
                    key,
                    resource,
                    scope,
                });
                for record in messages(scope, 2) {
                    let bytes = match self.exclude.is_empty() {
                        true => None,
                        false => fields::without(record, &self.exclude),
                    };
                    let bytes = bytes.map_or(Cow::Borrowed(record), Cow::Owned);
                    found.records.push(Record {
                        key: self.key(key, &bytes),
                        context,
                        bytes,
                    });
                }
            }
        }
    }

    fn key(&self, context: u128, record: &[u8]) -> u128 {
        let mut included = (0..).zip(&self.include).filter_map(|(at, path)| {
            let value = path.find(record)?;
            Some(self.keys.numbered(value, at))
        });
        let key = match included.next() {
            Some(first) => included.fold(first, u128::wrapping_add),
            None => self.keys.set(record, &NOT_COMPARED),
        };
        key.wrapping_add(context)
    }
}

/// Records counted in one partition.
#[derive(Default)]
pub(super) struct Counted {
    groups: Vec<Group>,
    /// Indices into `groups`.
    contexts: HashMap<u128, usize, RandomState>,
    /// Indices into `groups` and into the records of the group.
    records: HashMap<u128, (usize, usize), RandomState>,
    bytes: usize,
}

/// The records of a resource and a scope.
struct Group {
    resource_key: u128,
    /// `ResourceLogs` without its scopes, `ScopeLogs` without its records.
    resource: Vec<u8>,
    scope: Vec<u8>,
    records: Vec<One>,
}

/// The record that stands for all equal records.
struct One {
    record: Box<[u8]>,
    count: u64,
    /// Time of arrival of the first record, in nanoseconds since 1970.
    first: u64,
    last: u64,
}

/// Memory overhead of a record and of a group, in bytes. Includes table slots; a table that has just grown has spare
/// ones.
const RECORD_BYTES: usize = size_of::<One>() + 3 * (size_of::<(u128, usize, usize)>() + 1);
const GROUP_BYTES: usize = size_of::<Group>() + 3 * (size_of::<(u128, usize)>() + 1);

impl Counted {
    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the records of a request that arrives now.
    pub(super) fn add(&mut self, found: &Found<'_>, now: u64) {
        for record in &found.records {
            let group = match self.records.entry(record.key) {
                Entry::Occupied(known) => {
                    let (group, at) = *known.get();
                    let group = self.groups.get_mut(group);
                    if let Some(one) = group.and_then(|group| group.records.get_mut(at)) {
                        one.count += 1;
                        one.last = now;
                    }
                    continue;
                }
                Entry::Vacant(place) => {
                    let Some(context) = found.contexts.get(record.context as usize) else {
                        continue;
                    };
                    let next = self.groups.len();
                    let group = *self.contexts.entry(context.key).or_insert(next);
                    if group == next {
                        let new = Group {
                            resource_key: context.resource_key,
                            resource: fields::all_but(context.resource, 2),
                            scope: fields::all_but(context.scope, 2),
                            records: Vec::new(),
                        };
                        self.bytes += GROUP_BYTES + new.resource.len() + new.scope.len();
                        self.groups.push(new);
                    }
                    let Some(found) = self.groups.get_mut(group) else {
                        continue;
                    };
                    place.insert((group, found.records.len()));
                    found
                }
            };
            self.bytes += RECORD_BYTES + record.bytes.len();
            group.records.push(One {
                record: record.bytes.as_ref().into(),
                count: 1,
                first: now,
                last: now,
            });
        }
    }

    /// Returns a request with one record for each set of equal records.
    pub(super) fn request(&self, output: &Output, now: u64) -> Bytes {
        // Resources in the order of their first occurrence, each with all its scopes.
        let mut places: HashMap<u128, usize, RandomState> = HashMap::default();
        let mut resources: Vec<Vec<&Group>> = Vec::new();
        for group in &self.groups {
            let next = resources.len();
            let at = *places.entry(group.resource_key).or_insert(next);
            match resources.get_mut(at) {
                Some(groups) => groups.push(group),
                None => resources.push(vec![group]),
            }
        }
        let (mut request, mut resource, mut scope, mut record) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for groups in resources {
            resource.clear();
            resource.extend(groups.first().map_or(&[][..], |group| &group.resource));
            for group in groups {
                scope.clear();
                scope.extend_from_slice(&group.scope);
                for one in &group.records {
                    record.clear();
                    output.put(one, now, &mut record);
                    put_delimited(2, &record, &mut scope);
                }
                put_delimited(2, &scope, &mut resource);
            }
            put_delimited(1, &resource, &mut request);
        }
        request.into()
    }
}

/// Settings for writing counted records.
pub(super) struct Output {
    pub(super) count_attribute: String,
    pub(super) zone: TimeZone,
}

const FIRST: &str = "first_observed_timestamp";
const LAST: &str = "last_observed_timestamp";

impl Output {
    fn put(&self, one: &One, now: u64, record: &mut Vec<u8>) {
        let own = [self.count_attribute.as_str(), FIRST, LAST];
        for field in Fields::new(&one.record).map_while(Result::ok) {
            let replaced = matches!(field.number, 1 | 11) || fields::is_attribute(&field, &own);
            if !replaced {
                record.extend_from_slice(field.raw);
            }
        }
        for (number, time) in [(1, now), (11, one.first)] {
            put_varint(number << 3 | 1, record);
            record.extend_from_slice(&time.to_le_bytes());
        }
        let mut count = Vec::new();
        put_varint(3 << 3, &mut count);
        put_varint(one.count, &mut count);
        put_attribute(&self.count_attribute, &count, record);
        for (key, time) in [(FIRST, one.first), (LAST, one.last)] {
            let mut text = Vec::new();
            put_delimited(1, self.time(time).as_bytes(), &mut text);
            put_attribute(key, &text, record);
        }
    }

    /// Formats a time as in RFC 3339, to the second, like Go: with `Z` for no offset.
    pub(super) fn time(&self, nanos: u64) -> String {
        let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(0);
        let time = Timestamp::from_second(seconds).unwrap_or_default();
        let time = time.to_zoned(self.zone.clone());
        let format = match time.offset().seconds() {
            0 => "%Y-%m-%dT%H:%M:%SZ",
            _ => "%Y-%m-%dT%H:%M:%S%:z",
        };
        let mut text = String::new();
        // Nothing in these formats can fail.
        let _ = write!(text, "{}", time.strftime(format));
        text
    }
}

fn put_attribute(key: &str, value: &[u8], record: &mut Vec<u8>) {
    let mut pair = Vec::new();
    put_delimited(1, key.as_bytes(), &mut pair);
    put_delimited(2, value, &mut pair);
    put_delimited(ATTRIBUTES, &pair, record);
}

/// Time of day by a monotonic clock: the time at the start of an interval, plus the elapsed time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    nanos: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        Clock {
            start: Instant::now(),
            nanos: u64::try_from(nanos).unwrap_or(0),
        }
    }

    /// Returns the time in nanoseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(0);
        self.nanos.saturating_add(passed)
    }
}
