//! Converts a pprof file to profiles over a dictionary.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use smallvec::SmallVec;

use super::super::dictionary::Dictionary;
use super::super::id::{AttributeSetId, Id as _, LocationId, MappingId, SampleId};
use super::super::model::{Header, Profile, Samples, ScopeProfiles};
use super::super::relocations::Relocations;
use super::super::table::Records;
use super::super::{names, references};
use super::error::Error;
use super::labels::Labels;
use super::legacy;
use super::links::LinkLabels;
pub use super::repairs::Repairs;
use super::source::{CopiedEntries, FileReader, wire};
use super::tables::{Ids, Tables, integers, is_concatenated};
use crate::entry::SampleKey;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_memory::Permit;
use tributary_otlp::reader::{Fields, Value};

/// Options of the conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Maximum size of a file after decompression, in bytes; at most 4 GiB. The default is 64 MiB.
    pub limit: usize,
    /// Labels that become links.
    pub links: LinkLabels,
    /// Whether the first profile contains the original file. Later changes to the profiles do not change the
    /// original, so this is off by default.
    pub keep_original: bool,
    /// Whether to repair files with invalid ids and references, which the format forbids, instead of refusing them. Some
    /// profilers of .NET write such files, and some servers accept them. Off by default.
    pub lenient: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            limit: 64 << 20,
            links: LinkLabels::default(),
            keep_original: false,
            lenient: false,
        }
    }
}

/// A converted file.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    /// Profiles, one per sample type, in the file's order, in a scope without a name. Every sample type has a profile, so
    /// that the conversion back keeps all types. A profile without values has a single sample of 0.
    pub profiles: ScopeProfiles,
    /// Mapping of the main program, the first mapping of a pprof file, if the mapping is referenced. Mappings have no
    /// order in OTLP; [`write`](super::write) takes the mapping whose file the resource names.
    pub main: Option<MappingId>,
    /// Repairs made during the conversion.
    pub repairs: Repairs,
}

/// Reads files. The memory is reused for the next file.
#[derive(Debug, Default)]
pub struct PprofReader {
    tables: Tables<'static>,
    memo: CopiedEntries,
    stack: Vec<LocationId>,
    labels: Vec<u8>,
    keys: Records<SampleId, SampleKey>,
    /// Totals of all sample types for the first key, then for the second key, and so on.
    totals: Vec<i64>,
}

impl PprofReader {
    /// Creates a reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Converts a file, with or without gzip. Adds only referenced entries to `into`. Addresses are shifted if
    /// there are `relocations`.
    ///
    /// During the conversion, `permit` accounts for the decompressed file and for the overhead of many small
    /// entries. The caller accounts for the result. Equal samples are merged.
    ///
    /// # Errors
    /// See [`Error`]. After an error, entries may remain in the dictionary; unreferenced entries are not written.
    pub fn read(
        &mut self,
        file: &[u8],
        options: &ReadOptions,
        permit: &mut Permit,
        into: &mut Dictionary,
        relocations: Option<&mut Relocations>,
    ) -> Result<Converted, Error> {
        let limit = options.limit.min(u32::MAX as usize);
        let held = permit.bytes();
        let decompressed = match file.starts_with(&[0x1f, 0x8b]) {
            true => Some(decompress(Codec::Gzip, file, limit, permit)?),
            false => None,
        };
        let bytes = decompressed.as_deref().unwrap_or(file);
        let converted = match bytes.len() {
            0 => Err(Error::Empty),
            len if len > limit => Err(Error::TooLarge(limit)),
            _ => self
                .convert_exactly(bytes, options, permit, into, relocations)
                .map_err(|error| match error {
                    Error::NoRoom(_) => error,
                    error => match legacy::identify_foreign(bytes) {
                        Some(name) => Error::Foreign(name),
                        None if is_concatenated(bytes) => Error::Concatenated,
                        None => error,
                    },
                }),
        };
        drop(decompressed);
        permit.shrink_to(held);
        let mut converted = converted?;
        if options.keep_original
            && let Some(first) = converted.profiles.profiles.first_mut()
        {
            first.header.original = Some(("pprof".to_owned(), file.to_vec()));
        }
        Ok(converted)
    }

