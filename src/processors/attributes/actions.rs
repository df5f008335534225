//! Configuration of the actions of `attributes` and `resource`, and the actions for one batch.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::BuildError;
use crate::pipeline::batch::Metadata;
use crate::processors::matching::Literal;
use tributary_config::Problems;
use tributary_config::re2;
use tributary_otlp::attributes::{Action, Actions, Operation, Type, ValueSource};

/// An action on one attribute, or on all attributes whose keys match a pattern.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionConfig {
    /// Key of the attribute. Required, except for `delete` and `hash` with a `pattern`.
    #[serde(default)]
    pub key: String,
    /// Kind of action: `insert` sets a missing attribute, `update` sets an existing one, `upsert` does both; `delete`
    /// removes the attribute; `hash` replaces its value with the SHA-256 of the value; `extract` matches its string
    /// value against `pattern` and sets an attribute for each named group; `convert` converts its value to
    /// `converted_type`. Required.
    pub action: ActionKind,
    /// For `insert`, `update` and `upsert`: the new value. One of `value`, `from_attribute`, `from_context` and
    /// `default_value` is required. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Literal>,
    /// For `insert`, `update` and `upsert`: attribute of the same set whose value is copied. If it is missing,
    /// `default_value` is used; without `default_value` nothing happens. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_attribute: Option<String>,
    /// For `insert`, `update` and `upsert`: request header of the client whose value is copied, as in
    /// `metadata.tenant`. The receiver must have `include_metadata: true`. Several values are joined with `;`. If the
    /// header is missing, `default_value` is used; without `default_value` nothing happens. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_context: Option<String>,
    /// Value to use if the attribute of `from_attribute` or the header of `from_context` is missing. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_value: Option<Literal>,
    /// For `delete` and `hash`: regular expression; the action applies to all attributes whose key it matches anywhere,
    /// in addition to `key`. For `extract`: regular expression for the value; all its groups must have names. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// For `convert`: `string`, `int` or `double`. A value that cannot be converted stays unchanged. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converted_type: Option<ConvertedType>,
}

/// Kind of action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["INSERT", "UPDATE", "UPSERT", "DELETE", "HASH", "EXTRACT", "CONVERT"]))]
pub enum ActionKind {
    /// Sets the attribute if it is missing.
    #[serde(alias = "INSERT")]
    Insert,
    /// Sets the attribute if it exists.
    #[serde(alias = "UPDATE")]
    Update,
    /// Sets the attribute.
    #[serde(alias = "UPSERT")]
    Upsert,
    /// Removes the attribute.
    #[serde(alias = "DELETE")]
    Delete,
    /// Replaces the value by its SHA-256.
    #[serde(alias = "HASH")]
    Hash,
    /// Sets attributes from parts of the value.
    #[serde(alias = "EXTRACT")]
    Extract,
    /// Changes the type of the value.
    #[serde(alias = "CONVERT")]
    Convert,
}

impl ActionKind {
    fn name(self) -> &'static str {
        match self {
            ActionKind::Insert => "insert",
            ActionKind::Update => "update",
            ActionKind::Upsert => "upsert",
            ActionKind::Delete => "delete",
            ActionKind::Hash => "hash",
            ActionKind::Extract => "extract",
            ActionKind::Convert => "convert",
        }
    }
}

/// Type to which `convert` converts a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConvertedType {
    /// A string.
    String,
    /// An integer.
    Int,
    /// A floating-point number.
    Double,
}

/// Checks a list of actions under the key `list` of the configuration.
pub(in crate::processors) fn validate(
    list: &str,
    actions: &[ActionConfig],
    problems: &mut Problems,
) {
    if actions.is_empty() {
        problems.error(
            &[list],
            "is required: list at least one action, such as {key: env, action: upsert, value: prod}",
        );
    }
    for (position, action) in actions.iter().enumerate() {
        let position = position.to_string();
        action.validate(&mut |key: &str, message: &str| {
            problems.error(&[list, &position, key], message);
        });
    }
}

