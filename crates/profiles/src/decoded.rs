//! Estimates the memory for decoding or hashing an encoded request.

use tributary_otlp::reader::{Field, Fields};

/// Bytes of the structs of an entry or a sample, including its table slot.
const ENTRY: usize = 256;
/// Bytes of the structs of a profile, scope or resource; doubled, because vectors grow by doubling.
const GROUP: usize = 640;
/// Bytes per encoded byte of content: strings, hashes, columns, and the request that is written.
const PER_BYTE: usize = 16;
/// Bytes per encoded byte of resources and scopes, where an attribute of two bytes becomes a struct.
const PER_BYTE_OF_HEADERS: usize = 80;

/// Bytes for hashing an entry or a sample: its slot in a vector that doubles, and its hash.
const HASHED: usize = 96;
/// Bytes per encoded byte of the entry that is being hashed: a value is decoded, a stack becomes a list of hashes.
const PER_BYTE_READ: usize = 64;

/// Returns the maximum memory, in bytes, for decoding a request of profiles, processing it and encoding it again.
/// Visits each dictionary entry and sample, but not their contents.
pub fn decoded_bytes(request: &[u8]) -> usize {
    let shape = Shape::of(request);
    let of_bytes = request.len().saturating_mul(PER_BYTE);
    let entries = shape.entries() + shape.fields;
    of_bytes
        .saturating_add(shape.header_bytes.saturating_mul(PER_BYTE_OF_HEADERS))
        .saturating_add(shape.groups.saturating_mul(GROUP))
        .saturating_add(entries.saturating_mul(ENTRY))
}

/// Counts of an encoded request of profiles.
#[derive(Debug, Default)]
pub struct Shape {
    /// Number of entries by dictionary table, indexed by the table's field number in the protocol.
    pub(super) tables: [usize; 8],
    /// Number of resources, scopes and profiles.
    groups: usize,
    /// Number of fields of profiles, mostly samples.
    fields: usize,
    /// Size of the longest entry or field that is a list or a value, in bytes; strings and payloads are excluded.
    longest: usize,
    /// Size of resource and scope metadata, in bytes.
    header_bytes: usize,
}

impl Shape {
    /// Counts the entries and samples of a request without reading them.
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

    /// Returns the maximum memory, in bytes, that [`identity`](super::identity) takes for the request, which is small
    /// compared with decoding.
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

    /// Counts a resource or a scope, and calls `within` for each message in it.
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

    /// Returns the memory of the structs of decoded profiles, including vectors.
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
    fn decoded_bytes_bounds_memory_of_bombs() {
        let names: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        let ordinary = named("shop", 1, names.iter().map(String::as_str)).encode_to_vec();
        let empty = |count: usize| [0x12, 0].repeat(count);
        let crafted = [
            // Empty profiles, scopes and resources; empty attributes of a resource.
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
    fn invalid_request_is_estimated() {
        for bytes in [&b""[..], &[0xff; 9], &[0x0a, 0x05, 1]] {
            assert!(decoded_bytes(bytes) >= bytes.len());
        }
    }
}
