//! Replaces defaults that depend on a neighbouring key by their effective values.

use serde_yaml::{Mapping, Value};

/// The Collector's time after which a batch in an in-memory queue is dropped.
const GIVE_UP: &str = "5m0s";

/// Keys without an effective value if absent: neighbouring keys or the other side of a connection
/// decide.
const CHOSEN_LATER: [&str; 4] = [
    "min_version",
    "max_version",
    "translation_strategy",
    "level",
];

/// Fills in the values that components derive themselves, in the whole configuration of a
/// component.
pub(super) fn fill(value: &mut Value) {
    match value {
        Value::Mapping(mapping) => {
            fill_retries(mapping);
            fill_sizers(mapping);
            mapping.retain(|key, value| {
                !value.is_null() || !key.as_str().is_some_and(|key| CHOSEN_LATER.contains(&key))
            });
            mapping.values_mut().for_each(fill);
        }
        Value::Sequence(items) => items.iter_mut().for_each(fill),
        _ => {}
    }
}

/// Whether a section only says that it is off.
fn is_off(section: &Mapping) -> bool {
    section.get("enabled") == Some(&Value::Bool(false))
}

/// Fills in `max_elapsed_time`: 0 (no limit) for a queue with `storage`, five minutes for other queues.
fn fill_retries(mapping: &mut Mapping) {
    let queue = mapping.get("sending_queue");
    let is_stored = queue.and_then(|queue| queue.get("storage")).is_some();
    let Some(Value::Mapping(retry)) = mapping.get_mut("retry_on_failure") else {
        return;
    };
    if !is_off(retry) && !retry.contains_key("max_elapsed_time") {
        let limit = if is_stored { "0s" } else { GIVE_UP };
        retry.insert("max_elapsed_time".into(), limit.into());
    }
}

/// Fills in the sizers. The default of a queue is requests. The default of a batch is bytes if its
/// queue counts bytes, else items.
fn fill_sizers(mapping: &mut Mapping) {
    let Some(Value::Mapping(queue)) = mapping.get_mut("sending_queue") else {
        return;
    };
    let fill = |section: &mut Mapping, default: &str| {
        if let Some(sizer @ Value::Null) = section.get_mut("sizer") {
            *sizer = default.into();
        }
    };
    fill(queue, "requests");
    let inherited = match queue.get("sizer").and_then(Value::as_str) {
        Some("bytes") => "bytes",
        _ => "items",
    };
    if let Some(Value::Mapping(batch)) = queue.get_mut("batch") {
        fill(batch, inherited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(yaml: &str) -> String {
        let mut value: Value = serde_yaml::from_str(yaml).unwrap();
        fill(&mut value);
        serde_json::to_string(&value).unwrap()
    }

    #[test]
    fn retries_without_a_limit_show_the_one_in_force() {
        for (yaml, expected) in [
            (
                "retry_on_failure: {}",
                r#"{"retry_on_failure":{"max_elapsed_time":"5m0s"}}"#,
            ),
            (
                "{sending_queue: {storage: a}, retry_on_failure: {}}",
                r#"{"sending_queue":{"storage":"a"},"retry_on_failure":{"max_elapsed_time":"0s"}}"#,
            ),
            (
                "retry_on_failure: {enabled: false}",
                r#"{"retry_on_failure":{"enabled":false}}"#,
            ),
            (
                "{protocol: {otlp: {retry_on_failure: {max_elapsed_time: 1s}}}}",
                r#"{"protocol":{"otlp":{"retry_on_failure":{"max_elapsed_time":"1s"}}}}"#,
            ),
        ] {
            assert_eq!(filled(yaml), expected);
        }
    }

    #[test]
    fn batch_without_sizer_shows_queue_sizer() {
        for (queue, batch) in [("null", "items"), ("bytes", "bytes"), ("requests", "items")] {
            let text = filled(&format!(
                "sending_queue: {{sizer: {queue}, batch: {{sizer: null}}}}"
            ));
            assert!(
                text.contains(&format!(r#""batch":{{"sizer":"{batch}"}}"#)),
                "{text}"
            );
            assert!(!text.contains("null"), "{text}");
        }
    }
}
