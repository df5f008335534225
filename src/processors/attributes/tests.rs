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
