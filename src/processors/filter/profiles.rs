//! Filtering profiles, whose attributes are entries of a dictionary.

use bytes::Bytes;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::ottl::path::Depth;
use super::ottl::{Here, ProfileFields};
use super::rules::Rules;
use crate::batch::{Decoded, Nack, Signal};
use crate::profiles::compacted;
use crate::profiles::references::References;
use crate::wire::edit::Editor;
use crate::wire::reader::Field;
use crate::wire::sieve::{Sieve, Sieved, sieve};
use crate::wire::view::{Message, ResourceEntry, ScopeEntry};

/// What is left of a request of profiles. What only the dropped ones referred to goes too.
///
/// # Errors
/// When the request breaks the rules of the dictionary: what cannot be read cannot be judged.
pub(super) fn filter(rules: &Rules, request: &[u8]) -> Result<Sieved, Nack> {
    let mut verdicts = verdicts(rules, request)?;
    if verdicts
        .resources
        .iter()
        .chain(&verdicts.scopes)
        .chain(&verdicts.profiles)
        .all(|stays| *stays)
    {
        return Ok(Sieved::Same);
    }
    for stays in [
        &mut verdicts.resources,
        &mut verdicts.scopes,
        &mut verdicts.profiles,
    ] {
        stays.reverse();
    }
    let sieved = sieve(request, &mut verdicts)
        .map_err(|error| Nack::invalid(format!("malformed profiles request: {error}")))?;
    Ok(match sieved {
        Sieved::Changed(left) => {
            let left = Bytes::from(left);
            Sieved::Changed(compacted(&left).unwrap_or(left).to_vec())
        }
        sieved => sieved,
    })
}

/// What stays, in the order in which it is asked for; from the back once it is.
#[derive(Default)]
struct Verdicts {
    resources: Vec<bool>,
    scopes: Vec<bool>,
    profiles: Vec<bool>,
}

impl Sieve<'_> for Verdicts {
    fn resource(&mut self, _: ResourceEntry<'_>) -> bool {
        self.resources.pop().unwrap_or(true)
    }

    fn scope(&mut self, _: ScopeEntry<'_>) -> bool {
        self.scopes.pop().unwrap_or(true)
    }

    fn item(&mut self, _: &Field<'_>, _: &mut Editor<'_>) -> bool {
        self.profiles.pop().unwrap_or(true)
    }
}

fn verdicts(rules: &Rules, request: &[u8]) -> Result<Verdicts, Nack> {
    let broken =
        |reason: String| Nack::invalid(format!("profiles that cannot be judged: {reason}"));
    let request = match Decoded::decode(Signal::Profiles, request) {
        Ok(Decoded::Profiles(request)) => request,
        Ok(_) => return Ok(Verdicts::default()),
        Err(error) => return Err(broken(error.to_string())),
    };
    let dictionary = request.dictionary.unwrap_or_default();
    let mut references = References::new(&dictionary.string_table);
    let mut verdicts = Verdicts::default();
    for mut entry in request.resource_profiles {
        if let Some(resource) = &mut entry.resource {
            let resolved = references.resolve(&mut resource.attributes);
            resolved.map_err(|fault| broken(fault.to_string()))?;
        }
        let resource = proto::ResourceProfiles {
            resource: entry.resource,
            ..proto::ResourceProfiles::default()
        };
        let resource = resource.encode_to_vec();
        let here = Here {
            resource: Message::new(&resource),
            ..Here::default()
        };
        let stays = !rules
            .any_is_true(Depth::Resource, &here)
            .map_err(Nack::invalid)?;
        verdicts.resources.push(stays);
        if !stays {
            continue;
        }
        for mut entry in entry.scope_profiles {
            if let Some(scope) = &mut entry.scope {
                let resolved = references.resolve(&mut scope.attributes);
                resolved.map_err(|fault| broken(fault.to_string()))?;
            }
            let scope = proto::ScopeProfiles {
                scope: entry.scope,
                ..proto::ScopeProfiles::default()
            };
            let scope = scope.encode_to_vec();
            let here = Here {
                scope: Message::new(&scope),
                ..here
            };
            let stays = !rules
                .any_is_true(Depth::Scope, &here)
                .map_err(Nack::invalid)?;
            verdicts.scopes.push(stays);
            if !stays {
                continue;
            }
            for profile in &entry.profiles {
                let fields = fields(profile, &dictionary, &mut references).map_err(broken)?;
                let here = Here {
                    profile: Some(&fields),
                    ..here
                };
                let stays = !rules
                    .any_is_true(Depth::Item, &here)
                    .map_err(Nack::invalid)?;
                verdicts.profiles.push(stays);
            }
        }
    }
    Ok(verdicts)
}

fn fields(
    profile: &proto::Profile,
    dictionary: &proto::ProfilesDictionary,
    references: &mut References<'_>,
) -> Result<ProfileFields, String> {
    let mut attributes = Vec::new();
    for index in profile
        .attribute_indices
        .iter()
        .filter(|index| **index != 0)
    {
        let at = usize::try_from(*index).ok();
        let found = at.and_then(|at| dictionary.attribute_table.get(at));
        let found = found.ok_or_else(|| format!("there is no attribute {index}"))?;
        attributes.push(opentelemetry_proto::tonic::common::v1::KeyValue {
            key: String::new(),
            key_strindex: found.key_strindex,
            value: found.value.clone(),
        });
    }
    references
        .resolve(&mut attributes)
        .map_err(|fault| fault.to_string())?;
    let attributes = Resource {
        attributes,
        ..Resource::default()
    };
    Ok(ProfileFields {
        attributes: attributes.encode_to_vec(),
        dropped_attributes: profile.dropped_attributes_count,
        profile_id: profile.profile_id.clone(),
        time: profile.time_unix_nano,
        duration: profile.duration_nano,
        period: profile.period,
        payload_format: profile.original_payload_format.clone(),
    })
}
