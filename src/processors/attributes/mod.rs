//! `attributes`: sets and deletes attributes of spans, data points and log records.
//!
//! Key names and meanings are those of the Collector's attributes processor; of its actions, `insert`, `update`,
//! `upsert` and `delete` are here.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Nack, Requests, Signal};
use crate::component::{BuildContext, BuildError, Entry, ProcessorConfig, Stability, Stage};
use crate::config::{Problems, Validate};
use crate::pipeline::Processor;
use crate::wire::attributes::{Action, Actions, Level, Operation, Source};

/// The registry line.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    AttributesConfig,
    "attributes",
    aliases: &[],
    "Inserts, updates and deletes attributes of spans, data points and log records.",
    &[
        (Signal::Traces, Stability::Beta),
        (Signal::Metrics, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ]
);

/// Configuration of the `attributes` processor.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributesConfig {
    /// What to do with each span, data point or log record, in this order. At least one is required.
    #[serde(default)]
    pub actions: Vec<ActionConfig>,
}

/// What to do with one attribute.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionConfig {
    /// The attribute. Required.
    #[serde(default)]
    pub key: String,
    /// What to do: `insert` sets it where it is missing, `update` where it is there, `upsert` everywhere; `delete`
    /// removes it. Required.
    pub action: ActionKind,
    /// The new value: a string, a number or a boolean. Either this or `from_attribute` is required, except for
    /// `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Scalar>,
    /// The attribute of the same span, data point or log record to take the new value from; where that is missing,
    /// nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_attribute: Option<String>,
}

/// The kinds of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActionKind {
    /// Sets the attribute where it is missing.
    Insert,
    /// Sets the attribute where it is there.
    Update,
    /// Sets the attribute.
    Upsert,
    /// Removes the attribute.
    Delete,
}

/// A value without structure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number of up to 64 bits.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// A text.
    Text(String),
}

impl Validate for AttributesConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.actions.is_empty() {
            problems.error(
                &["actions"],
                "is required: list at least one action, such as {key: env, action: upsert, value: prod}",
            );
        }
        for (position, action) in self.actions.iter().enumerate() {
            let position = position.to_string();
            let mut error = |key: &str, message: &str| {
                problems.error(&["actions", &position, key], message);
            };
            if action.key.is_empty() {
                error("key", "is required: the attribute to act on");
            }
            if action.from_attribute.as_deref() == Some("") {
                error("from_attribute", "must not be empty");
            }
            let sources = (action.value.is_some(), action.from_attribute.is_some());
            match (action.action, sources) {
                (ActionKind::Delete, (false, false)) => {}
                (ActionKind::Delete, (true, _)) => {
                    error("value", "has no meaning for delete: remove it");
                }
                (ActionKind::Delete, (false, true)) => {
                    error("from_attribute", "has no meaning for delete: remove it");
                }
                (_, (false, false)) => error(
                    "action",
                    "needs a new value: give either value or from_attribute",
                ),
                (_, (true, true)) => error(
                    "from_attribute",
                    "cannot be combined with value: give one of the two",
                ),
                (_, _) => {}
            }
        }
    }
}

impl ProcessorConfig for AttributesConfig {
    fn build(&self, _: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let actions = self.actions.iter().map(ActionConfig::action);
        let actions = Actions::new(actions.collect::<Result<_, _>>()?);
        Ok(Stage::Pure(Box::new(Attributes { actions })))
    }
}

impl ActionConfig {
    fn action(&self) -> Result<Action, BuildError> {
        let source = || match (&self.value, &self.from_attribute) {
            (Some(value), None) => Ok(Source::Value(value.to_value())),
            (None, Some(key)) => Ok(Source::Attribute(key.clone())),
            _ => Err(BuildError(format!(
                "the action on {} needs either value or from_attribute",
                self.key
            ))),
        };
        Ok(Action {
            key: self.key.clone(),
            operation: match self.action {
                ActionKind::Insert => Operation::Insert(source()?),
                ActionKind::Update => Operation::Update(source()?),
                ActionKind::Upsert => Operation::Upsert(source()?),
                ActionKind::Delete => Operation::Delete,
            },
        })
    }
}

impl Scalar {
    fn to_value(&self) -> Value {
        match self {
            Scalar::Bool(value) => Value::BoolValue(*value),
            Scalar::Int(value) => Value::IntValue(*value),
            Scalar::Double(value) => Value::DoubleValue(*value),
            Scalar::Text(value) => Value::StringValue(value.clone()),
        }
    }
}

/// The processor.
struct Attributes {
    actions: Actions,
}

