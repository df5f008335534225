//! Profile ids, derived from the origin of a profile.

use prost::Message as _;
use xxhash_rust::xxh3::xxh3_128;

use tributary_profiles::model::ResourceProfiles;

/// Returns the identity of a file.
pub(crate) fn of_file(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// Assigns an id to each profile of a file. With the id, every hop recognizes duplicates without
/// decoding the profile. A resent file gets the same ids; a different file, resource or time leads to
/// different ids.
///
/// A profile without a time gets no id, because two such files may be equal without being duplicates.
pub(crate) fn assign(into: &mut ResourceProfiles, file: u128) {
    let mut said = file.to_le_bytes().to_vec();
    if let Some(resource) = &into.resource {
        said.extend(resource.encode_length_delimited_to_vec());
    }
    for (scope, of_scope) in (0_u64..).zip(&mut into.scopes) {
        let start = said.len();
        said.extend_from_slice(&scope.to_le_bytes());
        if let Some(scope) = &of_scope.scope {
            said.extend(scope.encode_length_delimited_to_vec());
        }
        let profiles = of_scope.profiles.iter_mut();
        for (place, profile) in (0_u64..).zip(profiles) {
            let header = &mut profile.header;
            if header.time == 0 {
                continue;
            }
            let end = said.len();
            for number in [place, header.time, header.duration] {
                said.extend_from_slice(&number.to_le_bytes());
            }
            // All zero is not a valid id.
            header.profile_id = Some(xxh3_128(&said).max(1).to_be_bytes());
            said.truncate(end);
        }
        said.truncate(start);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use opentelemetry_proto::tonic::resource::v1::Resource;

    use super::*;
    use crate::receivers::profile_intake::origin::text;
    use tributary_profiles::model::{Profile, ScopeProfiles};

    fn ids(file: &[u8], service: &str, times: &[u64]) -> Vec<Option<[u8; 16]>> {
        let profile = |time: &u64| {
            let mut profile = Profile::default();
            profile.header.time = *time;
            profile
        };
        let mut resource = ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![text("service.name", service)],
                ..Resource::default()
            }),
            scopes: vec![ScopeProfiles {
                profiles: times.iter().map(profile).collect(),
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        };
        assign(&mut resource, of_file(file));
        let profiles = resource.scopes[0].profiles.iter();
        profiles.map(|profile| profile.header.profile_id).collect()
    }

    #[test]
    fn equal_profiles_have_equal_ids() {
        let first = ids(b"file", "a", &[5, 5]);
        assert_eq!(first, ids(b"file", "a", &[5, 5]));
        let mut all: HashSet<_> = first.into_iter().collect();
        assert_eq!(all.len(), 2);
        for (file, service, time) in [
            (&b"other"[..], "a", 5),
            (b"file", "b", 5),
            (b"file", "a", 6),
        ] {
            for id in ids(file, service, &[time]) {
                assert!(id.is_some() && all.insert(id), "{file:?} {service} {time}");
            }
        }
    }

    #[test]
    fn profile_without_time_has_no_id() {
        assert_eq!(ids(b"file", "a", &[0]), [None]);
    }
}
