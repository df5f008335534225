//! Resolves a request into strings and addresses, without indices.
//!
//! Every sample contains its whole stack, so the result is much larger than the request. Use the function only for
//! tests and for requests of known size.
//!
//! The code reads the tables directly and shares no code with [`ingest`](super::ingest). Therefore it can verify that
//! ingesting keeps the meaning.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;

use super::fault::DictionaryTable;
use super::fault::ProfileFault;
use super::references::References;

/// An attribute: key, encoded value, unit.
pub type ResolvedAttribute<'r> = (&'r str, Vec<u8>, &'r str);

/// A profile with its resource and scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedProfile<'r> {
    /// Attributes of the resource: key and encoded value, by key.
    pub resource: Vec<(String, Vec<u8>)>,
    /// Name and version of the scope.
    pub scope: (String, String),
    /// Attributes of the scope: key and encoded value, by key.
    pub scope_attributes: Vec<(String, Vec<u8>)>,
    /// Type and unit of the values.
    pub sample_type: (&'r str, &'r str),
    /// Type, unit and amount of the period.
    pub period: (&'r str, &'r str, i64),
    /// Start and duration, in nanoseconds.
    pub time: (u64, u64),
    /// Profile id.
    pub profile_id: &'r [u8],
    /// Attributes of the profile, by key.
    pub attributes: Vec<ResolvedAttribute<'r>>,
    /// Samples, in order.
    pub samples: Vec<ResolvedSample<'r>>,
}

/// A sample.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedSample<'r> {
    /// Stack, the leaf first.
    pub stack: Vec<ResolvedFrame<'r>>,
    /// Attributes of the sample, by key.
    pub attributes: Vec<ResolvedAttribute<'r>>,
    /// Trace id and span id; empty if there is no link.
    pub link: (&'r [u8], &'r [u8]),
    /// Values.
    pub values: &'r [i64],
    /// Timestamps in nanoseconds since 1970 (UTC).
    pub timestamps: &'r [u64],
}

/// A location in the code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedFrame<'r> {
    /// Mapping of the binary.
    pub mapping: ResolvedMapping<'r>,
    /// Address.
    pub address: u64,
    /// Source lines, the innermost first.
    pub lines: Vec<ResolvedLine<'r>>,
    /// Attributes of the location, by key.
    pub attributes: Vec<ResolvedAttribute<'r>>,
}

/// A mapped binary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedMapping<'r> {
    /// Path of the file.
    pub filename: &'r str,
    /// First address, and the address behind the last one.
    pub range: (u64, u64),
    /// File offset of the first address.
    pub file_offset: u64,
    /// Attributes of the mapping, by key.
    pub attributes: Vec<ResolvedAttribute<'r>>,
}

/// A line in a function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedLine<'r> {
    /// Name of the function.
    pub name: &'r str,
    /// Linkage name of the function.
    pub system_name: &'r str,
    /// Path of the source file.
    pub filename: &'r str,
    /// First line of the function, line, and column.
    pub position: (i64, i64, i64),
}

/// Resolves all profiles of a request.
///
/// # Errors
/// Fails if an index is outside of its table, or if references to strings expand to too many bytes.
pub fn resolve(
    request: &ExportProfilesServiceRequest,
) -> Result<Vec<ResolvedProfile<'_>>, ProfileFault> {
    static NONE: proto::ProfilesDictionary = proto::ProfilesDictionary {
        mapping_table: Vec::new(),
        location_table: Vec::new(),
        function_table: Vec::new(),
        link_table: Vec::new(),
        string_table: Vec::new(),
        attribute_table: Vec::new(),
        stack_table: Vec::new(),
    };
    let tables = Tables(request.dictionary.as_ref().unwrap_or(&NONE));
    let mut references = References::new(&tables.0.string_table);
    let mut profiles = Vec::new();
    for from in &request.resource_profiles {
        let attributes = from.resource.as_ref().map(|resource| &resource.attributes);
        let resource = key_values(&mut references, attributes)?;
        for from in &from.scope_profiles {
            let scope = from.scope.as_ref();
            let scope_attributes = scope.map(|scope| &scope.attributes);
            let scope_attributes = key_values(&mut references, scope_attributes)?;
            for from in &from.profiles {
                profiles.push(ResolvedProfile {
                    resource: resource.clone(),
                    scope: scope
                        .map(|scope| (scope.name.clone(), scope.version.clone()))
                        .unwrap_or_default(),
                    scope_attributes: scope_attributes.clone(),
                    ..tables.profile(from, &mut references)?
                });
            }
        }
    }
    Ok(profiles)
}

fn key_values(
    references: &mut References<'_>,
    attributes: Option<&Vec<KeyValue>>,
) -> Result<Vec<(String, Vec<u8>)>, ProfileFault> {
    let mut attributes = attributes.cloned().unwrap_or_default();
    references.resolve(&mut attributes)?;
    let mut resolved: Vec<_> = attributes
        .into_iter()
        .map(|attribute| {
            let value = attribute.value.unwrap_or_default();
            (attribute.key, value.encode_to_vec())
        })
        .collect();
    resolved.sort();
    Ok(resolved)
}

