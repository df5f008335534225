//! Locations of strings in a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Signal;

macro_rules! places {
    ($($(#[doc = $doc:literal])+ $place:ident $name:literal $kind:ident [$($signal:ident)*],)+) => {
        /// The location of a string in a request.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum StringLocation {
            $($(#[doc = $doc])+ $place,)+
        }

        impl StringLocation {
            /// All locations.
            pub const ALL: [StringLocation; [$(StringLocation::$place),+].len()] = [$(StringLocation::$place),+];

            /// Name in the configuration and in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(StringLocation::$place => $name,)+ }
            }

            /// Whether strings in this location are identifiers, such as keys and metric names, instead of
            /// content.
            pub const fn is_identifier(self) -> bool {
                matches!(places!(@kind self $($place $kind)+), Kind::Identifier)
            }

            /// Signals that have this location; empty means all.
            pub const fn signals(self) -> &'static [Signal] {
                match self { $(StringLocation::$place => places!(@signals $($signal)*),)+ }
            }
        }
    };
    (@kind $self:ident $($place:ident $kind:ident)+) => {
        match $self { $(StringLocation::$place => Kind::$kind,)+ }
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

impl StringLocation {
    /// Whether the location is the values of a set of attributes.
    pub const fn is_attributes(self) -> bool {
        matches!(
            self,
            StringLocation::ResourceAttributes
                | StringLocation::ScopeAttributes
                | StringLocation::SpanAttributes
                | StringLocation::EventAttributes
                | StringLocation::LinkAttributes
                | StringLocation::LogAttributes
                | StringLocation::DatapointAttributes
                | StringLocation::ExemplarAttributes
                | StringLocation::MetricMetadata
                | StringLocation::ProfileAttributes
        )
    }
}

/// A set of locations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StringLocations(u32);

impl StringLocations {
    /// Every location.
    pub const ALL: StringLocations = StringLocations((1 << StringLocation::ALL.len()) - 1);

    /// Returns all locations except identifiers.
    pub fn contents() -> Self {
        let all = StringLocation::ALL.into_iter();
        all.filter(|place| !place.is_identifier()).collect()
    }

    /// Whether the set contains the location.
    #[inline]
    pub fn has(self, place: StringLocation) -> bool {
        self.0 & 1 << place as u32 != 0
    }
}

impl FromIterator<StringLocation> for StringLocations {
    fn from_iter<I: IntoIterator<Item = StringLocation>>(places: I) -> Self {
        let bits = places.into_iter().map(|place| 1 << place as u32);
        StringLocations(bits.fold(0, |all, bit| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_configuration_names_and_form_sets() {
        for place in StringLocation::ALL {
            assert_eq!(serde_json::to_value(place).unwrap(), place.name());
            assert!(StringLocations::ALL.has(place));
            assert_eq!(
                StringLocations::contents().has(place),
                !place.is_identifier()
            );
            let one = StringLocations::from_iter([place]);
            assert_eq!(
                StringLocation::ALL
                    .into_iter()
                    .filter(|p| one.has(*p))
                    .count(),
                1
            );
        }
    }
}
