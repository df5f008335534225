//! Finds locations without names and their binaries.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::entries::{Entries, bytes, fields, number, numbers};
use crate::fault::ProfileFault;
use crate::names::{BUILD_ID_GNU, BUILD_ID_GO};
use tributary_otlp::reader::Value;

/// Locations of a request that have an address but no lines, and whose mapping identifies the binary.
#[derive(Debug, Default)]
pub struct UnsymbolizedLocations {
    /// Binaries with such locations. A binary occurs twice if the request has it twice.
    pub binaries: Vec<UnsymbolizedBinary>,
    /// Number of locations with neither lines nor a build id, which cannot be symbolized.
    pub without_build_id: usize,
}

/// A binary with locations that have no names.
#[derive(Debug, Default)]
pub struct UnsymbolizedBinary {
    /// GNU build id.
    pub gnu_build_id: Option<Arc<str>>,
    /// Go build id.
    pub go_build_id: Option<Arc<str>>,
    /// Mappings of the binary with such locations.
    pub mappings: Vec<UnsymbolizedMapping>,
}

/// A mapping with locations that have no names.
#[derive(Debug, Default)]
pub struct UnsymbolizedMapping {
    pub(super) index: usize,
    /// First address in memory.
    pub memory_start: u64,
    /// Address behind the last one.
    pub memory_limit: u64,
    /// File offset of the first address, in bytes.
    pub file_offset: u64,
    /// Addresses with the indices of their locations, sorted by address.
    pub locations: Vec<(u64, usize)>,
}

impl UnsymbolizedLocations {
    /// Reads the dictionary of a request, in time proportional to its size.
    ///
    /// # Errors
    /// Fails if the bytes are not a request, or refer to missing functions, strings or attributes. A dangling index
    /// would later refer to an entry that naming appends to the table.
    pub fn read(request: &[u8]) -> Result<Self, ProfileFault> {
        let entries = entries(request)?;
        let unnamed = Self::find(&entries)?;
        if !unnamed.binaries.is_empty() {
            entries.check_references()?;
        }
        Ok(unnamed)
    }

    fn find(entries: &Entries<'_>) -> Result<Self, ProfileFault> {
        let mut unnamed = UnsymbolizedLocations::default();
        // Index in `found` of the locations of each mapping.
        let mut places: Vec<Option<usize>> = vec![None; entries.mappings.len()];
        let mut found: Vec<UnsymbolizedMapping> = Vec::new();
        for (at, location) in entries.locations.iter().enumerate() {
            let Some((mapping, address)) = address_without_lines(location)? else {
                continue;
            };
            let Some(place) = places.get_mut(mapping).filter(|_| mapping != 0) else {
                unnamed.without_build_id += 1;
                continue;
            };
            let place = *place.get_or_insert_with(|| {
                found.push(UnsymbolizedMapping {
                    index: mapping,
                    ..UnsymbolizedMapping::default()
                });
                found.len() - 1
            });
            if let Some(mapping) = found.get_mut(place) {
                mapping.locations.push((address, at));
            }
        }
        let mut build_ids = BuildIds {
            entries,
            known: HashMap::default(),
        };
        let mut binaries: HashMap<_, usize, RandomState> = HashMap::default();
        for mut mapping in found {
            let entry = entries.mappings.get(mapping.index).copied();
            let says = mapping.read(entry.unwrap_or_default(), &mut build_ids)?;
            if says == MappingEntry::default() {
                unnamed.without_build_id += mapping.locations.len();
                continue;
            }
            let binary = *binaries.entry(says).or_insert_with(|| {
                unnamed.binaries.push(UnsymbolizedBinary {
                    gnu_build_id: build_ids.text(says.gnu),
                    go_build_id: build_ids.text(says.go),
                    mappings: Vec::new(),
                });
                unnamed.binaries.len() - 1
            });
            mapping.locations.sort_unstable();
            if let Some(binary) = unnamed.binaries.get_mut(binary) {
                binary.mappings.push(mapping);
            }
        }
        Ok(unnamed)
    }

    /// Number of locations that could be named.
    pub fn unnamed(&self) -> usize {
        self.binaries.iter().map(UnsymbolizedBinary::unnamed).sum()
    }
}

impl UnsymbolizedBinary {
    /// Number of locations that could be named.
    pub fn unnamed(&self) -> usize {
        self.mappings.iter().map(|m| m.locations.len()).sum()
    }
}

