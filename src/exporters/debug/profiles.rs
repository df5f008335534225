//! Verbosity `resolved`: profiles with all references to the dictionary resolved. An invalid index is printed as
//! `<invalid index N>`.

use std::cmp::Reverse;
use std::fmt::{Display, Result, Write};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{
    Line, Location, Profile, ProfilesDictionary, Sample,
};

use super::chunks::Text;
use super::detailed::{resource, scope};
use super::text::{Attribute, Hex, Nanos, Plain, Resolved, Strings, Time};

/// Number of samples printed of each profile, the heaviest first, because a profile has thousands of samples.
const SAMPLES: usize = 10;

pub(super) fn resolved(out: &mut Text<'_>, request: &ExportProfilesServiceRequest) -> Result {
    let empty = ProfilesDictionary::default();
    let dictionary = request.dictionary.as_ref().unwrap_or(&empty);
    each(out, request, dictionary, profile)
}

/// Prints the resources and scopes of a request, with `profile` for each profile.
pub(super) fn each(
    out: &mut Text<'_>,
    request: &ExportProfilesServiceRequest,
    dictionary: &ProfilesDictionary,
    profile: fn(&mut Text<'_>, &ProfilesDictionary, &Profile) -> Result,
) -> Result {
    let strings = Strings(&dictionary.string_table);
    for (at, data) in request.resource_profiles.iter().enumerate() {
        writeln!(out, "ResourceProfiles #{at}")?;
        resource(out, &data.schema_url, data.resource.as_ref(), strings)?;
        for (at, data) in data.scope_profiles.iter().enumerate() {
            let (schema_url, from) = (&data.schema_url, data.scope.as_ref());
            scope(out, "Profiles", at, schema_url, from, strings)?;
            for (at, data) in data.profiles.iter().enumerate() {
                writeln!(out, "Profile #{at}")?;
                profile(out, dictionary, data)?;
            }
        }
    }
    Ok(())
}

/// Writes an aligned line, unless the value is empty.
fn field(out: &mut Text<'_>, name: &str, value: impl Display) -> Result {
    match value.to_string() {
        value if value.is_empty() => Ok(()),
        value => writeln!(out, "    {name:<15}: {}", value.trim_end()),
    }
}

/// Writes an aligned line, unless the number is zero.
fn count(out: &mut Text<'_>, name: &str, value: u32) -> Result {
    match value {
        0 => Ok(()),
        value => field(out, name, value),
    }
}

/// Writes the attributes of a profile or a sample, if there are any.
fn attribute_list(out: &mut Text<'_>, attributes: &[Attribute<'_>]) -> Result {
    if !attributes.is_empty() {
        writeln!(out, "    Attributes:")?;
    }
    for attribute in attributes {
        writeln!(out, "         -> {attribute}")?;
    }
    Ok(())
}

/// Returns the attributes at these positions of the dictionary.
pub(super) fn attributes<'a>(
    dictionary: &'a ProfilesDictionary,
    indices: &[i32],
) -> Vec<Attribute<'a>> {
    let strings = Strings(&dictionary.string_table);
    indices
        .iter()
        .map(|index| match get(&dictionary.attribute_table, *index) {
            Some(entry) => Attribute {
                key: strings.get(entry.key_strindex),
                value: strings.value(entry.value.as_ref()),
                unit: strings.get_or_empty(entry.unit_strindex),
            },
            None => Attribute {
                key: Resolved::Invalid(*index),
                value: strings.value(None),
                unit: Resolved::Text(""),
            },
        })
        .collect()
}

fn get<T>(table: &[T], index: i32) -> Option<&T> {
    table.get(usize::try_from(index).ok()?)
}

fn profile(out: &mut Text<'_>, dictionary: &ProfilesDictionary, profile: &Profile) -> Result {
    let strings = Strings(&dictionary.string_table);
    field(out, "Profile ID", Hex(&profile.profile_id))?;
    let sample_type = profile.sample_type.unwrap_or_default();
    let unit = strings.get_or_empty(sample_type.unit_strindex);
    if profile.sample_type.is_some() {
        let name = strings.get_or_empty(sample_type.type_strindex);
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(" in {unit}")
        };
        field(out, "Sample type", format_args!("{name}{unit}"))?;
    }
    if let Some(period_type) = profile.period_type {
        let name = strings.get_or_empty(period_type.type_strindex);
        let unit = strings.get_or_empty(period_type.unit_strindex);
        field(
            out,
            "Period",
            format_args!("{} {unit} of {name}", profile.period),
        )?;
    }
    field(out, "Start time", Time(profile.time_unix_nano))?;
    field(out, "Duration", Nanos(profile.duration_nano))?;
    if !profile.original_payload.is_empty() {
        let format = Plain(&profile.original_payload_format);
        let bytes = profile.original_payload.len();
        field(out, "Original", format_args!("{bytes} bytes of {format}"))?;
    }
    count(out, "Lost attributes", profile.dropped_attributes_count)?;
    let own = attributes(dictionary, &profile.attribute_indices);
    attribute_list(out, &own)?;

    let total: i128 = profile.samples.iter().map(weight).sum();
    let samples = profile.samples.len();
    field(
        out,
        "Samples",
        format_args!("{samples}, together {total} {unit}"),
    )?;
    let mut heaviest: Vec<(usize, &Sample)> = profile.samples.iter().enumerate().collect();
    // A stable sort, so equal weights keep their order.
    heaviest.sort_by_key(|(_, sample)| Reverse(weight(sample)));
    let rest = heaviest.split_off(heaviest.len().min(SAMPLES));
    for (at, entry) in heaviest {
        let weight = weight(entry);
        write!(out, "Sample #{at}: {weight} {unit}")?;
        if total > 0 {
            write!(out, " ({:.1} %)", weight as f64 / total as f64 * 100.0)?;
        }
        writeln!(out)?;
        sample(out, dictionary, entry)?;
    }
    if !rest.is_empty() {
        let weight: i128 = rest.iter().map(|(_, sample)| weight(sample)).sum();
        writeln!(
            out,
            "... and {} more samples of {weight} {unit}",
            rest.len()
        )?;
    }
    Ok(())
}

