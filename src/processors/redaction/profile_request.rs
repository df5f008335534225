//! Requests of profiles: their strings, and their form with attributes in place.

use std::collections::HashSet;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

use super::refusal::Refusal;
use tributary_otlp::strings::RewriteError;
use tributary_profiles::Profiles;
use tributary_profiles::compact::Compactor;
use tributary_profiles::references::References;
use tributary_profiles::reindex::ProfileFault;

/// Returns the strings of a dictionary at these indices.
pub(super) fn strings<'r>(
    request: &'r ExportProfilesServiceRequest,
    places: &HashSet<usize>,
) -> Vec<&'r str> {
    let strings = request.dictionary.iter().flat_map(|tables| {
        let strings = places.iter().filter_map(|at| tables.string_table.get(*at));
        strings.map(String::as_str).filter(|text| !text.is_empty())
    });
    strings.collect()
}

/// Whether one of these strings disappears when only referenced strings are written. No place refers to such a
/// string, so no setting keeps it.
pub(super) fn leaves_out(suspects: &[&str], written: &[u8]) -> bool {
    let Ok(written) = ExportProfilesServiceRequest::decode(written) else {
        return true;
    };
    let tables = written.dictionary.iter();
    let kept: HashSet<&str> = tables
        .flat_map(|tables| &tables.string_table)
        .map(String::as_str)
        .collect();
    suspects.iter().any(|text| !kept.contains(text))
}

pub(super) fn broken(fault: &ProfileFault) -> RewriteError<Refusal> {
    RewriteError::Rewriter(Refusal::Broken(fault.to_string()))
}

/// Reads a request with only the dictionary entries in use, and merges equal attributes, resources, scopes and samples.
pub(super) fn read(request: &ExportProfilesServiceRequest) -> Result<Profiles, ProfileFault> {
    let compacted = |mut compactor: Compactor| compactor.add(request).map(|()| compactor);
    let merged = compacted(Compactor::new())?;
    if merged.saturated() == 0 {
        return Ok(merged.finish());
    }
    // If the sum overflows, keep two equal samples instead of a wrong sum.
    Ok(compacted(Compactor::keeping_samples())?.finish())
}

/// Whether a value has the form of a build id: hexadecimal digits, or the base64url and slashes of Go. Other values
/// under the key are scanned like any attribute.
pub(super) fn is_build_id(value: Option<&AnyValue>) -> bool {
    let Some(Value::StringValue(text)) = value.and_then(|value| value.value.as_ref()) else {
        return false;
    };
    let hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let go = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    // The shortest in use is a CRC of 8 digits; Go's are four hashes of 20 characters.
    (hexadecimal && text.len() >= 8)
        || (text.split('/').count() >= 2
            && text
                .split('/')
                .all(|part| part.len() >= 20 && part.bytes().all(go)))
}

/// Replaces the string references of attributes by the strings.
pub(super) fn inline(request: &mut ExportProfilesServiceRequest) -> Result<(), ProfileFault> {
    let Some(tables) = &mut request.dictionary else {
        return Ok(());
    };
    let mut references = References::new(&tables.string_table);
    for resource in &mut request.resource_profiles {
        if let Some(resource) = &mut resource.resource {
            references.resolve(&mut resource.attributes)?;
        }
        for scope in &mut resource.scope_profiles {
            if let Some(scope) = &mut scope.scope {
                references.resolve(&mut scope.attributes)?;
            }
        }
    }
    for entry in &mut tables.attribute_table {
        if let Some(value) = &entry.value {
            let resolved = references.resolved(value)?.into_owned();
            entry.value = Some(resolved);
        }
    }
    Ok(())
}

pub(super) type Reworked<T> = Result<T, RewriteError<Refusal>>;
