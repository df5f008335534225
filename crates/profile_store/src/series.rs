//! Series: profiles of one service, sample type and set of labels.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tributary_profiles::Dictionary;
use tributary_profiles::dictionary::ValueType;
use tributary_profiles::model::{Header, ResourceProfiles, ScopeProfiles};
use tributary_profiles::names;

/// Resource attribute that every series has.
pub(crate) const SERVICE_NAME: &str = "service.name";
/// Service name of resources without a service name.
const UNKNOWN_SERVICE: &str = "unknown_service";
/// Maximum length of a label's value, in bytes. Labels are kept in memory for each series.
const LONGEST_VALUE: usize = 1024;

/// Label with the name of the profile at its source, such as `mutex`, or else of the sample type.
pub const NAME: &str = "__name__";
/// Label with the sample type, such as `cpu`.
pub const TYPE: &str = "__type__";
/// Label with the unit of the values.
pub const UNIT: &str = "__unit__";
/// Label with the type of the sampling period.
pub const PERIOD_TYPE: &str = "__period_type__";
/// Label with the unit of the sampling period.
pub const PERIOD_UNIT: &str = "__period_unit__";
/// Label with the five labels above, separated by colons. Grafana's profile explorer selects profiles by it.
pub const PROFILE_TYPE: &str = "__profile_type__";

/// Labels of a series, ordered by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// Creates labels from pairs of name and value. Of several pairs with the same name, the first one stays.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|a, b| a.0 == b.0);
        Labels(pairs)
    }

    /// Returns the value of a label; empty if there is no such label.
    pub fn get(&self, name: &str) -> &str {
        let found = self
            .0
            .binary_search_by(|(other, _)| other.as_str().cmp(name));
        found
            .ok()
            .and_then(|at| self.0.get(at))
            .map_or("", |(_, value)| value)
    }

    /// Iterates over name and value, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        let text: usize = self.0.iter().map(|(a, b)| a.len() + b.len()).sum();
        let pairs = self.0.len() * size_of::<(String, String)>();
        (text + pairs + size_of::<Self>()) as u64
    }
}

/// Returns the label of an attribute: characters other than letters, digits and `_` become `_`.
pub fn label_name(attribute: &str) -> String {
    let mut name: String = attribute
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// The labels of all series that are in use, each once.
#[derive(Debug, Default)]
pub(crate) struct SeriesTable(Mutex<HashSet<Arc<Labels>, RandomState>>);

impl SeriesTable {
    pub(crate) fn intern(&self, labels: Labels) -> Arc<Labels> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.get(&labels) {
            return known.clone();
        }
        let series = Arc::new(labels);
        table.insert(series.clone());
        series
    }

    /// Removes labels that are not in use any more.
    pub(crate) fn clean(&self) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|series| Arc::strong_count(series) > 1);
    }

    /// Number of series and their memory, in bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (table.len(), table.iter().map(|labels| labels.bytes()).sum())
    }
}

/// Derives labels from resources.
#[derive(Debug)]
pub(crate) struct Labeller {
    attributes: Vec<(String, String)>,
}

impl Labeller {
    pub(crate) fn new(attributes: &[String]) -> Self {
        let named = |attribute: &str| (attribute.to_owned(), label_name(attribute));
        let mut all = vec![named(SERVICE_NAME)];
        all.extend(attributes.iter().map(|attribute| named(attribute)));
        Labeller { attributes: all }
    }

    pub(crate) fn of_resource(&self, resource: &ResourceProfiles) -> Vec<(String, String)> {
        let attributes = resource
            .resource
            .as_ref()
            .map(|from| from.attributes.as_slice());
        let attributes = attributes.unwrap_or_default();
        let mut labels = Vec::with_capacity(self.attributes.len());
        for (key, label) in &self.attributes {
            let value = find(attributes, key);
            let value = match (value, key.as_str()) {
                (None, SERVICE_NAME) => Some(UNKNOWN_SERVICE.to_owned()),
                (value, _) => value,
            };
            if let Some(value) = value {
                labels.push((label.clone(), value));
            }
        }
        labels
    }
}

/// Returns the labels of a profile with the labels of its resource.
pub(crate) fn labels(
    of_resource: &[(String, String)],
    scope: &ScopeProfiles,
    dictionary: &Dictionary,
    header: &Header,
) -> Labels {
    let attributes = scope.scope.as_ref().map(|from| from.attributes.as_slice());
    let name = find(attributes.unwrap_or_default(), names::PROFILE_NAME);
    let texts = |from: ValueType| {
        [from.kind, from.unit].map(|id| shortened(dictionary.text(id)).to_owned())
    };
    let [kind, unit] = texts(header.sample_type);
    let [period, period_unit] = texts(header.period_type);
    let name = name.unwrap_or_else(|| kind.clone());
    let whole = [&*name, &*kind, &*unit, &*period, &*period_unit].join(":");
    let own = [
        (NAME, name),
        (TYPE, kind),
        (UNIT, unit),
        (PERIOD_TYPE, period),
        (PERIOD_UNIT, period_unit),
        (PROFILE_TYPE, whole),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    Labels::new(own.into_iter().chain(of_resource.iter().cloned()))
}

/// Returns the value of an attribute as text; `None` for an empty value, a list, a map or bytes.
fn find(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    let text = match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => shortened(text).to_owned(),
        Value::BoolValue(value) => value.to_string(),
        Value::IntValue(value) => value.to_string(),
        Value::DoubleValue(value) => value.to_string(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(LONGEST_VALUE);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_names_have_no_dots_and_do_not_begin_with_a_digit() {
        for (attribute, label) in [
            ("service.name", "service_name"),
            ("k8s.pod.name", "k8s_pod_name"),
            ("9x", "_9x"),
        ] {
            assert_eq!(label_name(attribute), label);
        }
    }

    #[test]
    fn long_value_is_cut_between_characters() {
        let text = "\u{20ac}".repeat(1000);
        assert_eq!(shortened(&text).len(), 1023);
    }

    #[test]
    fn unused_series_are_removed() {
        let table = SeriesTable::default();
        let labels = |value: &str| Labels::new([("a".to_owned(), value.to_owned())]);
        let kept = table.intern(labels("1"));
        drop(table.intern(labels("2")));
        assert!(Arc::ptr_eq(&kept, &table.intern(labels("1"))));
        table.clean();
        assert_eq!(table.size().0, 1);
    }
}
