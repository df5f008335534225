//! Splits a request into several by the destination of each profile.

use bytes::Bytes;

use super::dictionary::Dictionary;
use super::join::profiles;
use super::model::{Profile, Profiles, ResourceProfiles, ScopeProfiles};
use super::write::Encoder;
use tributary_otlp::Signal;
use tributary_otlp::count;

/// Input of a routing decision: a profile with its resource and scope, or a scope or resource without profiles.
#[derive(Debug, Clone, Copy)]
pub struct ProfileContext<'p> {
    /// Dictionary of the request.
    pub dictionary: &'p Dictionary,
    /// Resource of the profile; its scopes are not available.
    pub resource: &'p ResourceProfiles,
    /// Scope of the profile; its profiles are not available.
    pub scope: Option<&'p ScopeProfiles>,
    /// Profile.
    pub profile: Option<&'p Profile>,
}

/// Splits a valid request between its profiles. Returns for each destination its number, its number of samples, and a
/// request with only the dictionary entries that it uses. Destinations are in the order of their first profiles. With
/// a single destination, the request is returned unchanged without a copy.
///
/// Returns `None` if the request cannot be read without loss: see [`join`](super::join()).
pub fn partition(
    request: &Bytes,
    mut destination: impl FnMut(&ProfileContext<'_>) -> usize,
) -> Option<Vec<(usize, usize, Bytes)>> {
    let Profiles {
        dictionary,
        resources,
    } = profiles(request)?;
    let mut resources_by_destination: Vec<(usize, Vec<ResourceProfiles>)> = Vec::new();
    for mut resource in resources {
        let scopes = std::mem::take(&mut resource.scopes);
        let at = ProfileContext {
            dictionary: &dictionary,
            resource: &resource,
            scope: None,
            profile: None,
        };
        let mut scopes_by_destination: Vec<(usize, Vec<ScopeProfiles>)> = Vec::new();
        if scopes.is_empty() {
            share_of(&mut scopes_by_destination, destination(&at));
        }
        for mut scope in scopes {
            let profiles = std::mem::take(&mut scope.profiles);
            let at = ProfileContext {
                scope: Some(&scope),
                ..at
            };
            let mut profiles_by_destination: Vec<(usize, Vec<Profile>)> = Vec::new();
            if profiles.is_empty() {
                share_of(&mut profiles_by_destination, destination(&at));
            }
            for profile in profiles {
                let to = destination(&ProfileContext {
                    profile: Some(&profile),
                    ..at
                });
                share_of(&mut profiles_by_destination, to).push(profile);
            }
            for (to, profiles) in profiles_by_destination {
                share_of(&mut scopes_by_destination, to).push(ScopeProfiles {
                    scope: scope.scope.clone(),
                    schema_url: scope.schema_url.clone(),
                    profiles,
                });
            }
        }
        for (to, scopes) in scopes_by_destination {
            share_of(&mut resources_by_destination, to).push(ResourceProfiles {
                resource: resource.resource.clone(),
                schema_url: resource.schema_url.clone(),
                scopes,
            });
        }
    }
    if let [(to, _)] = resources_by_destination.as_slice() {
        let items = count(Signal::Profiles, request);
        return Some(vec![(*to, items, request.clone())]);
    }
    let mut encoder = Encoder::new(&dictionary);
    let encoded = resources_by_destination.into_iter().map(|(to, resources)| {
        let request = encoder.encode(&resources);
        (to, count(Signal::Profiles, &request), request)
    });
    Some(encoded.collect())
}

/// Returns the share of a destination, adding it if necessary.
fn share_of<T>(shares: &mut Vec<(usize, Vec<T>)>, to: usize) -> &mut Vec<T> {
    let at = shares.iter().position(|(other, _)| *other == to);
    let at = at.unwrap_or_else(|| {
        shares.push((to, Vec::new()));
        shares.len() - 1
    });
    &mut shares[at].1
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::join;
    use crate::testing_requests::{named, sample_names};

    fn service(place: &ProfileContext<'_>) -> String {
        let attributes = &place.resource.resource.as_ref().unwrap().attributes;
        format!("{:?}", attributes[0].value)
    }

    #[test]
    fn shares_have_their_profiles_and_used_entries_only() {
        let requests = [("a", "x"), ("b", "y"), ("a", "z")].map(|(service, name)| {
            let request = named(service, 1, [name, "shared"]);
            Bytes::from(request.encode_to_vec())
        });
        let joined = join(&requests, usize::MAX).remove(0).request;
        let shares = partition(&joined, |place| usize::from(service(place).contains('b'))).unwrap();
        let names: Vec<_> = shares
            .iter()
            .map(|(to, items, request)| (*to, *items, sample_names(request)))
            .collect();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            names,
            [
                (0, 4, owned(&["x", "shared", "z", "shared"])),
                (1, 2, owned(&["y", "shared"]))
            ]
        );
        let text = |request: &Bytes, text: &[u8]| request.windows(text.len()).any(|at| at == text);
        assert!(text(&joined, b"y") && !text(&shares[0].2, b"\x01y"));
    }

    #[test]
    fn single_destination_is_not_copied() {
        let request = Bytes::from(named("a", 1, ["x", "y"]).encode_to_vec());
        let shares = partition(&request, |_| 7).unwrap();
        assert_eq!((shares.len(), shares[0].0, shares[0].1), (1, 7, 2));
        assert_eq!(shares[0].2.as_ptr(), request.as_ptr());
    }

    #[test]
    fn lossy_request_is_not_partitioned() {
        let mut request = named("a", 1, ["x"]);
        request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].stack_index = 99;
        assert!(partition(&request.encode_to_vec().into(), |_| 0).is_none());
    }
}
