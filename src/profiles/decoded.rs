//! How much memory a request takes once it is decoded, told from its bytes.

use crate::wire::reader::{Field, Fields};

/// The structs of an entry or a sample, with its place in a table.
const ENTRY: usize = 256;
/// The same of a profile, a scope or a resource: twice, because lists double.
const GROUP: usize = 640;
/// What is in them: strings, hashes, columns, and the request that is written of it.
const PER_BYTE: usize = 16;
/// The same of what is said about resources and scopes: an attribute of two bytes is a struct.
const PER_BYTE_OF_HEADERS: usize = 80;

/// The most memory that decoding an encoded request of profiles takes, with what is done to it until it is encoded again,
/// in bytes. It costs a look at each entry of the dictionary and each sample, and none at what is in them.
pub fn decoded_bytes(request: &[u8]) -> usize {
    let mut needed = request.len().saturating_mul(PER_BYTE);
    let mut add = |count: usize, each: usize| {
        needed = needed.saturating_add(count.saturating_mul(each));
    };
    for field in fields(request) {
        let Some(message) = field.value.bytes() else {
            continue;
        };
        if field.number == 2 {
            add(fields(message).count(), ENTRY);
            continue;
        }
        add(1, GROUP);
        for field in fields(message) {
            let scope = field.value.bytes().unwrap_or_default();
            if field.number != 2 {
                add(scope.len(), PER_BYTE_OF_HEADERS);
                continue;
            }
            add(1, GROUP);
            for field in fields(scope) {
                let profile = field.value.bytes().unwrap_or_default();
                if field.number != 2 {
                    add(profile.len(), PER_BYTE_OF_HEADERS);
                    continue;
                }
                add(1, GROUP);
                add(fields(profile).count(), ENTRY);
            }
        }
    }
    needed
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::profiles::join::profiles;
    use crate::profiles::model::{Profile, Profiles, ResourceProfiles, ScopeProfiles};
    use crate::profiles::testing_batches::named;
    use crate::wire::edit::put_delimited;

    /// What the structs of decoded profiles take, their lists included.
    fn taken(profiles: &Profiles) -> usize {
        let mut bytes = profiles.dictionary.bytes();
        bytes += profiles.resources.capacity() * size_of::<ResourceProfiles>();
        for resource in &profiles.resources {
            let attributes = resource.resource.iter().map(|r| r.attributes.capacity());
            bytes += attributes.sum::<usize>()
                * size_of::<opentelemetry_proto::tonic::common::v1::KeyValue>();
            bytes += resource.scopes.capacity() * size_of::<ScopeProfiles>();
            for scope in &resource.scopes {
                bytes += scope.profiles.capacity() * size_of::<Profile>();
            }
        }
        bytes + profiles.iter().map(|p| p.samples.bytes()).sum::<usize>()
    }

    fn nested(numbers: &[u32], content: &[u8]) -> Vec<u8> {
        let mut message = content.to_vec();
        for number in numbers {
            let mut outer = Vec::new();
            put_delimited(*number, &message, &mut outer);
            message = outer;
        }
        message
    }

    #[test]
    fn decoding_takes_no_more_than_is_told_whatever_is_in_few_bytes() {
        let names: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        let ordinary = named("shop", 1, names.iter().map(String::as_str)).encode_to_vec();
        let empty = |count: usize| [0x12, 0].repeat(count);
        let crafted = [
            // Profiles, scopes and resources without anything; attributes of a resource without anything.
            nested(&[2, 1], &empty(5000)),
            nested(&[1], &empty(5000)),
            [0x0a, 0].repeat(5000),
            nested(&[1, 1], &[0x0a, 0].repeat(5000)),
        ];
        for request in crafted.iter().chain([&ordinary]) {
            let profiles = profiles(request).unwrap();
            let (told, taken) = (decoded_bytes(request), taken(&profiles));
            assert!(taken <= told, "{taken} of {told}");
        }
        assert!(decoded_bytes(&ordinary) < 100 * ordinary.len());
    }

    #[test]
    fn what_is_no_request_is_no_trouble() {
        for bytes in [&b""[..], &[0xff; 9], &[0x0a, 0x05, 1]] {
            assert!(decoded_bytes(bytes) >= bytes.len());
        }
    }
}
