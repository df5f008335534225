//! Places of strings in a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Signal;

macro_rules! places {
    ($($(#[doc = $doc:literal])+ $place:ident $name:literal $kind:ident [$($signal:ident)*],)+) => {
        /// The place of a string in a request.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum StringPlace {
            $($(#[doc = $doc])+ $place,)+
        }

        impl StringPlace {
            /// All places.
            pub const ALL: [StringPlace; [$(StringPlace::$place),+].len()] = [$(StringPlace::$place),+];

            /// Name in the configuration and in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(StringPlace::$place => $name,)+ }
            }

            /// Whether strings of this place are identifiers, such as keys and metric names, instead of
            /// content.
            pub const fn is_identifier(self) -> bool {
                matches!(places!(@kind self $($place $kind)+), Kind::Identifier)
            }

            /// Signals that have this place; empty means all.
            pub const fn signals(self) -> &'static [Signal] {
                match self { $(StringPlace::$place => places!(@signals $($signal)*),)+ }
            }
        }
    };
    (@kind $self:ident $($place:ident $kind:ident)+) => {
        match $self { $(StringPlace::$place => Kind::$kind,)+ }
    };
    (@signals) => { &Signal::ALL };
    (@signals $($signal:ident)+) => { &[$(Signal::$signal),+] };
}

enum Kind {
    Content,
    Identifier,
}

places! {
    /// Values of the attributes of resources.
    ResourceAttributes "resource_attributes" Content [],
    /// Values of the attributes of instrumentation scopes.
    ScopeAttributes "scope_attributes" Content [],
    /// Names and versions of instrumentation scopes.
    Scopes "scopes" Content [],
    /// Values of the attributes of spans.
    SpanAttributes "span_attributes" Content [Traces],
    /// Names of spans.
    SpanNames "span_names" Content [Traces],
    /// Status messages of spans.
    StatusMessages "status_messages" Content [Traces],
    /// The trace state of spans and their links.
    TraceStates "trace_states" Content [Traces],
    /// Values of the attributes of span events.
    EventAttributes "event_attributes" Content [Traces],
    /// Names of span events and of log records that are events.
    EventNames "event_names" Content [Traces Logs],
    /// Values of the attributes of span links.
    LinkAttributes "link_attributes" Content [Traces],
    /// Values of the attributes of log records.
    LogAttributes "log_attributes" Content [Logs],
    /// Bodies of log records, with all that is nested in them.
    LogBodies "log_bodies" Content [Logs],
    /// Severity texts of log records.
    SeverityTexts "severity_texts" Content [Logs],
    /// Values of the attributes of data points.
    DatapointAttributes "datapoint_attributes" Content [Metrics],
    /// Values of the attributes of exemplars.
    ExemplarAttributes "exemplar_attributes" Content [Metrics],
    /// Descriptions of metrics.
    MetricDescriptions "metric_descriptions" Content [Metrics],
    /// Metadata of metrics.
    MetricMetadata "metric_metadata" Content [Metrics],
    /// Values of the attributes of profiles, samples, locations and mappings: labels, thread names, comments.
    ProfileAttributes "profile_attributes" Content [Profiles],
    /// File names of mappings: binaries and libraries.
    MappingFiles "mapping_files" Content [Profiles],
    /// File names of functions: source code.
    FunctionFiles "function_files" Content [Profiles],
    /// Names of functions. Off unless listed.
    FunctionNames "function_names" Identifier [Profiles],
    /// Types and units of samples. Off unless listed.
    SampleTypes "sample_types" Identifier [Profiles],
    /// Names and units of metrics. Off unless listed.
    MetricNames "metric_names" Identifier [Metrics],
    /// Keys of attributes and of nested maps. Off unless listed.
    AttributeKeys "attribute_keys" Identifier [],
    /// Types and keys of the entities that a resource refers to. Off unless listed.
    EntityRefs "entity_refs" Identifier [],
    /// Strings in future fields of OTLP, and ids of invalid length.
    Other "other" Content [],
}

impl StringPlace {
    /// Whether the place is the values of a set of attributes.
    pub const fn is_attributes(self) -> bool {
        matches!(
            self,
            StringPlace::ResourceAttributes
                | StringPlace::ScopeAttributes
                | StringPlace::SpanAttributes
                | StringPlace::EventAttributes
                | StringPlace::LinkAttributes
                | StringPlace::LogAttributes
                | StringPlace::DatapointAttributes
                | StringPlace::ExemplarAttributes
                | StringPlace::MetricMetadata
                | StringPlace::ProfileAttributes
        )
    }
}

/// A set of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StringPlaces(u32);

impl StringPlaces {
    /// Every place.
    pub const ALL: StringPlaces = StringPlaces((1 << StringPlace::ALL.len()) - 1);

    /// Returns all places except identifiers.
    pub fn contents() -> Self {
        let all = StringPlace::ALL.into_iter();
        all.filter(|place| !place.is_identifier()).collect()
    }

    /// Whether the set contains the place.
    #[inline]
    pub fn has(self, place: StringPlace) -> bool {
        self.0 & 1 << place as u32 != 0
    }
}

impl FromIterator<StringPlace> for StringPlaces {
    fn from_iter<I: IntoIterator<Item = StringPlace>>(places: I) -> Self {
        let bits = places.into_iter().map(|place| 1 << place as u32);
        StringPlaces(bits.fold(0, |all, bit| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_configuration_names_and_form_sets() {
        for place in StringPlace::ALL {
            assert_eq!(serde_json::to_value(place).unwrap(), place.name());
            assert!(StringPlaces::ALL.has(place));
            assert_eq!(StringPlaces::contents().has(place), !place.is_identifier());
            let one = StringPlaces::from_iter([place]);
            assert_eq!(
                StringPlace::ALL.into_iter().filter(|p| one.has(*p)).count(),
                1
            );
        }
    }
}
