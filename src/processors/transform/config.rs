//! The configuration of `transform`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_config::TextOr;

use crate::processors::filter::ErrorMode;

/// Statements about each signal.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TransformConfig {
    /// Handling of statements and conditions that cannot be evaluated. Examples: a function gets a value of the wrong
    /// type, an index is out of range, a path does not accept a value. `ignore` logs the error and continues with the
    /// next statement, `silent` continues without logging, `propagate` refuses the request. Default: `ignore`.
    pub error_mode: ErrorMode,
    /// Statements about traces, such as `set(span.attributes["tier"], "gold") where resource.attributes["tenant"] ==
    /// "x"`. Contexts: `resource`, `scope`, `span`, `spanevent`. An element is a statement or a group. Statements
    /// outside of groups form one group: the deepest context of its paths determines the items that its statements are
    /// executed on, and every path begins with its context. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace_statements: Vec<StatementEntry>,
    /// Statements about metrics, as in `trace_statements`. Contexts: `resource`, `scope`, `metric`, `datapoint`.
    /// Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metric_statements: Vec<StatementEntry>,
    /// Statements about logs, as in `trace_statements`. Contexts: `resource`, `scope`, `log`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_statements: Vec<StatementEntry>,
    /// Statements about profiles, as in `trace_statements`. Contexts: `resource`, `scope`, `profile`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_statements: Vec<StatementEntry>,
    /// Not supported: `true` is an error. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub flatten_data: bool,
}

/// A statement, or a group of statements.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StatementEntry {
    /// A statement.
    Text(String),
    /// A group of statements with its own settings.
    Group(StatementGroup),
}

impl<'de> Deserialize<'de> for StatementEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry = TextOr::read(deserializer, "a statement, or a mapping with `statements`")?;
        Ok(match entry {
            TextOr::Text(text) => StatementEntry::Text(text),
            TextOr::Mapping(group) => StatementEntry::Group(group),
        })
    }
}

/// A group of statements with its own settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatementGroup {
    /// Context of the statements, and of paths without a prefix. Default: the deepest context of the paths in the
    /// group, which then need their context as a prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Conditions, of which one must be true for the statements to be executed on an item. Default: none, so that the
    /// statements are executed on each item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// The statements, in the order of their execution. Default: none.
    #[serde(default)]
    pub statements: Vec<String>,
    /// Handling of statements and conditions that cannot be evaluated. Default: the processor's `error_mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_mode: Option<ErrorMode>,
}
