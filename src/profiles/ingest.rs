//! From a request to flat profiles over a dictionary.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;

use super::dictionary::{Dictionary, SampleKey};
use super::model::{Header, Profile, ResourceProfiles, Samples, ScopeProfiles};
use super::reindex::{Fault, Memo, Relocations, Source};

/// The profiles of a request. What they refer to goes into `dictionary`, and only that.
///
/// References to strings are resolved. What breaks a rule but harms nobody is mended: samples without observations and
/// invalid profile ids are left out, so is an original payload without a format, and of attributes with one key in a list the
/// first stays.
///
/// # Errors
/// See [`Fault`]; [`check`](super::check::check) says where it is. Entries that are already in the dictionary stay, and
/// are not written unless something refers to them.
pub fn ingest(
    request: &ExportProfilesServiceRequest,
    dictionary: &mut Dictionary,
    memo: &mut Memo,
    relocations: Option<&mut Relocations>,
) -> Result<Vec<ResourceProfiles>, Fault> {
    let none = proto::ProfilesDictionary::default();
    let tables = request.dictionary.as_ref().unwrap_or(&none);
    let mut source = Source::new(tables, dictionary, memo, relocations);
    let resources = request.resource_profiles.iter();
    resources.map(|from| resource(&mut source, from)).collect()
}

fn resource(
    source: &mut Source<'_>,
    from: &proto::ResourceProfiles,
) -> Result<ResourceProfiles, Fault> {
    let mut resource = from.resource.clone();
    if let Some(resource) = &mut resource {
        source.references().resolve(&mut resource.attributes)?;
    }
    let scopes = from.scope_profiles.iter();
    Ok(ResourceProfiles {
        resource,
        schema_url: from.schema_url.clone(),
        scopes: scopes
            .map(|from| scope(source, from))
            .collect::<Result<_, Fault>>()?,
    })
}

fn scope(source: &mut Source<'_>, from: &proto::ScopeProfiles) -> Result<ScopeProfiles, Fault> {
    let mut scope = from.scope.clone();
    if let Some(scope) = &mut scope {
        source.references().resolve(&mut scope.attributes)?;
    }
    let profiles = from.profiles.iter();
    Ok(ScopeProfiles {
        scope,
        schema_url: from.schema_url.clone(),
        profiles: profiles
            .map(|from| profile(source, from))
            .collect::<Result<_, Fault>>()?,
    })
}

fn profile(source: &mut Source<'_>, from: &proto::Profile) -> Result<Profile, Fault> {
    let original = match (&from.original_payload_format, &from.original_payload) {
        (format, payload) if format.is_empty() || payload.is_empty() => None,
        (format, payload) => Some((format.clone(), payload.clone())),
    };
    let header = Header {
        sample_type: source.value_type(from.sample_type.as_ref())?,
        period_type: source.value_type(from.period_type.as_ref())?,
        period: from.period,
        time: from.time_unix_nano,
        duration: from.duration_nano,
        profile_id: valid_id(&from.profile_id),
        dropped_attributes: from.dropped_attributes_count,
        original,
        attributes: source.attribute_set(&from.attribute_indices)?,
    };
    let mut samples = Samples::default();
    samples.reserve(from.samples.len());
    for sample in &from.samples {
        let (values, timestamps) = (&sample.values, &sample.timestamps_unix_nano);
        let key = SampleKey {
            stack: source.stack(sample.stack_index)?,
            attributes: source.attribute_set(&sample.attribute_indices)?,
            link: source.link(sample.link_index)?,
        };
        match (values.len(), timestamps.len()) {
            (0, 0) => {}
            (v, t) if v != t && v != 0 && t != 0 => {
                return Err(Fault::Unequal {
                    values: v,
                    timestamps: t,
                });
            }
            _ => samples.push(key, values, timestamps),
        }
    }
    Ok(Profile { header, samples })
}

/// 16 bytes that are not all zero.
fn valid_id(id: &[u8]) -> Option<[u8; 16]> {
    id.try_into().ok().filter(|id| *id != [0; 16])
}
