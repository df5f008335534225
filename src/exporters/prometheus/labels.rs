//! The labels of one series, packed: numbers of names, and values.
//!
//! A name is kept once per metric, and so is what it looks like on the page. The labels of a series are sorted by the
//! number of their name, so equal labels are equal bytes.

use std::borrow::Cow;
use std::sync::LazyLock;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::naming::{Name, Namer};
use super::origin::Origin;
use super::room::Room;
use tributary_otlp::reader::{put_varint, varint};
use tributary_otlp::view::{AnyValue, Attribute};

/// The names of the labels of one metric.
#[derive(Debug)]
pub(super) struct Labels {
    /// A name that the exposition needs for itself.
    reserved: &'static str,
    names: Vec<LabelName>,
    /// The names by what they are made of; several keys may become one name. None for keys of which nothing is left.
    by_key: HashMap<Box<str>, Option<u16>, RandomState>,
    /// What the names take.
    bytes: usize,
}

#[derive(Debug)]
struct LabelName {
    /// The key that it was first made of, which is nearly always the one that comes next.
    key: Box<str>,
    name: Name,
    hash: u64,
}

/// The labels of a point on their way to a series.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// As a series keeps them.
    pub(super) bytes: Vec<u8>,
    /// The sum of the hashes of the labels: it does not depend on their order, so those of an [`Origin`] can be added.
    pub(super) hash: u64,
}

/// Why the labels of a point cannot be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The metric has more names of labels than it may, or than there is room for.
    TooMany,
    /// A key is longer than it may be.
    TooLong,
}

impl Labels {
    /// No names yet. `reserved` cannot be a label of these series (`le`, `quantile`), or is empty.
    pub(super) fn new(reserved: &'static str) -> Self {
        Labels {
            reserved,
            names: Vec::new(),
            by_key: HashMap::with_hasher(RandomState::default()),
            bytes: 0,
        }
    }

    /// Packs the attributes of a point. What `origin` says already goes under a name with `exported_`, as Prometheus
    /// does with labels of targets that it has itself; several values of one name are joined, sorted by the keys they
    /// had.
    pub(super) fn pack<'a>(
        &mut self,
        attributes: impl Iterator<Item = Attribute<'a>>,
        origin: &Origin,
        (namer, room): (&Namer, &Room),
        packed: &mut Packed,
    ) -> Result<(), Unfit> {
        let mut found: SmallVec<[(u16, &'a str, Cow<'a, str>); 16]> = SmallVec::new();
        for (at, attribute) in attributes.enumerate() {
            let (key, value) = (attribute.key(), attribute.value());
            let value = value.as_ref().map_or(Cow::Borrowed(""), AnyValue::to_text);
            // To Prometheus, an empty label is none.
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

    /// The labels in packed bytes.
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

    /// The hash of packed bytes.
    pub(super) fn hash(&self, packed: &[u8]) -> u64 {
        self.unpack(packed).fold(0, |sum: u64, (name, value)| {
            sum.wrapping_add(hash_value(hash_name(&name.escaped), value))
        })
    }

    /// The bytes of memory that the names take, about: what was taken of the room for them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, bytes: usize, room: &Room) -> Result<(), Unfit> {
        if !room.take(0, bytes) {
            return Err(Unfit::TooMany);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// The number of the name for a key, which was the attribute `at` this place in a point.
    fn number(
        &mut self,
        at: usize,
        key: &str,
        namer: &Namer,
        room: &Room,
    ) -> Result<Option<u16>, Unfit> {
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
            return Err(Unfit::TooLong);
        }
        if self.by_key.len() >= NAMES {
            return Err(Unfit::TooMany);
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

    /// The number of a name; two that differ in their full spelling only are one, spelled as it came first.
    fn named(&mut self, label: &str, key: &str, room: &Room) -> Result<u16, Unfit> {
        let name = Name::of_label(label);
        let known = self
            .names
            .iter()
            .position(|known| known.name.escaped == name.escaped);
        if let Some(known) = known {
            return u16::try_from(known).map_err(|_| Unfit::TooMany);
        }
        if self.names.len() >= NAMES {
            return Err(Unfit::TooMany);
        }
        let number = u16::try_from(self.names.len()).map_err(|_| Unfit::TooMany)?;
        self.take(size_of::<LabelName>() + 2 * label.len() + key.len(), room)?;
        self.names.push(LabelName {
            key: key.into(),
            hash: hash_name(&name.escaped),
            name,
        });
        Ok(number)
    }
}

/// Whether a label cannot have that name, however it is spelled on the page: the page needs it for itself.
pub(super) fn is_reserved(label: &str, names: &[&str]) -> bool {
    let escaped = Name::of_label(label).escaped;
    *escaped == *"__name__" || names.iter().any(|name| *escaped == **name)
}

/// The hash of a label: of [`hash_name`] and the value.
pub(super) fn hash_value(name: u64, value: &str) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), name)
}

/// The hash of the name of a label.
pub(super) fn hash_name(escaped: &str) -> u64 {
    xxh3_64_with_seed(escaped.as_bytes(), *SEED)
}

/// The most names of labels, and keys that became names, that one metric may have. A metric of people has a dozen; keys
/// that are data would fill the memory.
const NAMES: usize = 1024;
/// The longest key of an attribute that becomes a label, in bytes. It is kept, and written into every line.
pub(super) const LONGEST_KEY: usize = 1024;
/// What a key takes besides its text.
const KEY_BYTES: usize = 128;

/// Random, so that nobody can make labels whose hashes are equal.
static SEED: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..));
