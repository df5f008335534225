//! Keys that identify spans, data points and log records, computed from their bytes.
//!
//! A record's bytes are hashed unchanged: a sender encodes a record once and resends the same
//! bytes, and collectors that split and merge requests do not change records. Resources and scopes
//! are hashed separately, field by field and attribute by attribute, independent of order. Grouping
//! therefore makes no difference. A record that was decoded and encoded again by a program with
//! another field order is not recognized and passes.

use std::sync::Arc;

use hashbrown::HashMap;
use ring::rand::{SecureRandom, SystemRandom};
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_secret};

use tributary_otlp::Signal;
use tributary_otlp::reader::{Field, Fields, Value};

/// Key of an item with neither an identity nor a time: it cannot be distinguished from another item
/// with equal content.
pub(super) const NONE: u128 = 0;

/// Replaces the key of an item that was already delivered.
pub(super) const DUPLICATE: u128 = 1;

/// Size of XXH3's default secret, in bytes.
const SECRET: usize = 192;

/// Hasher with a random secret, so that no sender can construct a record whose key equals that of
/// another record.
pub(in crate::processors) struct Keys {
    secret: [u8; SECRET],
    /// Resource attributes that do not affect keys.
    ignored: Arc<[String]>,
}

impl Keys {
    pub(in crate::processors) fn new(ignored: Vec<String>) -> Self {
        let mut secret = [0; SECRET];
        // Without randomness from the system there would be no TLS and no authentication either.
        // Accidental collisions are still avoided.
        if SystemRandom::new().fill(&mut secret).is_err() {
            for part in secret.as_chunks_mut::<8>().0 {
                *part = fastrand::u64(..).to_le_bytes();
            }
        }
        Keys {
            secret,
            ignored: ignored.into(),
        }
    }

    /// Returns the resource attributes that do not affect keys.
    pub(super) fn ignored(&self) -> Arc<[String]> {
        self.ignored.clone()
    }

    /// Returns the key of a whole request, computed from its bytes.
    pub(super) fn request(&self, request: &[u8]) -> u128 {
        self.join([self.hash(request), REQUEST])
    }

    /// Returns the key of a whole request, computed from the keys of its items: equal requests have
    /// equal keys, and the bytes need not be hashed twice. Returns [`NONE`] if an item has no key.
    pub(super) fn request_of(&self, items: &[u128]) -> u128 {
        let mut bytes = Vec::with_capacity(size_of_val(items));
        for key in items {
            if *key == NONE {
                return NONE;
            }
            bytes.extend_from_slice(&key.to_le_bytes());
        }
        self.join([self.hash(&bytes), REQUEST])
    }

    /// Returns the key of a profile, computed from the key of [`tributary_profiles::identity`].
    pub(super) fn profile(&self, delivery: u128) -> u128 {
        self.join([delivery, PROFILE])
    }

    /// Appends the key of each item of a request, in order; [`NONE`] for items without a key.
    ///
    /// Log records, and spans without ids, may be equal without being duplicates: the second of two
    /// equal items in an entry of a request has another key than the first. Each entry counts
    /// separately, because merged requests become entries of one request.
    pub(super) fn of_items(&self, signal: Signal, request: &[u8], keys: &mut Vec<u128>) {
        // Reserves memory for all keys at once: growth in steps would cost more than all lookups.
        let expected = match signal {
            Signal::Logs => keys.capacity() - keys.len(),
            _ => 0,
        };
        let mut equal = Ordinals {
            entry: 0,
            before: HashMap::with_capacity_and_hasher(expected, Passing),
        };
        for resource in messages(request, 1) {
            equal.entry += 1;
            let resource_hash = self.resource(resource);
            for scope in messages(resource, 2) {
                let context = self.scope(resource_hash, scope);
                for item in messages(scope, 2) {
                    match signal {
                        Signal::Traces => keys.push(self.span(context, item, &mut equal)),
                        Signal::Logs => keys.push(self.record(context, item, &mut equal)),
                        Signal::Metrics => self.points(context, item, keys),
                        Signal::Profiles => {}
                    }
                }
            }
        }
    }

    /// Returns the key of a span. Its ids identify a span in any context.
    fn span(&self, context: u128, span: &[u8], equal: &mut Ordinals) -> u128 {
        let (mut trace, mut own, mut dated) = (false, false, false);
        for field in fields(span) {
            match (field.number, field.value) {
                (1, Value::Bytes(id)) => trace = id.len() == 16 && id.iter().any(|byte| *byte != 0),
                (2, Value::Bytes(id)) => own = id.len() == 8 && id.iter().any(|byte| *byte != 0),
                (7, Value::Fixed64(time)) => dated |= time != 0,
                _ => {}
            }
            if trace && own {
                return self.item(0, span);
            }
        }
        match dated {
            true => self.nth(self.item(context, span), equal),
            false => NONE,
        }
    }

    fn record(&self, context: u128, record: &[u8], equal: &mut Ordinals) -> u128 {
        // The time and the observed time.
        let dated = fields(record).any(|field| match field.value {
            Value::Fixed64(time) => matches!(field.number, 1 | 11) && time != 0,
            _ => false,
        });
        match dated {
            true => self.nth(self.item(context, record), equal),
            false => NONE,
        }
    }