    /// Reads the file again with the last id of each entry, after the first ids led to an error. A lenient reader then
    /// repairs the file.
    fn convert_exactly(
        &mut self,
        bytes: &[u8],
        options: &ReadOptions,
        permit: &mut Permit,
        into: &mut Dictionary,
        mut relocations: Option<&mut Relocations>,
    ) -> Result<Converted, Error> {
        let held = permit.bytes();
        let again = relocations.as_deref_mut();
        let mut converted = self.convert(bytes, Ids::First, options, permit, into, again);
        if converted.as_ref().is_err_and(Error::is_about_ids) {
            permit.shrink_to(held);
            let again = relocations.as_deref_mut();
            converted = self.convert(bytes, Ids::Last, options, permit, into, again);
        }
        if options.lenient && converted.as_ref().is_err_and(Error::is_repairable) {
            permit.shrink_to(held);
            converted = self.convert(bytes, Ids::Lenient, options, permit, into, relocations);
        }
        converted
    }

    fn convert(
        &mut self,
        bytes: &[u8],
        ids: Ids,
        options: &ReadOptions,
        permit: &mut Permit,
        into: &mut Dictionary,
        relocations: Option<&mut Relocations>,
    ) -> Result<Converted, Error> {
        let tables = Tables::new(bytes, std::mem::take(&mut self.tables), ids, permit)?;
        let mut memo = std::mem::take(&mut self.memo);
        let mut source = FileReader::new(&tables, into, &mut memo, relocations);
        let profiles = self.profiles(&mut source, options, permit);
        let (main, repairs) = (source.main(), source.repairs);
        self.memo = memo;
        self.tables = tables.cleared();
        Ok(Converted {
            profiles: profiles?,
            main,
            repairs,
        })
    }

    fn profiles(
        &mut self,
        source: &mut FileReader<'_, '_>,
        options: &ReadOptions,
        permit: &mut Permit,
    ) -> Result<ScopeProfiles, Error> {
        let header = header(source)?;
        let mut sample_types = Vec::new();
        for message in &source.tables.sample_types {
            sample_types.push(source.value_type(message)?);
        }
        let types = sample_types.len();
        self.samples(source, types, options)?;
        // A value takes a byte in the file, but becomes a sample with a key in each profile.
        let filled = self.totals.iter().filter(|total| **total != 0).count();
        permit.grow(filled.saturating_mul(Samples::BYTES))?;
        let columns = (0..types).map(|of| column(self.keys.entries(), &self.totals, types, of));
        let profiles = sample_types.into_iter().zip(columns);
        let profiles: Vec<Profile> = profiles
            .map(|(sample_type, samples)| Profile {
                header: Header {
                    sample_type,
                    ..header.clone()
                },
                samples,
            })
            .collect();
        Ok(ScopeProfiles {
            scope: scope(source, profiles.len())?,
            schema_url: String::new(),
            profiles,
        })
    }

    /// Reads the keys of the samples and the totals of each key.
    fn samples(
        &mut self,
        source: &mut FileReader<'_, '_>,
        types: usize,
        options: &ReadOptions,
    ) -> Result<(), Error> {
        const PLACE: &str = "a sample";
        let mut labels = Labels::new(source, &options.links);
        self.keys.clear();
        self.totals.clear();
        let mut values: SmallVec<[i64; 8]> = SmallVec::new();
        for message in &source.tables.samples {
            self.stack.clear();
            self.labels.clear();
            values.clear();
            for field in Fields::new(message) {
                let field = field.map_err(wire(PLACE))?;
                match (field.number, field.value) {
                    (1, value) => integers(PLACE, 1, value, |id| {
                        self.stack.extend(source.location(id)?);
                        Ok(())
                    })?,
                    (2, value) => integers(PLACE, 2, value, |value| {
                        values.push(value.cast_signed());
                        Ok(())
                    })?,
                    (3, Value::Bytes(_)) => self.labels.extend_from_slice(field.raw),
                    (3, _) => {
                        return Err(Error::FieldType {
                            place: PLACE,
                            field: 3,
                        });
                    }
                    _ => {}
                }
            }
            if values.len() != types {
                if source.is_lenient() {
                    source.repairs.samples += 1;
                    continue;
                }
                let values = values.len();
                return Err(Error::Values { values, types });
            }
            if values.iter().all(|value| *value == 0) {
                continue;
            }
            let (attributes, link) = match self.labels.as_slice() {
                [] => Default::default(),
                fields => labels.convert(source, fields)?,
            };
            let key = self.keys.intern(SampleKey {
                stack: source.into.stack(&self.stack),
                attributes,
                link,
            });
            let at = key.index() * types;
            match self.totals.get_mut(at..at + types) {
                None => self.totals.extend_from_slice(&values),
                Some(totals) => {
                    for (total, value) in totals.iter_mut().zip(&values) {
                        let sum = total.checked_add(*value);
                        source.repairs.saturated += u64::from(sum.is_none());
                        *total = sum.unwrap_or_else(|| total.saturating_add(*value));
                    }
                }
            }
        }
        Ok(())
    }
}

