//! Verbosity `detailed` of profiles: the tables of the dictionary as they are, in the Collector's text.

use std::fmt::{Display, Formatter, Result, Write};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, Location, Mapping, Profile, ProfilesDictionary, Sample,
};

use super::chunks::Text;
use super::detailed::line;
use super::profiles::each;
use super::text::{Id, Plain, Strings, Timestamp, typed};
use tributary_otlp::view::text_of;

pub(super) fn profiles(out: &mut Text<'_>, request: &ExportProfilesServiceRequest) -> Result {
    let empty = ProfilesDictionary::default();
    let dictionary = request.dictionary.as_ref().unwrap_or(&empty);
    tables(out, dictionary)?;
    each(out, request, dictionary, profile)
}

fn tables(out: &mut Text<'_>, dictionary: &ProfilesDictionary) -> Result {
    for (at, entry) in dictionary.mapping_table.iter().enumerate() {
        writeln!(out, "Mapping #{at}")?;
        mapping(out, entry)?;
    }
    for (at, entry) in dictionary.location_table.iter().enumerate() {
        writeln!(out, "Location #{at}")?;
        location(out, entry)?;
    }
    for (at, entry) in dictionary.function_table.iter().enumerate() {
        writeln!(out, "Function #{at}")?;
        function(out, entry)?;
    }
    // The Collector shows the last entry of these two tables only.
    if let Some(entry) = dictionary.attribute_table.last() {
        let value = entry.value.as_ref().map(text_of).unwrap_or_default();
        writeln!(out, "Attribute table:")?;
        writeln!(out, "     -> Key: Int({})", entry.key_strindex)?;
        writeln!(out, "     -> Value: Str({})", Plain(&value))?;
        writeln!(out, "     -> unit: Int({})", entry.unit_strindex)?;
    }
    if let Some(entry) = dictionary.link_table.last() {
        writeln!(out, "Link table:")?;
        writeln!(out, "     -> Trace ID: Str({})", Id(&entry.trace_id))?;
        writeln!(out, "     -> Span ID: Str({})", Id(&entry.span_id))?;
    }
    if !dictionary.string_table.is_empty() {
        writeln!(out, "String table:")?;
    }
    for text in &dictionary.string_table {
        writeln!(out, "    {}", Plain(text))?;
    }
    Ok(())
}

fn mapping(out: &mut Text<'_>, entry: &Mapping) -> Result {
    writeln!(out, "    Memory start: {}", entry.memory_start)?;
    writeln!(out, "    Memory limit: {}", entry.memory_limit)?;
    writeln!(out, "    File offset: {}", entry.file_offset)?;
    writeln!(out, "    File name: {}", entry.filename_strindex)?;
    writeln!(out, "    Attributes: {}", List(&entry.attribute_indices))
}

fn location(out: &mut Text<'_>, entry: &Location) -> Result {
    writeln!(out, "    Mapping index: {}", entry.mapping_index)?;
    writeln!(out, "    Address: {}", entry.address)?;
    for (at, line) in entry.lines.iter().enumerate() {
        writeln!(out, "    Line #{at}")?;
        writeln!(out, "        Function index: {}", line.function_index)?;
        writeln!(out, "        Line: {}", line.line)?;
        writeln!(out, "        Column: {}", line.column)?;
    }
    writeln!(out, "    Attributes: {}", List(&entry.attribute_indices))
}

fn function(out: &mut Text<'_>, entry: &Function) -> Result {
    writeln!(out, "    Name: {}", entry.name_strindex)?;
    writeln!(out, "    System name: {}", entry.system_name_strindex)?;
    writeln!(out, "    Filename: {}", entry.filename_strindex)?;
    writeln!(out, "    Start line: {}", entry.start_line)
}

fn profile(out: &mut Text<'_>, dictionary: &ProfilesDictionary, profile: &Profile) -> Result {
    line(out, "Profile ID", Id(&profile.profile_id))?;
    line(out, "Start time", Timestamp(profile.time_unix_nano))?;
    line(out, "DurationNano", profile.duration_nano)?;
    let dropped = profile.dropped_attributes_count;
    line(out, "Dropped attributes count", dropped)?;
    for (at, entry) in profile.samples.iter().enumerate() {
        writeln!(out, "    Sample #{at}")?;
        sample(out, dictionary, entry)?;
    }
    Ok(())
}

fn sample(out: &mut Text<'_>, dictionary: &ProfilesDictionary, sample: &Sample) -> Result {
    let strings = Strings(&dictionary.string_table);
    writeln!(out, "        Values: {}", List(&sample.values))?;
    if !sample.attribute_indices.is_empty() {
        writeln!(out, "        Attributes:")?;
    }
    for index in &sample.attribute_indices {
        let place = usize::try_from(*index).ok();
        let Some(entry) = place.and_then(|at| dictionary.attribute_table.get(at)) else {
            let missing = format!("[Missing Dictionary AttributeTable Item #{index}]");
            writeln!(out, "             -> {missing}")?;
            continue;
        };
        let key = entry.key_strindex;
        let place = usize::try_from(key).ok();
        let missing = format!("[Missing Dictionary Key String Item #{key}]");
        let key = place.and_then(|at| dictionary.string_table.get(at));
        let key = key.unwrap_or(&missing);
        let value = typed(entry.value.as_ref(), strings);
        writeln!(out, "             -> {}: {value}", Plain(key))?;
    }
    Ok(())
}

/// Numbers in brackets, as Go prints a slice.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("[")?;
        for (at, number) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { " " } else { "" })?;
            number.fmt(f)?;
        }
        f.write_str("]")
    }
}