    /// Appends the keys of data points. A key includes everything in the metric and its data except
    /// the other points.
    fn points(&self, context: u128, metric: &[u8], keys: &mut Vec<u128>) {
        let mut header = context;
        let mut forms = 0;
        for field in fields(metric) {
            match data(&field) {
                Some(form) => {
                    forms += 1;
                    let form_hash = self.header(form, 1);
                    let number = u128::from(field.number);
                    header = header.wrapping_add(self.join([form_hash, number]));
                }
                None => header = header.wrapping_add(self.hash(field.raw)),
            }
        }
        let header = self.join([header, POINT]);
        for field in fields(metric) {
            for point in data(&field).into_iter().flat_map(|form| messages(form, 1)) {
                let dated = fields(point).any(|field| field.number == 3 && is_time(field.value));
                // If a metric has several data forms, only the last is valid. No client sends such
                // a metric, so it is left alone.
                keys.push(match dated && forms == 1 {
                    true => self.item(header, point),
                    false => NONE,
                });
            }
        }
    }

    /// Returns the key of an item in its context. Both are hashes, so their sum is one too.
    #[inline]
    fn item(&self, context: u128, item: &[u8]) -> u128 {
        self.hash(item).wrapping_add(context).max(DUPLICATE + 1)
    }

    fn nth(&self, key: u128, equal: &mut Ordinals) -> u128 {
        // Keys are hashes, so adding the hash of the entry gives a range of keys for each entry.
        let here = key.wrapping_add(equal.entry);
        let before = equal.before.entry(here).or_default();
        let ordinal = *before;
        *before += 1;
        match ordinal {
            0 => key,
            _ => self.join([key, u128::from(ordinal)]),
        }
    }

    /// Returns the key of a scope of a resource with the key `resource`.
    pub(in crate::processors) fn scope(&self, resource: u128, scope: &[u8]) -> u128 {
        self.join([resource, self.header(scope, 2)])
    }

    /// Returns the hash of a message's fields, independent of order, without the field numbers in
    /// `but`.
    pub(in crate::processors) fn set(&self, message: &[u8], but: &[u32]) -> u128 {
        let compared = fields(message).filter(|field| !but.contains(&field.number));
        compared.fold(0, |sum: u128, field| sum.wrapping_add(self.hash(field.raw)))
    }

    /// Returns the hash of one of several values.
    pub(in crate::processors) fn numbered(&self, value: &[u8], number: u32) -> u128 {
        self.join([self.hash(value), u128::from(number)])
    }

    /// Returns the hash of a `Resource*` message without the telemetry of the resource.
    pub(in crate::processors) fn resource(&self, entry: &[u8]) -> u128 {
        let mut sum: u128 = 0;
        for field in fields(entry).filter(|field| field.number != 2) {
            let hash = match field.number {
                1 => self.attributes_owner(&field, 1, &self.ignored),
                _ => self.hash(field.raw),
            };
            sum = sum.wrapping_add(hash);
        }
        sum
    }

    /// Returns the hash of a message without its field `entries`. Field 1, a resource or a scope,
    /// is hashed attribute by attribute.
    fn header(&self, message: &[u8], entries: u32) -> u128 {
        let mut sum: u128 = 0;
        for field in fields(message).filter(|field| field.number != entries) {
            let hash = match (field.number, entries) {
                (1, 2) => self.attributes_owner(&field, 3, &[]),
                _ => self.hash(field.raw),
            };
            sum = sum.wrapping_add(hash);
        }
        sum
    }

    /// Returns the hash of a resource or a scope. Attributes are a set, so their order does not
    /// matter.
    fn attributes_owner(&self, owner: &Field<'_>, attributes: u32, ignored: &[String]) -> u128 {
        let mut sum: u128 = 0;
        for field in owner.fields().map_while(Result::ok) {
            let ignored = field.number == attributes
                && !ignored.is_empty()
                && attribute_key(&field)
                    .is_some_and(|key| ignored.iter().any(|ignored| ignored.as_bytes() == key));
            if !ignored {
                sum = sum.wrapping_add(self.hash(field.raw));
            }
        }
        // An empty resource equals an absent one.
        match sum {
            0 => 0,
            sum => self.join([sum, u128::from(attributes)]),
        }
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u128 {
        xxh3_128_with_secret(bytes, &self.secret)
    }

    #[inline]
    fn join(&self, [one, other]: [u128; 2]) -> u128 {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&one.to_le_bytes());
        bytes[16..].copy_from_slice(&other.to_le_bytes());
        self.hash(&bytes).max(DUPLICATE + 1)
    }
}

/// Domain separation of keys of different kinds.
const REQUEST: u128 = 1;
const PROFILE: u128 = 2;
const POINT: u128 = 3;

/// Number of equal items so far in an entry of a request.
struct Ordinals {
    entry: u128,
    before: HashMap<u128, u64, Passing>,
}

/// Hasher that returns keys unchanged, since they are hashes.
#[derive(Debug, Clone, Default)]
struct Passing;

impl std::hash::BuildHasher for Passing {
    type Hasher = Through;

    fn build_hasher(&self) -> Through {
        Through(0)
    }
}

struct Through(u64);

impl std::hash::Hasher for Through {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= xxh3_128(bytes) as u64;
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

fn is_time(value: Value<'_>) -> bool {
    matches!(value, Value::Fixed64(time) if time != 0)
}

/// Returns the data of a metric if the field is a gauge, sum, histogram, exponential histogram or
/// summary.
pub(super) fn data<'a>(field: &Field<'a>) -> Option<&'a [u8]> {
    match field.number {
        5 | 7 | 9 | 10 | 11 => field.value.bytes(),
        _ => None,
    }
}

pub(in crate::processors) fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

pub(in crate::processors) fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

fn attribute_key<'a>(attribute: &Field<'a>) -> Option<&'a [u8]> {
    messages(attribute.value.bytes()?, 1).last()
}