impl Processor for Attributes {
    fn process(&self, mut batch: Batch) -> Result<Option<Batch>, Nack> {
        if batch.is_decoded() {
            self.actions.apply_decoded(Level::Items, batch.decoded()?);
            return Ok(Some(batch));
        }
        let signal = batch.signal();
        let mut changed = false;
        let edited = batch.wire().parts().iter().map(|part| {
            let edited = self.actions.apply(signal, Level::Items, part)?;
            changed |= edited.is_some();
            Ok(edited.unwrap_or_else(|| part.clone()))
        });
        let edited: Requests = edited
            .collect::<Result<_, crate::wire::Malformed>>()
            .map_err(|error| Nack::invalid(format!("malformed {signal} request: {error}")))?;
        let items = batch.items();
        Ok(Some(if changed {
            batch.with_wire(items, edited)
        } else {
            batch
        }))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};

    use super::*;
    use crate::batch::Decoded;

    fn config(yaml: &str) -> Result<AttributesConfig, serde_yaml::Error> {
        serde_yaml::from_str(yaml)
    }

    fn processor(yaml: &str) -> Attributes {
        let actions = config(yaml).unwrap().actions;
        Attributes {
            actions: Actions::new(actions.iter().map(|a| a.action().unwrap()).collect()),
        }
    }

    fn logs(attributes: &[(&str, &str)]) -> Decoded {
        let attributes = attributes.iter().map(|(key, value)| KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue((*value).to_owned())),
            }),
            ..KeyValue::default()
        });
        Decoded::Logs(ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                scope_logs: vec![ScopeLogs {
                    log_records: vec![LogRecord {
                        attributes: attributes.collect(),
                        ..LogRecord::default()
                    }],
                    ..ScopeLogs::default()
                }],
                ..ResourceLogs::default()
            }],
        })
    }

    fn batch(attributes: &[(&str, &str)]) -> Batch {
        Batch::new(Signal::Logs, 1, logs(attributes).encode())
    }

    const FOUR_ACTIONS: &str = "
actions:
  - {key: env, action: insert, value: prod}
  - {key: user, action: update, value: redacted}
  - {key: copy, action: upsert, from_attribute: env}
  - {key: secret, action: delete}
";

    #[test]
    fn actions_are_carried_out_in_order_on_the_wire_and_on_structs() {
        let before = [("user", "jane"), ("secret", "x"), ("stays", "as it is")];
        let after = logs(&[
            ("user", "redacted"),
            ("stays", "as it is"),
            ("env", "prod"),
            ("copy", "prod"),
        ]);
        let mut decoded = batch(&before);
        decoded.decoded().unwrap();
        for batch in [batch(&before), decoded] {
            let mut edited = processor(FOUR_ACTIONS).process(batch).unwrap().unwrap();
            assert_eq!(edited.items(), 1);
            assert_eq!(edited.decoded().unwrap(), &after);
        }
    }

    #[test]
    fn a_batch_in_which_nothing_is_found_goes_on_as_the_same_bytes() {
        let mut batch = batch(&[("stays", "as it is")]);
        let before = batch.wire().to_bytes();
        let processor = processor("actions: [{key: secret, action: delete}]");
        let mut after = processor.process(batch).unwrap().unwrap();
        assert_eq!(after.wire().to_bytes().as_ptr(), before.as_ptr());
    }

    #[test]
    fn values_keep_their_type() {
        for (yaml, expected) in [
            ("1", Value::IntValue(1)),
            ("1.5", Value::DoubleValue(1.5)),
            ("true", Value::BoolValue(true)),
            ("\"1\"", Value::StringValue("1".to_owned())),
        ] {
            let config = config(&format!(
                "actions: [{{key: a, action: insert, value: {yaml}}}]"
            ));
            let value = config.unwrap().actions[0].value.clone();
            assert_eq!(value.unwrap().to_value(), expected);
        }
    }

    #[test]
    fn every_mistake_is_reported_at_its_place() {
        let problems = |yaml: &str| -> Vec<String> {
            let mut problems = Problems::default();
            config(yaml).unwrap().validate(&mut problems);
            let found = problems.found().iter();
            found.map(|problem| problem.path.join(".")).collect()
        };
        assert!(problems(FOUR_ACTIONS).is_empty());
        assert_eq!(problems("{}"), ["actions"]);
        assert_eq!(
            problems(
                "
actions:
  - {action: delete}
  - {key: a, action: insert}
  - {key: a, action: upsert, value: 1, from_attribute: b}
  - {key: a, action: delete, value: 1}
  - {key: a, action: delete, from_attribute: b}
  - {key: a, action: update, from_attribute: ''}
"
            ),
            [
                "actions.0.key",
                "actions.1.action",
                "actions.2.from_attribute",
                "actions.3.value",
                "actions.4.from_attribute",
                "actions.5.from_attribute",
            ]
        );
        assert!(config("actions: [{key: a, action: hash}]").is_err());
        assert!(config("actions: [{key: a, action: insert, valeu: 1}]").is_err());
    }
}