impl UnsymbolizedMapping {
    /// Reads the fields of a mapping. Returns the identity of its binary.
    fn read(
        &mut self,
        entry: &[u8],
        build_ids: &mut BuildIds<'_, '_>,
    ) -> Result<MappingEntry, ProfileFault> {
        const PLACE: &str = "a mapping";
        let mut says = MappingEntry::default();
        for field in fields(entry, PLACE) {
            let field = field?;
            match field.number {
                1 => self.memory_start = number(field, PLACE)?,
                2 => self.memory_limit = number(field, PLACE)?,
                3 => self.file_offset = number(field, PLACE)?,
                5 => numbers(field, PLACE, |attribute| {
                    match build_ids.get(attribute)? {
                        BuildId::Gnu(text) => says.gnu = text.as_ref().map(|_| attribute),
                        BuildId::Go(text) => says.go = text.as_ref().map(|_| attribute),
                        BuildId::None => {}
                    }
                    Ok(())
                })?,
                _ => {}
            }
        }
        Ok(says)
    }
}

/// Attributes with the build ids of a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct MappingEntry {
    gnu: Option<u64>,
    go: Option<u64>,
}

/// Attributes of mappings, each read once, since a mapping may refer to the same attribute many times.
struct BuildIds<'e, 'r> {
    entries: &'e Entries<'r>,
    known: HashMap<u64, BuildId, RandomState>,
}

/// Build id in an attribute. An attribute with an invalid text still counts as a build id.
enum BuildId {
    Gnu(Option<Arc<str>>),
    Go(Option<Arc<str>>),
    None,
}

/// Maximum length in bytes. A GNU build id has at most 128 digits, a Go build id about 83 characters.
const LONGEST_BUILD_ID: usize = 512;

impl BuildIds<'_, '_> {
    fn get(&mut self, attribute: u64) -> Result<&BuildId, ProfileFault> {
        if !self.known.contains_key(&attribute) {
            let read = Attribute::read(self.entries, attribute)?;
            let text = read.text.filter(|text| text.len() <= LONGEST_BUILD_ID);
            let text = text.and_then(|text| str::from_utf8(text).ok());
            let text = text.filter(|text| !text.is_empty());
            let id = if read.key == BUILD_ID_GNU.as_bytes() {
                BuildId::Gnu(text.map(Arc::from))
            } else if read.key == BUILD_ID_GO.as_bytes() {
                BuildId::Go(text.map(Arc::from))
            } else {
                BuildId::None
            };
            self.known.insert(attribute, id);
        }
        Ok(self.known.get(&attribute).unwrap_or(&BuildId::None))
    }

    fn text(&self, attribute: Option<u64>) -> Option<Arc<str>> {
        match self.known.get(&attribute?)? {
            BuildId::Gnu(text) | BuildId::Go(text) => text.clone(),
            BuildId::None => None,
        }
    }
}

pub(super) fn entries(request: &[u8]) -> Result<Entries<'_>, ProfileFault> {
    let mut entries = Entries::default();
    for field in fields(request, "the request") {
        let field = field?;
        if let (2, Value::Bytes(dictionary)) = (field.number, field.value) {
            entries.add(dictionary)?;
        }
    }
    Ok(entries)
}

/// Returns the mapping and the address of a location without lines; `None` without an address.
fn address_without_lines(location: &[u8]) -> Result<Option<(usize, u64)>, ProfileFault> {
    const PLACE: &str = "a location";
    let (mut mapping, mut address) = (0, 0);
    for field in fields(location, PLACE) {
        let field = field?;
        match field.number {
            1 => mapping = number(field, PLACE)?,
            2 => address = number(field, PLACE)?,
            3 => return Ok(None),
            _ => {}
        }
    }
    let mapping = usize::try_from(mapping).unwrap_or(usize::MAX);
    Ok((address != 0).then_some((mapping, address)))
}

/// Key and text of an attribute, unvalidated. Both may be long, and many attributes may share them, so only comparisons
/// that need validation validate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attribute<'r> {
    pub(super) key: &'r [u8],
    text: Option<&'r [u8]>,
}

impl<'r> Attribute<'r> {
    /// Reads the attribute with this index; a missing attribute is empty.
    pub(super) fn read(entries: &Entries<'r>, index: u64) -> Result<Self, ProfileFault> {
        const PLACE: &str = "an attribute";
        let string = |index: u64| {
            let index = usize::try_from(index).ok();
            index.and_then(|index| entries.strings.get(index).copied())
        };
        let index = usize::try_from(index).ok().filter(|index| *index != 0);
        let entry = index.and_then(|index| entries.attributes.get(index));
        let mut attribute = Attribute::default();
        for field in fields(entry.copied().unwrap_or_default(), PLACE) {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Varint(key)) => attribute.key = string(key).unwrap_or_default(),
                (2, Value::Bytes(value)) => {
                    for field in fields(value, PLACE) {
                        let field = field?;
                        attribute.text = match (field.number, field.value) {
                            (1, _) => Some(bytes(field, PLACE)?),
                            (8, Value::Varint(index)) => string(index),
                            _ => None,
                        };
                    }
                }
                _ => {}
            }
        }
        Ok(attribute)
    }
}
