//! The profiles that belong to one pprof file, and the name of the program.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;

use super::super::model::{Header, Profile, ResourceProfiles, ScopeProfiles};
use super::super::names;

/// Resource attribute with the path of the executable.
pub const EXECUTABLE_PATH: &str = "process.executable.path";
/// Resource attribute with the name of the executable.
pub const EXECUTABLE_NAME: &str = "process.executable.name";

/// Returns the path of the executable from the resource.
pub(super) fn main(resource: &ResourceProfiles) -> Option<&str> {
    let attributes = &resource.resource.as_ref()?.attributes;
    text_of(attributes, EXECUTABLE_PATH).or_else(|| text_of(attributes, EXECUTABLE_NAME))
}

pub(super) fn text_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Returns the position of each profile in the list of sample types.
pub(super) fn order(attributes: &[KeyValue]) -> Option<Vec<i64>> {
    let mut attributes = attributes.iter();
    let attribute = attributes.find(|attribute| attribute.key == names::SAMPLE_TYPE_ORDER)?;
    let Any::ArrayValue(array) = attribute.value.as_ref()?.value.as_ref()? else {
        return None;
    };
    let positions = array.values.iter().map(|value| match value.value {
        Some(Any::IntValue(position)) => Some(position),
        _ => None,
    });
    positions.collect()
}

/// Groups the profiles of one file: profiles with the same header, as many as there were sample types. If the number is
/// unknown, profiles with distinct sample types form a group.
pub(super) fn groups<'p>(scope: &'p ScopeProfiles, order: Option<&[i64]>) -> Vec<Vec<&'p Profile>> {
    let same = |a: &Header, b: &Header| {
        (a.time, a.duration, a.period, a.period_type, a.attributes)
            == (b.time, b.duration, b.period, b.period_type, b.attributes)
    };
    let mut groups: Vec<Vec<&Profile>> = Vec::new();
    for profile in &scope.profiles {
        let header = &profile.header;
        let open = groups.iter_mut().rev().find(|group| {
            let kind = |other: &&Profile| other.header.sample_type == header.sample_type;
            group
                .first()
                .is_some_and(|first| same(&first.header, header))
                && match order {
                    Some(order) => group.len() < order.len(),
                    None => !group.iter().any(kind),
                }
        });
        match open {
            Some(group) => group.push(profile),
            None => groups.push(vec![profile]),
        }
    }
    groups
}
