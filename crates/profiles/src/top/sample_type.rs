//! Choice of the sample type to show.

use opentelemetry_proto::tonic::common::v1::any_value::Value;

use crate::entry::ValueType;
use crate::model::Profiles;
use crate::names;

/// Returns the sample type with this name. Without a name, returns the default sample type of the profiles, else the
/// last type of a pprof file, else the type of the first profile. Returns `None` if there is no such profile.
pub fn sample_type(profiles: &Profiles, name: Option<&str>) -> Option<ValueType> {
    let text = |kind: ValueType| profiles.dictionary.text(kind.kind);
    let named = |name: &str| {
        let mut types = profiles.iter().map(|profile| profile.header.sample_type);
        types.find(|kind| text(*kind) == name)
    };
    if let Some(name) = name {
        return named(name);
    }
    let mut scopes = profiles
        .resources
        .iter()
        .flat_map(|resource| &resource.scopes);
    let scope = scopes.find(|scope| !scope.profiles.is_empty())?;
    let attributes = scope
        .scope
        .as_ref()
        .map(|scope| scope.attributes.as_slice());
    let find = |key: &str| {
        let mut attributes = attributes.unwrap_or_default().iter();
        let attribute = attributes.find(|attribute| attribute.key == key)?;
        attribute.value.as_ref()?.value.as_ref()
    };
    if let Some(Value::StringValue(name)) = find(names::DEFAULT_SAMPLE_TYPE)
        && let Some(kind) = named(name)
    {
        return Some(kind);
    }
    let shown = match find(names::SAMPLE_TYPE_ORDER) {
        Some(_) => scope.profiles.last(),
        None => scope.profiles.first(),
    };
    shown.map(|profile| profile.header.sample_type)
}