fn column(keys: &[SampleKey], totals: &[i64], types: usize, of: usize) -> Samples {
    let mut samples = Samples::default();
    let values = || totals.iter().skip(of).step_by(types);
    samples.reserve(values().filter(|value| **value != 0).count());
    for (key, value) in keys.iter().zip(values()) {
        if *value != 0 {
            samples.push(*key, &[*value], &[]);
        }
    }
    // An empty profile looks like a failure, and some readers refuse it.
    if let (true, Some(key)) = (samples.is_empty(), keys.first()) {
        samples.push(*key, &[0], &[]);
    }
    samples
}

/// Returns the metadata that all profiles of a file share.
fn header(source: &mut FileReader<'_, '_>) -> Result<Header, Error> {
    let tables = source.tables;
    Ok(Header {
        period_type: source.value_type(tables.period_type)?,
        period: source.positive(tables.period.cast_unsigned()),
        time: source.positive(tables.time.cast_unsigned()).cast_unsigned(),
        duration: source
            .positive(tables.duration.cast_unsigned())
            .cast_unsigned(),
        attributes: attributes(source)?,
        ..Header::default()
    })
}

fn attributes(source: &mut FileReader<'_, '_>) -> Result<AttributeSetId, Error> {
    let tables = source.tables;
    let mut attributes = Vec::new();
    let texts = [
        (names::DOC_URL, tables.doc_url),
        (names::DROP_FRAMES, tables.drop_frames),
        (names::KEEP_FRAMES, tables.keep_frames),
    ];
    for (key, index) in texts {
        let text = source.string(index)?;
        if text.index() != 0 {
            let text = source.into.text(text).to_owned();
            attributes.push(source.into.string_attribute(key, &text));
        }
    }
    let mut comments = Vec::new();
    let mut left = references::LIMIT;
    for index in &tables.comments {
        let text = source.string(*index)?;
        let text = source.into.text(text).to_owned();
        left = left
            .checked_sub(text.len() + size_of::<AnyValue>())
            .ok_or(Error::Expansion(references::LIMIT))?;
        comments.push(any(Any::StringValue(text)));
    }
    if !comments.is_empty() {
        let list = any(Any::ArrayValue(ArrayValue { values: comments }));
        attributes.push(source.into.any_attribute(names::COMMENT, &list));
    }
    Ok(source.into.attribute_set(&attributes))
}

/// Returns the scope, which carries the metadata that no single profile can carry.
fn scope(
    source: &mut FileReader<'_, '_>,
    profiles: usize,
) -> Result<Option<InstrumentationScope>, Error> {
    let order = (0..).take(profiles).map(|at| any(Any::IntValue(at)));
    let order = Any::ArrayValue(ArrayValue {
        values: order.collect(),
    });
    let mut attributes = vec![key_value(names::SAMPLE_TYPE_ORDER, order)];
    let default = source.string(source.tables.default_sample_type)?;
    if default.index() != 0 {
        let default = source.into.text(default).to_owned();
        attributes.push(key_value(
            names::DEFAULT_SAMPLE_TYPE,
            Any::StringValue(default),
        ));
    }
    Ok(Some(InstrumentationScope {
        attributes,
        ..InstrumentationScope::default()
    }))
}

fn key_value(key: &str, value: Any) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(any(value)),
        key_strindex: 0,
    }
}

fn any(value: Any) -> AnyValue {
    AnyValue { value: Some(value) }
}