impl ActionConfig {
    fn validate(&self, error: &mut impl FnMut(&str, &str)) {
        let kind = self.action;
        let (sets, by_pattern) = match kind {
            ActionKind::Insert | ActionKind::Update | ActionKind::Upsert => (true, false),
            ActionKind::Delete | ActionKind::Hash => (false, true),
            ActionKind::Extract | ActionKind::Convert => (false, false),
        };
        if self.key.is_empty() && (!by_pattern || self.pattern.is_none()) {
            let or_pattern = "is required: the attribute to act on, or a pattern for keys";
            error(
                "key",
                if by_pattern {
                    or_pattern
                } else {
                    "is required: the attribute to act on"
                },
            );
        }
        for (key, given, has_meaning) in [
            ("value", self.value.is_some(), sets),
            ("from_attribute", self.from_attribute.is_some(), sets),
            ("from_context", self.from_context.is_some(), sets),
            ("default_value", self.default_value.is_some(), sets),
            (
                "pattern",
                self.pattern.is_some(),
                by_pattern || kind == ActionKind::Extract,
            ),
            (
                "converted_type",
                self.converted_type.is_some(),
                kind == ActionKind::Convert,
            ),
        ] {
            if given && !has_meaning {
                error(
                    key,
                    &format!("has no effect with the action {}: remove it", kind.name()),
                );
            }
        }
        if sets {
            self.validate_sources(error);
        }
        if kind == ActionKind::Convert && self.converted_type.is_none() {
            error("action", "requires `converted_type`: string, int or double");
        }
        if kind == ActionKind::Extract && self.pattern.is_none() {
            error(
                "action",
                "requires a pattern with named groups, such as ^(?P<user>[^@]+)@",
            );
        }
        if let Some(pattern) = &self.pattern {
            match re2::compile(pattern) {
                Err(wrong) => error("pattern", &wrong.to_string()),
                Ok(pattern) if kind == ActionKind::Extract => {
                    let mut names = pattern.capture_names().skip(1);
                    if names.len() == 0 {
                        error(
                            "pattern",
                            "must have a named group, such as (?P<user>[a-z]+)",
                        );
                    } else if names.any(|name| name.is_none()) {
                        error(
                            "pattern",
                            "has a group without a name: write (?P<name>...) for an attribute, or (?:...) otherwise",
                        );
                    }
                }
                Ok(_) => {}
            }
        }
    }

    fn validate_sources(&self, error: &mut impl FnMut(&str, &str)) {
        let sources = [
            ("value", self.value.is_some()),
            ("from_attribute", self.from_attribute.is_some()),
            ("from_context", self.from_context.is_some()),
        ];
        let mut given = sources.iter().filter(|(_, given)| *given);
        match (given.next(), given.next()) {
            (None, _) if self.default_value.is_none() => error(
                "action",
                "requires a new value: set one of `value`, `from_attribute` and `from_context`",
            ),
            (Some((first, _)), Some((second, _))) => error(
                second,
                &format!("cannot be combined with {first}: remove one of the two"),
            ),
            (Some(("value", _)), None) if self.default_value.is_some() => error(
                "default_value",
                "cannot be combined with `value`, which is always present: remove one of the two",
            ),
            _ => {}
        }
        if self.from_attribute.as_deref() == Some("") {
            error("from_attribute", "must not be empty");
        }
        match self.from_context.as_deref() {
            Some("" | "metadata.") => {
                error("from_context", "must name a header, as in metadata.tenant")
            }
            Some(context) if context == "client.address" || context.starts_with("auth.") => error(
                "from_context",
                "is not supported: only request headers are available, as in `metadata.tenant`. For the identity of \
                 the client, set `client_identity_attribute` in the receiver",
            ),
            _ => {}
        }
    }

    /// Returns the wire-level actions for this setting, with its pattern compiled.
    fn prepare(&self) -> Result<Vec<Made>, BuildError> {
        let broken = || BuildError(format!("the action on {} is incomplete", self.key));
        let pattern = || match &self.pattern {
            Some(pattern) => re2::compile(pattern)
                .map(|pattern| Some(Arc::new(pattern)))
                .map_err(|wrong| BuildError(format!("the pattern of {} {wrong}", self.key))),
            None => Ok(None),
        };
        let action = |operation| {
            Made::Ready(Action {
                key: self.key.clone(),
                operation,
            })
        };
        let by_key_and_pattern = |by_key, by_pattern: fn(Arc<Regex>) -> Operation| {
            let by_key = (!self.key.is_empty()).then_some(by_key);
            let by_pattern = pattern()?.map(by_pattern);
            Ok(by_key.into_iter().chain(by_pattern).map(action).collect())
        };
        let set: fn(ValueSource) -> Operation = match self.action {
            ActionKind::Insert => Operation::Insert,
            ActionKind::Update => Operation::Update,
            ActionKind::Upsert => Operation::Upsert,
            ActionKind::Delete => {
                return by_key_and_pattern(Operation::Delete, Operation::DeleteMatching);
            }
            ActionKind::Hash => {
                return by_key_and_pattern(Operation::Hash, Operation::HashMatching);
            }
            ActionKind::Extract => {
                let pattern = pattern()?.ok_or_else(broken)?;
                return Ok(vec![action(Operation::Extract(pattern))]);
            }
            ActionKind::Convert => {
                let to = match self.converted_type.ok_or_else(broken)? {
                    ConvertedType::String => Type::String,
                    ConvertedType::Int => Type::Int,
                    ConvertedType::Double => Type::Double,
                };
                return Ok(vec![action(Operation::Convert(to))]);
            }
        };
        let default = self.default_value.as_ref().map(Literal::to_value);
        Ok(vec![
            match (&self.value, &self.from_attribute, &self.from_context) {
                (Some(value), ..) => action(set(ValueSource::Value(value.to_value()))),
                (None, Some(key), _) => action(set(match default {
                    Some(default) => ValueSource::AttributeOr(key.clone(), default),
                    None => ValueSource::Attribute(key.clone()),
                })),
                (None, None, Some(name)) => Made::FromHeader {
                    key: self.key.clone(),
                    set,
                    header: name
                        .strip_prefix("metadata.")
                        .unwrap_or(name)
                        .to_ascii_lowercase(),
                    default,
                },
                (None, None, None) => action(set(ValueSource::Value(default.ok_or_else(broken)?))),
            },
        ])
    }
}

