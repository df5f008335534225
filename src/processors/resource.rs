//! `resource`: changes attributes of resources.
//!
//! Key names and meanings are those of the Collector's resource processor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attributes::{ActionConfig, Attributes, Prepared, validate};
use super::matching::Choice;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::metric::shared;
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;
use tributary_otlp::attributes::AttributeLevel;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    ResourceConfig,
    "resource",
    aliases: &[],
    "Inserts, changes and deletes attributes of resources.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR]
);

/// Configuration of the `resource` processor.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceConfig {
    /// Actions on the attributes of each resource, in this order; at least one. Required.
    #[serde(default)]
    pub attributes: Vec<ActionConfig>,
}

impl Validate for ResourceConfig {
    fn validate(&self, problems: &mut Problems) {
        validate("attributes", &self.attributes, problems);
    }
}

impl ProcessorConfig for ResourceConfig {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        Ok(Stage::Pure(Box::new(Attributes {
            level: AttributeLevel::Resources,
            actions: Prepared::new(&self.attributes)?,
            choice: Choice::default(),
            budget: cx.budget.clone(),
        })))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message as _;

    use super::*;
    use crate::component::Host;
    use crate::pipeline::Processor;
    use crate::pipeline::batch::Batch;
    use tributary_otlp::Decoded;
    use tributary_profiles::testing_requests::named;

    fn processor(signal: Signal) -> Box<dyn Processor> {
        let yaml = "attributes: [{key: service.name, action: update, value: shop}, \
                    {key: env, action: insert, value: prod}, {key: host, action: delete}]";
        let config: ResourceConfig = serde_yaml::from_str(yaml).unwrap();
        let id = "resource".parse().unwrap();
        match config.build(&Host::for_tests().context(&id), signal) {
            Ok(Stage::Pure(processor)) => processor,
            _ => unreachable!(),
        }
    }

    fn resource() -> Resource {
        let attribute = |key: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue("before".to_owned())),
            }),
            ..KeyValue::default()
        };
        Resource {
            attributes: vec![attribute("service.name"), attribute("host")],
            ..Resource::default()
        }
    }

    fn text(attribute: &KeyValue) -> (&str, &str) {
        let value = attribute
            .value
            .as_ref()
            .and_then(|value| value.value.as_ref());
        match value {
            Some(Value::StringValue(text)) => (&attribute.key, text),
            _ => (&attribute.key, ""),
        }
    }

    fn texts(resource: Option<&Resource>) -> Vec<(&str, &str)> {
        resource.unwrap().attributes.iter().map(text).collect()
    }

    const AFTER: [(&str, &str); 2] = [("service.name", "shop"), ("env", "prod")];

    #[test]
    fn resources_of_all_signals_are_edited() {
        for signal in Signal::ALL {
            // In all signals, the resource is field 1 of an entry, and an entry is field 1 of the request.
            let entry = |bytes: Vec<u8>| {
                let mut message = vec![0x0a, u8::try_from(bytes.len()).unwrap()];
                message.extend(bytes);
                message
            };
            let request = entry(entry(resource().encode_to_vec()));
            let batch = Batch::new(signal, 0, Bytes::from(request));
            let edited = processor(signal).process(batch).unwrap().unwrap();
            let edited = edited.decoded().unwrap();
            let after = match &edited {
                Decoded::Traces(request) => request.resource_spans[0].resource.as_ref(),
                Decoded::Metrics(request) => request.resource_metrics[0].resource.as_ref(),
                Decoded::Logs(request) => request.resource_logs[0].resource.as_ref(),
                Decoded::Profiles(request) => request.resource_profiles[0].resource.as_ref(),
            };
            assert_eq!(texts(after), AFTER, "{signal}");
        }
    }

    /// Returns a request of profiles with this resource, and an unreferenced dictionary entry.
    fn profiles(resource: Resource) -> Batch {
        let mut request = named("x", 1, ["main"]);
        request.resource_profiles[0].resource = Some(resource);
        let strings = &mut request.dictionary.as_mut().unwrap().string_table;
        strings.extend(["host".to_owned(), "unreferenced".to_owned()]);
        Batch::new(Signal::Profiles, 1, Bytes::from(request.encode_to_vec()))
    }

    fn edited(batch: Batch) -> (Vec<(String, String)>, bool) {
        let edited = processor(Signal::Profiles).process(batch).unwrap().unwrap();
        assert_eq!(edited.items(), 1);
        let Decoded::Profiles(request) = edited.decoded().unwrap() else {
            unreachable!();
        };
        let strings = &request.dictionary.as_ref().unwrap().string_table;
        let resource = request.resource_profiles[0].resource.as_ref();
        let attributes = texts(resource).into_iter();
        let owned = attributes.map(|(key, text)| (key.to_owned(), text.to_owned()));
        (
            owned.collect(),
            strings.iter().any(|text| text == "unreferenced"),
        )
    }

    #[test]
    fn profiles_change_only_in_resource_attributes() {
        let expected = AFTER.map(|(key, text)| (key.to_owned(), text.to_owned()));
        let (attributes, untouched) = edited(profiles(resource()));
        assert_eq!(attributes, expected);
        assert!(untouched, "the dictionary must stay unchanged");
        let mut referring = resource();
        referring.attributes[1].key = String::new();
        referring.attributes[1].key_strindex = 4;
        let (attributes, untouched) = edited(profiles(referring));
        assert_eq!(attributes, expected);
        assert!(!untouched, "a reference needs the decoded dictionary");
    }
}
