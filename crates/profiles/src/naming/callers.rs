//! Finds locations with return addresses, from profilers that do not adjust the addresses of callers.

use super::unnamed::entries;
use crate::entries::{Entries, bytes, fields, number, numbers};
use crate::fault::ProfileFault;
use crate::names;

/// Locations of a request whose addresses are return addresses. The instruction at a return address follows the call.
/// The instruction may belong to another line, to another inlined function, or, after a call that never returns, to the
/// next function.
///
/// Only callers have return addresses. Two kinds of locations have no return address: the innermost frame of a stack,
/// which was executing at its address, and callers in profiles with adjusted addresses, whose address is within the
/// call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReturnAddresses {
    is_return_address: Vec<bool>,
}

/// Uses of a stack; both may apply.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    /// Used by profiles with return addresses.
    returned_to: bool,
    /// Used by profiles with adjusted addresses.
    adjusted: bool,
}

impl ReturnAddresses {
    /// For a request with adjusted addresses only: no location has a return address.
    pub fn none() -> Self {
        Self::default()
    }

    /// For a request with return addresses only. Does not read samples.
    ///
    /// # Errors
    /// Fails if the bytes are not a request.
    pub fn of_all(request: &[u8]) -> Result<Self, ProfileFault> {
        let entries = entries(request)?;
        let uses = Uses {
            returned_to: true,
            adjusted: false,
        };
        Self::find(&entries, &vec![uses; entries.stacks.len()])
    }

    /// For a request with both kinds of profiles. `has_return_addresses` decides by the name of a profile's scope, and
    /// by the presence of scope attributes from a pprof conversion. A location without samples counts as adjusted.
    ///
    /// # Errors
    /// Fails if the bytes are not a request.
    pub fn of_scopes(
        request: &[u8],
        has_return_addresses: impl Fn(&[u8], bool) -> bool,
    ) -> Result<Self, ProfileFault> {
        const PLACE: &str = "a scope's profiles";
        let entries = entries(request)?;
        let mut uses = vec![Uses::default(); entries.stacks.len()];
        for resource in messages(request, 1, "the request") {
            for scope in messages(resource?, 2, "a resource's profiles") {
                let scope = scope?;
                let mut name: &[u8] = &[];
                let mut is_pprof = false;
                for identity in messages(scope, 1, PLACE) {
                    let identity = identity?;
                    for said in messages(identity, 1, "a scope") {
                        name = said?;
                    }
                    for attribute in messages(identity, 3, "a scope") {
                        for key in messages(attribute?, 1, "an attribute") {
                            is_pprof |= OF_PPROF.contains(&key?);
                        }
                    }
                }
                let returned_to = has_return_addresses(name, is_pprof);
                for profile in messages(scope, 2, PLACE) {
                    for sample in messages(profile?, 2, "a profile") {
                        let stack = stack(sample?)?;
                        if let Some(uses) = uses.get_mut(stack) {
                            uses.returned_to |= returned_to;
                            uses.adjusted |= !returned_to;
                        }
                    }
                }
            }
        }
        Self::find(&entries, &uses)
    }

    fn find(entries: &Entries<'_>, uses: &[Uses]) -> Result<Self, ProfileFault> {
        const PLACE: &str = "a stack";
        let locations = entries.locations.len();
        let (mut is_return_address, mut is_none) = (vec![false; locations], vec![false; locations]);
        for (stack, uses) in entries.stacks.iter().zip(uses) {
            let mut innermost = true;
            for field in fields(stack, PLACE) {
                let field = field?;
                if field.number != 1 {
                    continue;
                }
                numbers(field, PLACE, |location| {
                    let location = usize::try_from(location).unwrap_or(usize::MAX);
                    let mark = |marks: &mut Vec<bool>| {
                        if let Some(mark) = marks.get_mut(location) {
                            *mark = true;
                        }
                    };
                    if innermost || uses.adjusted {
                        mark(&mut is_none);
                    } else if uses.returned_to {
                        mark(&mut is_return_address);
                    }
                    innermost = false;
                    Ok(())
                })?;
            }
        }
        for (is_return_address, is_none) in is_return_address.iter_mut().zip(is_none) {
            *is_return_address &= !is_none;
        }
        Ok(ReturnAddresses { is_return_address })
    }

    /// Whether the location at this index of the table has a return address.
    pub fn has(&self, location: usize) -> bool {
        self.is_return_address
            .get(location)
            .copied()
            .unwrap_or_default()
    }
}

/// Scope attributes that mark profiles converted from pprof.
const OF_PPROF: [&[u8]; 2] = [
    names::SAMPLE_TYPE_ORDER.as_bytes(),
    names::PROFILE_NAME.as_bytes(),
];

