//! Relabelling rules.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use tributary_prometheus::relabel::{Action, Rule, RuleError, RuleSettings};

/// A relabelling rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RelabelConfig {
    /// Labels whose values are joined with `separator`. Default: none.
    pub source_labels: Vec<String>,
    /// Text between the values. Default: `;`.
    pub separator: String,
    /// Regular expression in RE2's syntax, which must match as a whole. Default: `(.*)`.
    pub regex: String,
    /// Divisor of the hash, for `hashmod`. Default: 0.
    pub modulus: u64,
    /// Label to set. `$1` and `$${1}` refer to groups of `regex`. Default: none.
    pub target_label: String,
    /// New value of the label. `$1` and `$${1}` refer to groups of `regex`. Default: `$1`.
    pub replacement: String,
    /// Effect of the rule: `replace`, `keep`, `drop`, `keepequal`, `dropequal`, `hashmod`, `labelmap`, `labeldrop`,
    /// `labelkeep`, `lowercase` or `uppercase`. Default: `replace`.
    pub action: RelabelAction,
}

/// Effect of a relabelling rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RelabelAction {
    /// Sets the target label if the regular expression matches.
    #[default]
    Replace,
    /// Drops what does not match.
    Keep,
    /// Drops what matches.
    Drop,
    /// Drops what has another value in the target label.
    KeepEqual,
    /// Drops what has the same value in the target label.
    DropEqual,
    /// Sets the target label to a hash of the source labels.
    HashMod,
    /// Copies labels with matching names.
    LabelMap,
    /// Removes labels with matching names.
    LabelDrop,
    /// Removes labels without matching names.
    LabelKeep,
    /// Sets the target label to the source labels in lower case.
    Lowercase,
    /// Sets the target label to the source labels in upper case.
    Uppercase,
}

impl RelabelAction {
    const ALL: [(RelabelAction, Action); 11] = [
        (RelabelAction::Replace, Action::Replace),
        (RelabelAction::Keep, Action::Keep),
        (RelabelAction::Drop, Action::Drop),
        (RelabelAction::KeepEqual, Action::KeepEqual),
        (RelabelAction::DropEqual, Action::DropEqual),
        (RelabelAction::HashMod, Action::HashMod),
        (RelabelAction::LabelMap, Action::LabelMap),
        (RelabelAction::LabelDrop, Action::LabelDrop),
        (RelabelAction::LabelKeep, Action::LabelKeep),
        (RelabelAction::Lowercase, Action::Lowercase),
        (RelabelAction::Uppercase, Action::Uppercase),
    ];

    fn action(self) -> Action {
        let mut all = Self::ALL.iter();
        all.find(|(own, _)| *own == self)
            .map_or(Action::Replace, |(_, action)| *action)
    }
}

/// Names are accepted in any case, as in Prometheus.
impl<'de> Deserialize<'de> for RelabelAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, action)| action.name().eq_ignore_ascii_case(&text));
        found.map(|(own, _)| *own).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, action)| action.name()).collect();
            de::Error::custom(format!(
                "`{text}` is not an action: use one of {}",
                names.join(", ")
            ))
        })
    }
}

impl Default for RelabelConfig {
    fn default() -> Self {
        let settings = RuleSettings::default();
        RelabelConfig {
            source_labels: settings.source_labels,
            separator: settings.separator,
            regex: settings.regex,
            modulus: settings.modulus,
            target_label: settings.target_label,
            replacement: settings.replacement,
            action: RelabelAction::Replace,
        }
    }
}

impl RelabelConfig {
    /// Compiles the rule.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub(in super::super) fn rule(&self, utf8_names: bool) -> Result<Rule, RuleError> {
        Rule::new(RuleSettings {
            source_labels: self.source_labels.clone(),
            separator: self.separator.clone(),
            regex: self.regex.clone(),
            modulus: self.modulus,
            target_label: self.target_label.clone(),
            replacement: self.replacement.clone(),
            action: self.action.action(),
            utf8_names,
        })
    }
}
