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
        pub enum Place {
            $($(#[doc = $doc])+ $place,)+
        }

        impl Place {
            /// All places.
            pub const ALL: [Place; [$(Place::$place),+].len()] = [$(Place::$place),+];

            /// The name in a configuration and in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Place::$place => $name,)+ }
            }

            /// Whether what stands there names things rather than says something about them: keys, names of metrics.
            pub const fn is_identifier(self) -> bool {
                matches!(places!(@kind self $($place $kind)+), Kind::Identifier)
            }

            /// The signals that have it.
            pub const fn signals(self) -> &'static [Signal] {
                match self { $(Place::$place => places!(@signals $($signal)*),)+ }
            }
        }
    };
    (@kind $self:ident $($place:ident $kind:ident)+) => {
        match $self { $(Place::$place => Kind::$kind,)+ }
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
    /// Types and units of what is counted. Off unless listed.
    SampleTypes "sample_types" Identifier [Profiles],
    /// Names and units of metrics. Off unless listed.
    MetricNames "metric_names" Identifier [Metrics],
    /// Keys of attributes and of nested maps. Off unless listed.
    AttributeKeys "attribute_keys" Identifier [],
    /// Types and keys of the entities that a resource refers to. Off unless listed.
    EntityRefs "entity_refs" Identifier [],
    /// Strings in fields that OTLP will have in the future, and ids that are too long or too short to be one.
    Other "other" Content [],
}

impl Place {
    /// Whether these are the values of a set of attributes.
    pub const fn is_attributes(self) -> bool {
        matches!(
            self,
            Place::ResourceAttributes
                | Place::ScopeAttributes
                | Place::SpanAttributes
                | Place::EventAttributes
                | Place::LinkAttributes
                | Place::LogAttributes
                | Place::DatapointAttributes
                | Place::ExemplarAttributes
                | Place::MetricMetadata
                | Place::ProfileAttributes
        )
    }
}

/// Some places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places(u32);

impl Places {
    /// Every place.
    pub const ALL: Places = Places((1 << Place::ALL.len()) - 1);

    /// All places but identifiers.
    pub fn contents() -> Self {
        let all = Place::ALL.into_iter();
        all.filter(|place| !place.is_identifier()).collect()
    }

    /// Whether it is one of them.
    #[inline]
    pub fn has(self, place: Place) -> bool {
        self.0 & 1 << place as u32 != 0
    }
}

impl FromIterator<Place> for Places {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let bits = places.into_iter().map(|place| 1 << place as u32);
        Places(bits.fold(0, |all, bit| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_configuration_and_a_set_has_what_was_put_in() {
        for place in Place::ALL {
            assert_eq!(serde_json::to_value(place).unwrap(), place.name());
            assert!(Places::ALL.has(place));
            assert_eq!(Places::contents().has(place), !place.is_identifier());
            let one = Places::from_iter([place]);
            assert_eq!(Place::ALL.into_iter().filter(|p| one.has(*p)).count(), 1);
        }
    }
}