/// Iterates over the messages or strings in one field of a message.
fn messages<'m>(
    message: &'m [u8],
    wanted: u32,
    place: &'static str,
) -> impl Iterator<Item = Result<&'m [u8], ProfileFault>> {
    fields(message, place).filter_map(move |field| match field {
        Ok(field) if field.number != wanted => None,
        field => Some(field.and_then(|field| bytes(field, place))),
    })
}

fn stack(sample: &[u8]) -> Result<usize, ProfileFault> {
    const PLACE: &str = "a sample";
    let mut stack = 0;
    for field in fields(sample, PLACE) {
        let field = field?;
        if field.number == 1 {
            stack = number(field, PLACE)?;
        }
    }
    Ok(usize::try_from(stack).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
    use opentelemetry_proto::tonic::profiles::v1development as proto;
    use prost::Message as _;

    use super::*;

    /// Returns a request with five locations and one profile per scope, with samples of these stacks. Each scope
    /// has an attribute whose key is the scope's name.
    fn request(stacks: &[&[i32]], scopes: &[(&str, &[i32])]) -> Vec<u8> {
        let stacks = stacks.iter().map(|locations| proto::Stack {
            location_indices: locations.to_vec(),
        });
        let scopes = scopes.iter().map(|(name, stacks)| {
            let samples = stacks.iter().map(|stack| proto::Sample {
                stack_index: *stack,
                values: vec![1],
                ..proto::Sample::default()
            });
            proto::ScopeProfiles {
                scope: Some(InstrumentationScope {
                    name: (*name).to_owned(),
                    attributes: vec![KeyValue {
                        key: (*name).to_owned(),
                        ..KeyValue::default()
                    }],
                    ..InstrumentationScope::default()
                }),
                profiles: vec![proto::Profile {
                    samples: samples.collect(),
                    ..proto::Profile::default()
                }],
                ..proto::ScopeProfiles::default()
            }
        });
        let request = ExportProfilesServiceRequest {
            resource_profiles: vec![proto::ResourceProfiles {
                scope_profiles: scopes.collect(),
                ..proto::ResourceProfiles::default()
            }],
            dictionary: Some(proto::ProfilesDictionary {
                location_table: vec![proto::Location::default(); 6],
                stack_table: [proto::Stack::default()]
                    .into_iter()
                    .chain(stacks)
                    .collect(),
                ..proto::ProfilesDictionary::default()
            }),
        };
        request.encode_to_vec()
    }

    fn found(addresses: &ReturnAddresses) -> Vec<usize> {
        (0..9).filter(|location| addresses.has(*location)).collect()
    }

    #[test]
    fn callers_have_return_addresses_unless_innermost() {
        let request = request(&[&[1, 2, 3], &[2, 3, 4], &[5], &[1, 9]], &[]);
        let all = ReturnAddresses::of_all(&request).unwrap();
        assert_eq!(found(&all), [3, 4]);
        assert_eq!(found(&ReturnAddresses::none()), [0; 0]);
    }

    #[test]
    fn callers_of_adjusted_profiles_have_no_return_addresses() {
        let stacks: [&[i32]; 3] = [&[1, 2, 3], &[1, 3, 4], &[1, 5]];
        let request = request(&stacks, &[("raw", &[1]), ("adjusted", &[2]), ("raw", &[9])]);
        let of = |raw: fn(&[u8], bool) -> bool| {
            found(&ReturnAddresses::of_scopes(&request, raw).unwrap())
        };
        // Location 3 is in both kinds of stacks, and no sample has the third stack.
        assert_eq!(of(|scope, _| scope == b"raw"), [2]);
        assert_eq!(of(|_, _| true), [2, 3, 4]);
        assert_eq!(of(|_, _| false), [0; 0]);
    }

    #[test]
    fn pprof_scope_is_detected_by_its_attributes() {
        let stacks: [&[i32]; 2] = [&[1, 2], &[3, 4]];
        let request = request(&stacks, &[("raw", &[1]), (names::PROFILE_NAME, &[2])]);
        let of_pprof = ReturnAddresses::of_scopes(&request, |_, is_pprof| is_pprof);
        assert_eq!(found(&of_pprof.unwrap()), [4]);
    }

    #[test]
    fn invalid_request_is_an_error() {
        let whole = request(&[&[1, 2]], &[("raw", &[1])]);
        assert!(ReturnAddresses::of_all(&whole[..whole.len() - 1]).is_err());
        assert!(ReturnAddresses::of_scopes(&[0x0a, 2, 0x12, 9], |_, _| true).is_err());
    }
}