#[derive(Clone, Copy)]
struct Tables<'r>(&'r proto::ProfilesDictionary);

impl<'r> Tables<'r> {
    fn profile(
        self,
        from: &'r proto::Profile,
        references: &mut References<'_>,
    ) -> Result<ResolvedProfile<'r>, ProfileFault> {
        let sample_type = from.sample_type.unwrap_or_default();
        let period_type = from.period_type.unwrap_or_default();
        let samples = from
            .samples
            .iter()
            .map(|sample| self.sample(sample, references));
        Ok(ResolvedProfile {
            resource: Vec::new(),
            scope: Default::default(),
            scope_attributes: Vec::new(),
            sample_type: (
                self.string(sample_type.type_strindex)?,
                self.string(sample_type.unit_strindex)?,
            ),
            period: (
                self.string(period_type.type_strindex)?,
                self.string(period_type.unit_strindex)?,
                from.period,
            ),
            time: (from.time_unix_nano, from.duration_nano),
            profile_id: &from.profile_id,
            samples: samples.collect::<Result<_, _>>()?,
            attributes: self.attributes(&from.attribute_indices, references)?,
        })
    }

    fn sample(
        self,
        from: &'r proto::Sample,
        references: &mut References<'_>,
    ) -> Result<ResolvedSample<'r>, ProfileFault> {
        let stack = entry(
            &self.0.stack_table,
            DictionaryTable::Stack,
            from.stack_index,
        )?;
        let locations = stack.map_or(&[][..], |stack| &stack.location_indices);
        let link = entry(&self.0.link_table, DictionaryTable::Link, from.link_index)?;
        let ids = link.map(|link| (&link.trace_id[..], &link.span_id[..]));
        Ok(ResolvedSample {
            stack: locations
                .iter()
                .map(|location| self.frame(*location, references))
                .collect::<Result<_, _>>()?,
            attributes: self.attributes(&from.attribute_indices, references)?,
            link: ids.unwrap_or_default(),
            values: &from.values,
            timestamps: &from.timestamps_unix_nano,
        })
    }

    fn frame(
        self,
        index: i32,
        references: &mut References<'_>,
    ) -> Result<ResolvedFrame<'r>, ProfileFault> {
        let from = entry(&self.0.location_table, DictionaryTable::Location, index)?;
        let mapping = from.map_or(0, |location| location.mapping_index);
        let mapping = entry(&self.0.mapping_table, DictionaryTable::Mapping, mapping)?;
        let lines = from.map_or(&[][..], |location| &location.lines);
        let attributes = from.map_or(&[][..], |location| &location.attribute_indices);
        let of_mapping = mapping.map_or(&[][..], |mapping| &mapping.attribute_indices);
        Ok(ResolvedFrame {
            mapping: ResolvedMapping {
                filename: self.string(mapping.map_or(0, |mapping| mapping.filename_strindex))?,
                range: mapping.map_or((0, 0), |from| (from.memory_start, from.memory_limit)),
                file_offset: mapping.map_or(0, |mapping| mapping.file_offset),
                attributes: self.attributes(of_mapping, references)?,
            },
            address: from.map_or(0, |location| location.address),
            lines: lines
                .iter()
                .map(|line| self.line(*line))
                .collect::<Result<_, _>>()?,
            attributes: self.attributes(attributes, references)?,
        })
    }

    fn line(self, from: proto::Line) -> Result<ResolvedLine<'r>, ProfileFault> {
        let function = entry(
            &self.0.function_table,
            DictionaryTable::Function,
            from.function_index,
        )?;
        let function = function.copied().unwrap_or_default();
        Ok(ResolvedLine {
            name: self.string(function.name_strindex)?,
            system_name: self.string(function.system_name_strindex)?,
            filename: self.string(function.filename_strindex)?,
            position: (function.start_line, from.line, from.column),
        })
    }

    fn attributes(
        self,
        indices: &[i32],
        references: &mut References<'_>,
    ) -> Result<Vec<ResolvedAttribute<'r>>, ProfileFault> {
        let mut attributes = Vec::new();
        for index in indices {
            if let Some(from) = entry(&self.0.attribute_table, DictionaryTable::Attribute, *index)?
            {
                let value = from.value.clone().unwrap_or_default();
                attributes.push((
                    self.string(from.key_strindex)?,
                    references.resolved(&value)?.encode_to_vec(),
                    self.string(from.unit_strindex)?,
                ));
            }
        }
        attributes.sort();
        Ok(attributes)
    }

    fn string(self, index: i32) -> Result<&'r str, ProfileFault> {
        let string = entry(&self.0.string_table, DictionaryTable::String, index)?;
        Ok(string.map_or("", String::as_str))
    }
}

/// Returns the entry of a table; `None` for index 0.
fn entry<T>(table: &[T], name: DictionaryTable, index: i32) -> Result<Option<&T>, ProfileFault> {
    if index == 0 {
        return Ok(None);
    }
    usize::try_from(index)
        .ok()
        .and_then(|at| table.get(at))
        .map(Some)
        .ok_or(ProfileFault::Dangling { table: name, index })
}
