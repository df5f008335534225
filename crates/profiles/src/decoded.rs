//! How much memory a request takes once it is decoded, or while it is hashed, told from its bytes.

use tributary_otlp::reader::{Field, Fields};

/// The structs of an entry or a sample, with its place in a table.
const ENTRY: usize = 256;
/// The same of a profile, a scope or a resource: twice, because lists double.
const GROUP: usize = 640;
/// What is in them: strings, hashes, columns, and the request that is written of it.
const PER_BYTE: usize = 16;
/// The same of what is said about resources and scopes: an attribute of two bytes is a struct.
const PER_BYTE_OF_HEADERS: usize = 80;

/// What hashing takes for an entry or a sample: where it is, in a list that doubles, and its hash.
const HASHED: usize = 96;
/// The same for each byte of the one that is read: a value is decoded, a stack becomes a list of hashes.
const PER_BYTE_READ: usize = 64;

/// The most memory that decoding an encoded request of profiles takes, with what is done to it until it is encoded again,
/// in bytes. It costs a look at each entry of the dictionary and each sample, and none at what is in them.
pub fn decoded_bytes(request: &[u8]) -> usize {
    let shape = Shape::of(request);
    let of_bytes = request.len().saturating_mul(PER_BYTE);
    let entries = shape.entries() + shape.fields;
    of_bytes
        .saturating_add(shape.header_bytes.saturating_mul(PER_BYTE_OF_HEADERS))
        .saturating_add(shape.groups.saturating_mul(GROUP))
        .saturating_add(entries.saturating_mul(ENTRY))
}

/// What there is in an encoded request of profiles.
#[derive(Debug, Default)]
pub struct Shape {
    /// How many entries each table of the dictionary has, by the table's number in the protocol.
    pub(super) tables: [usize; 8],
    /// Resources, scopes and profiles.
    groups: usize,
    /// What is in profiles: mostly samples.
    fields: usize,
    /// The bytes of the longest entry or field that is a list or a value: no string, and no payload.
    longest: usize,
    /// The bytes of what is said about resources and scopes.
    header_bytes: usize,
}

impl Shape {
    /// Counts, without a look at what is in entries and samples.
    pub fn of(request: &[u8]) -> Self {
        let mut shape = Shape::default();
        for field in fields(request) {
            let Some(message) = field.value.bytes() else {
                continue;
            };
            match field.number {
                2 => shape.dictionary(message),
                _ => shape.group(message, |shape, scope| {
                    shape.group(scope, |shape, profile| shape.profile(profile));
                }),
            }
        }
        shape
    }

    /// The most memory that [`identity`](super::identity) takes for the request, in bytes: little beside what decoding
    /// takes.
    pub fn hashed_bytes(&self) -> usize {
        let entries = self.entries() + self.fields;
        let of_headers = self.header_bytes.saturating_mul(PER_BYTE_OF_HEADERS);
        of_headers
            .saturating_add(self.groups.saturating_mul(GROUP))
            .saturating_add(entries.saturating_mul(HASHED))
            .saturating_add(self.longest.saturating_mul(PER_BYTE_READ))
    }

    fn entries(&self) -> usize {
        self.tables.iter().sum()
    }

    /// A resource or a scope, with something to do for each of what is in it.
    fn group(&mut self, message: &[u8], within: impl Fn(&mut Self, &[u8])) {
        self.groups += 1;
        for field in fields(message) {
            let bytes = field.value.bytes().unwrap_or_default();
            match field.number {
                2 => within(self, bytes),
                _ => self.header_bytes += bytes.len(),
            }
        }
    }

    fn profile(&mut self, profile: &[u8]) {
        const PAYLOAD: u32 = 10;
        self.groups += 1;
        for field in Fields::new(profile) {
            let Ok(field) = field else { break };
            self.fields += 1;
            if field.number != PAYLOAD {
                let bytes = field.value.bytes().unwrap_or_default();
                self.longest = self.longest.max(bytes.len());
            }
        }
    }

    fn dictionary(&mut self, dictionary: &[u8]) {
        const STRINGS: usize = 5;
        for field in Fields::new(dictionary) {
            let Ok(field) = field else { break };
            let table = field.number as usize;
            if let Some(entries) = self.tables.get_mut(table) {
                *entries += 1;
            }
            if table != STRINGS {
                let bytes = field.value.bytes().unwrap_or_default();
                self.longest = self.longest.max(bytes.len());
            }
        }
    }
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::join::profiles;
    use crate::model::{Profile, Profiles, ResourceProfiles, ScopeProfiles};
    use crate::testing_requests::named;
    use tributary_otlp::edit::put_delimited;

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