/// A compiled action.
#[derive(Debug)]
enum Made {
    Ready(Action),
    /// Sets an attribute to the value of a header.
    FromHeader {
        key: String,
        set: fn(ValueSource) -> Operation,
        /// Name of the header, in lower case.
        header: String,
        default: Option<Value>,
    },
}

impl Made {
    /// Returns the action for a batch with these headers; `None` if the action needs a header that is missing and has
    /// no default.
    fn action(&self, metadata: Option<&Metadata>) -> Option<Action> {
        match self {
            Made::Ready(action) => Some(action.clone()),
            Made::FromHeader {
                key,
                set,
                header,
                default,
            } => {
                let values = metadata.and_then(|metadata| metadata.get(header));
                let value = values
                    .filter(|values| !values.is_empty())
                    .map(|values| Value::StringValue(values.join(";")));
                let value = value.or_else(|| default.clone())?;
                Some(Action {
                    key: key.clone(),
                    operation: set(ValueSource::Value(value)),
                })
            }
        }
    }
}

/// A compiled list of actions.
#[derive(Debug)]
pub(in crate::processors) struct Prepared {
    made: Vec<Made>,
    /// All actions, if none depends on headers.
    fixed: Option<Actions>,
}

impl Prepared {
    pub(in crate::processors) fn new(configs: &[ActionConfig]) -> Result<Self, BuildError> {
        let mut made = Vec::new();
        for config in configs {
            made.extend(config.prepare()?);
        }
        let depends = made
            .iter()
            .any(|made| matches!(made, Made::FromHeader { .. }));
        Ok(Prepared {
            fixed: (!depends).then(|| actions(&made, None)),
            made,
        })
    }

    /// Calls `run` with the actions for a batch with these headers.
    pub(in crate::processors) fn with<R>(
        &self,
        metadata: Option<&Metadata>,
        run: impl FnOnce(&Actions) -> R,
    ) -> R {
        match &self.fixed {
            Some(actions) => run(actions),
            None => run(&actions(&self.made, metadata)),
        }
    }
}

fn actions(made: &[Made], metadata: Option<&Metadata>) -> Actions {
    let actions = made.iter().filter_map(|made| made.action(metadata));
    Actions::new(actions.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_compiled_once_and_not_for_each_batch() {
        let read = |yaml| serde_yaml::from_str::<Vec<ActionConfig>>(yaml).unwrap();
        let configs = read(
            "[{action: delete, pattern: '\\d'}, {key: a, action: extract, pattern: '(?P<b>x)'}, \
             {key: tenant, action: upsert, from_context: X-Tenant}]",
        );
        let prepared = Prepared::new(&configs).unwrap();
        assert!(prepared.fixed.is_none());
        let metadata = Metadata::from([("x-tenant".to_owned(), vec!["acme".to_owned()])]);
        let of_batch = || {
            prepared
                .made
                .iter()
                .filter_map(|made| made.action(Some(&metadata)))
        };
        assert_eq!(of_batch().count(), 3);
        for (one, other) in of_batch().zip(of_batch()) {
            match (one.operation, other.operation) {
                (Operation::DeleteMatching(one), Operation::DeleteMatching(other))
                | (Operation::Extract(one), Operation::Extract(other)) => {
                    assert!(Arc::ptr_eq(&one, &other));
                }
                (Operation::Upsert(one), Operation::Upsert(other)) => assert_eq!(one, other),
                _ => unreachable!(),
            }
        }
    }
}