/// Returns the weight of a sample: the sum of its values, or the number of its timestamps if it has no values.
fn weight(sample: &Sample) -> i128 {
    if sample.values.is_empty() {
        return i128::try_from(sample.timestamps_unix_nano.len()).unwrap_or(i128::MAX);
    }
    sample.values.iter().map(|value| i128::from(*value)).sum()
}

fn sample(out: &mut Text<'_>, dictionary: &ProfilesDictionary, sample: &Sample) -> Result {
    match (
        sample.timestamps_unix_nano.iter().min(),
        sample.timestamps_unix_nano.iter().max(),
    ) {
        (Some(first), Some(last)) if first < last => {
            let observations = sample.timestamps_unix_nano.len();
            field(
                out,
                "Timestamps",
                format_args!("{observations}, from {}", Time(*first)),
            )?;
            field(out, "", format_args!("to {}", Time(*last)))?;
        }
        (Some(only), _) => field(out, "Timestamp", Time(*only))?,
        _ => {}
    }
    if sample.link_index != 0 {
        match get(&dictionary.link_table, sample.link_index) {
            Some(link) => field(
                out,
                "Link",
                format_args!("trace {} span {}", Hex(&link.trace_id), Hex(&link.span_id)),
            )?,
            None => field(out, "Link", Resolved::Invalid(sample.link_index))?,
        }
    }
    let own = attributes(dictionary, &sample.attribute_indices);
    attribute_list(out, &own)?;
    let Some(stack) = get(&dictionary.stack_table, sample.stack_index) else {
        return field(out, "Stack", Resolved::Invalid(sample.stack_index));
    };
    if stack.location_indices.is_empty() {
        return field(out, "Stack", "empty");
    }
    writeln!(out, "    Stack, innermost first:")?;
    for index in &stack.location_indices {
        match get(&dictionary.location_table, *index) {
            Some(location) => frames(out, dictionary, location)?,
            None => writeln!(out, "        {}", Resolved::Invalid(*index))?,
        }
    }
    Ok(())
}

/// Writes one line for each function of a location, the innermost inlined function first.
fn frames(out: &mut Text<'_>, dictionary: &ProfilesDictionary, location: &Location) -> Result {
    if location.lines.is_empty() {
        let mut frame = String::new();
        address(&mut frame, dictionary, location)?;
        return writeln!(out, "        {frame}");
    }
    for (at, line) in location.lines.iter().enumerate() {
        let mut frame = named(dictionary, line)?;
        if frame.is_empty() {
            address(&mut frame, dictionary, location)?;
        }
        let inlined = if at + 1 < location.lines.len() {
            " (inlined)"
        } else {
            ""
        };
        writeln!(out, "        {frame}{inlined}")?;
    }
    Ok(())
}

/// Returns `function  file:line:column`, with the known parts only.
fn named(
    dictionary: &ProfilesDictionary,
    line: &Line,
) -> std::result::Result<String, std::fmt::Error> {
    let strings = Strings(&dictionary.string_table);
    let Some(function) = get(&dictionary.function_table, line.function_index) else {
        return Ok(Resolved::Invalid(line.function_index).to_string());
    };
    let name = match strings.get_or_empty(function.name_strindex) {
        name if name.is_empty() => strings.get_or_empty(function.system_name_strindex),
        name => name,
    };
    let mut text = name.to_string();
    let file = strings.get_or_empty(function.filename_strindex);
    if !file.is_empty() && !text.is_empty() {
        write!(text, "  {file}")?;
        if line.line != 0 {
            write!(text, ":{}", line.line)?;
        }
        if line.column != 0 {
            write!(text, ":{}", line.column)?;
        }
    }
    Ok(text)
}

/// Returns `0xaddress  file`, for frames without a name.
fn address(out: &mut impl Write, dictionary: &ProfilesDictionary, location: &Location) -> Result {
    write!(out, "{:#x}", location.address)?;
    if location.mapping_index == 0 {
        return Ok(());
    }
    let strings = Strings(&dictionary.string_table);
    match get(&dictionary.mapping_table, location.mapping_index) {
        Some(mapping) => match strings.get_or_empty(mapping.filename_strindex) {
            file if file.is_empty() => Ok(()),
            file => write!(out, "  {file}"),
        },
        None => write!(out, "  {}", Resolved::Invalid(location.mapping_index)),
    }
}
