//! Detected attributes.

use crate::table::{AttributeTable, Switches};

/// Schema URL of the attributes, as in the Collector's processor (version 0.164): version 1.43.0 of the semantic
/// conventions.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.43.0";

/// Value of a detected attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// An integer.
    Int(i64),
    /// A list of texts.
    Texts(Vec<String>),
}

/// Attributes found by detectors, each key once, with their schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DetectedResource {
    /// Attributes in the order of detection.
    pub attributes: Vec<(String, AttributeValue)>,
    /// Schema URL of the attributes; empty if the attributes follow no schema.
    pub schema_url: String,
}

impl DetectedResource {
    /// Adds the attributes that are missing here, and the schema URL if there is none.
    pub fn complement(&mut self, other: DetectedResource) {
        for (key, value) in other.attributes {
            if !self.attributes.iter().any(|(known, _)| *known == key) {
                self.attributes.push((key, value));
            }
        }
        if self.schema_url.is_empty() {
            self.schema_url = other.schema_url;
        }
    }
}

/// Gathers the enabled attributes of one detector.
pub(crate) struct Gathered<'a, T> {
    switches: &'a Switches<T>,
    found: DetectedResource,
}

impl<'a, T: AttributeTable> Gathered<'a, T> {
    pub(crate) fn new(switches: &'a Switches<T>) -> Self {
        Gathered {
            switches,
            found: DetectedResource {
                attributes: Vec::new(),
                schema_url: SCHEMA_URL.to_owned(),
            },
        }
    }

    /// Adds a text attribute of the detector's table, if it is enabled.
    pub(crate) fn text(&mut self, key: &str, value: impl Into<String>) -> &mut Self {
        self.set(key, AttributeValue::Text(value.into()))
    }

    /// Adds a text attribute if there is a value.
    pub(crate) fn optional(&mut self, key: &str, value: Option<impl Into<String>>) -> &mut Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// Adds an attribute of the detector's table, if it is enabled.
    pub(crate) fn set(&mut self, key: &str, value: AttributeValue) -> &mut Self {
        debug_assert!(
            T::ATTRIBUTES.iter().any(|(known, _)| *known == key),
            "{key}"
        );
        if self.switches.is_enabled(key) {
            self.found.attributes.push((key.to_owned(), value));
        }
        self
    }

    /// Adds an attribute outside the detector's table, such as a tag.
    pub(crate) fn extra(&mut self, key: String, value: String) {
        let value = AttributeValue::Text(value);
        self.found.attributes.push((key, value));
    }

    pub(crate) fn finish(self) -> DetectedResource {
        self.found
    }
}
