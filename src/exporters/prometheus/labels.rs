//! The labels of one series, packed as numbers of names and values.
//!
//! A name is stored once per metric, together with its form on the page. The labels of a series are
//! sorted by the number of their name, so equal labels are equal bytes.

use std::borrow::Cow;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

pub(super) use super::hash::{hash_name, hash_value, is_reserved};
use super::naming::{Name, Namer};
use super::origin::Origin;
use super::room::Room;
use tributary_otlp::reader::{put_varint, varint};
use tributary_otlp::view::{AnyValue, Attribute};

/// The names of the labels of one metric.
#[derive(Debug)]
pub(super) struct Labels {
    /// Name that the exposition reserves.
    reserved: &'static str,
    names: Vec<LabelName>,
    /// Numbers of the names, by attribute key; several keys may map to one name. `None` for keys
    /// without any valid character.
    by_key: HashMap<Box<str>, Option<u16>, RandomState>,
    /// Memory of the names in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct LabelName {
    /// The first key of the name, which is nearly always the key of the next lookup.
    key: Box<str>,
    name: Name,
    hash: u64,
}

/// The packed labels of a point.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Packed labels in the form that a series stores.
    pub(super) bytes: Vec<u8>,
    /// Sum of the labels' hashes. A sum does not depend on the order, so the hash of an [`Origin`]
    /// can be added.
    pub(super) hash: u64,
}

/// Reason why the labels of a point cannot be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LabelError {
    /// The metric has too many label names, or there is no room for another.
    TooMany,
    /// A key is too long.
    TooLong,
}

impl Labels {
    /// Starts without names. Label `reserved` (`le`, `quantile`, or empty) cannot be used for these
    /// series.
    pub(super) fn new(reserved: &'static str) -> Self {
        Labels {
            reserved,
            names: Vec::new(),
            by_key: HashMap::with_hasher(RandomState::default()),
            bytes: 0,
        }
    }

    /// Packs the attributes of a point. A label that `origin` also has gets the prefix `exported_`,
    /// as in Prometheus with labels of targets. Values of several keys with one name are joined in
    /// the order of the keys.
    pub(super) fn pack<'a>(
        &mut self,
        attributes: impl Iterator<Item = Attribute<'a>>,
        origin: &Origin,
        (namer, room): (&Namer, &Room),
        packed: &mut Packed,
    ) -> Result<(), LabelError> {
        let mut found: SmallVec<[(u16, &'a str, Cow<'a, str>); 16]> = SmallVec::new();
        for (at, attribute) in attributes.enumerate() {
            let (key, value) = (attribute.key(), attribute.value());
            let value = value.as_ref().map_or(Cow::Borrowed(""), AnyValue::to_text);
            // Prometheus treats an empty label as absent.
            if value.is_empty() {
                continue;
            }
            let Some(mut number) = self.number(at, key, namer, room)? else {
                continue;
            };
            let name = &self.names[usize::from(number)];
            if let Some(theirs) = origin.value_of(name.hash, &name.name.escaped) {
                if *theirs == *value {
                    continue;
                }
                let exported = format!("exported_{}", name.name.full);
                number = self.named(&exported, "", room)?;
            }
            found.push((number, key, value));
        }
        found.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        found.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.2 = format!("{};{}", kept.2, next.2).into();
            }
            same
        });
        packed.bytes.clear();
        packed.hash = 0;
        for (number, _, value) in &found {
            let name = &self.names[usize::from(*number)];
            packed.hash = packed.hash.wrapping_add(hash_value(name.hash, value));
            put_varint((*number).into(), &mut packed.bytes);
            put_varint(value.len() as u64, &mut packed.bytes);
            packed.bytes.extend_from_slice(value.as_bytes());
        }
        Ok(())
    }

    /// Returns the labels in packed bytes.
    pub(super) fn unpack<'a>(
        &'a self,
        packed: &'a [u8],
    ) -> impl Iterator<Item = (&'a Name, &'a str)> {
        let mut rest = packed;
        std::iter::from_fn(move || {
            let (number, after) = varint(rest).ok()?;
            let (length, after) = varint(after).ok()?;
            let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            let name = &self.names.get(usize::try_from(number).ok()?)?.name;
            Some((name, std::str::from_utf8(value).unwrap_or_default()))
        })
    }

    /// Returns the hash of packed bytes.
    pub(super) fn hash(&self, packed: &[u8]) -> u64 {
        self.unpack(packed).fold(0, |sum: u64, (name, value)| {
            sum.wrapping_add(hash_value(hash_name(&name.escaped), value))
        })
    }

    /// Returns the approximate memory of the names in bytes, as charged to the room.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, bytes: usize, room: &Room) -> Result<(), LabelError> {
        if !room.take(0, bytes) {
            return Err(LabelError::TooMany);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the number of the name for a key. `at` is the index of the attribute in its point.
    fn number(
        &mut self,
        at: usize,
        key: &str,
        namer: &Namer,
        room: &Room,
    ) -> Result<Option<u16>, LabelError> {
        if let Some(name) = self.names.get(at)
            && !key.is_empty()
            && *name.key == *key
        {
            return Ok(u16::try_from(at).ok());
        }
        if let Some(number) = self.by_key.get(key) {
            return Ok(*number);
        }
        if key.len() > LONGEST_KEY {
            return Err(LabelError::TooLong);
        }
        if self.by_key.len() >= NAMES {
            return Err(LabelError::TooMany);
        }
        self.take(KEY_BYTES + key.len(), room)?;
        let number = match namer.label(key) {
            Some(label) if is_reserved(&label, &[self.reserved]) => {
                Some(self.named(&format!("exported_{label}"), key, room)?)
            }
            Some(label) => Some(self.named(&label, key, room)?),
            None => None,
        };
        self.by_key.insert(key.into(), number);
        Ok(number)
    }

    /// Returns the number of a name. Names that differ only in their full spelling are the same
    /// name, with the first spelling.
    fn named(&mut self, label: &str, key: &str, room: &Room) -> Result<u16, LabelError> {
        let name = Name::of_label(label);
        let known = self
            .names
            .iter()
            .position(|known| known.name.escaped == name.escaped);
        if let Some(known) = known {
            return u16::try_from(known).map_err(|_| LabelError::TooMany);
        }
        if self.names.len() >= NAMES {
            return Err(LabelError::TooMany);
        }
        let number = u16::try_from(self.names.len()).map_err(|_| LabelError::TooMany)?;
        self.take(size_of::<LabelName>() + 2 * label.len() + key.len(), room)?;
        self.names.push(LabelName {
            key: key.into(),
            hash: hash_name(&name.escaped),
            name,
        });
        Ok(number)
    }
}

/// Maximum number of label names, and of keys mapped to names, of one metric. Usual metrics have a
/// dozen; keys that contain data would fill the memory.
const NAMES: usize = 1024;
/// Maximum length in bytes of an attribute key that becomes a label, since it is stored and written
/// into every line.
pub(super) const LONGEST_KEY: usize = 1024;
/// Memory of a key besides its text, in bytes.
const KEY_BYTES: usize = 128;
