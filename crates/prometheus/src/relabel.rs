//! Relabelling: rules that change the labels of series and targets, or drop them:
//! <https://prometheus.io/docs/prometheus/latest/configuration/configuration/#relabel_config>.

mod template;

use md5::{Digest as _, Md5};
use regex::Regex;

use self::template::Template;
use crate::labels::{LabelBuilder, is_legacy_name};
use tributary_config::re2;

/// Effect of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Action {
    /// Sets the target label to the replacement if the regular expression matches.
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
    /// Copies labels with matching names to the names of the replacement.
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

impl Action {
    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Replace => "replace",
            Action::Keep => "keep",
            Action::Drop => "drop",
            Action::KeepEqual => "keepequal",
            Action::DropEqual => "dropequal",
            Action::HashMod => "hashmod",
            Action::LabelMap => "labelmap",
            Action::LabelDrop => "labeldrop",
            Action::LabelKeep => "labelkeep",
            Action::Lowercase => "lowercase",
            Action::Uppercase => "uppercase",
        }
    }

    fn needs_target(self) -> bool {
        !matches!(
            self,
            Action::Keep | Action::Drop | Action::LabelMap | Action::LabelDrop | Action::LabelKeep
        )
    }

    /// Whether the action ignores `regex` and `replacement`.
    fn is_plain(self) -> bool {
        matches!(
            self,
            Action::Lowercase | Action::Uppercase | Action::KeepEqual | Action::DropEqual
        )
    }
}

/// Settings of a rule, as in configurations.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSettings {
    /// Labels whose values are joined with the separator.
    pub source_labels: Vec<String>,
    /// Text between the values.
    pub separator: String,
    /// Regular expression that must match the joined values, or a name, as a whole.
    pub regex: String,
    /// Divisor of the hash.
    pub modulus: u64,
    /// Label to set; may refer to groups of the regular expression.
    pub target_label: String,
    /// New value; may refer to groups of the regular expression.
    pub replacement: String,
    /// Effect of the rule.
    pub action: Action,
    /// Whether names of labels may have any characters.
    pub utf8_names: bool,
}

impl Default for RuleSettings {
    fn default() -> Self {
        RuleSettings {
            source_labels: Vec::new(),
            separator: ";".to_owned(),
            regex: "(.*)".to_owned(),
            modulus: 0,
            target_label: String::new(),
            replacement: "$1".to_owned(),
            action: Action::Replace,
            utf8_names: true,
        }
    }
}

/// A setting that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct RuleError {
    /// Key of the setting.
    pub key: &'static str,
    /// Description of the mistake.
    pub reason: String,
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct Rule {
    settings: RuleSettings,
    regex: Regex,
    target: Template,
    replacement: Template,
    /// Whether the rule sets a label if the source labels are empty.
    matches_empty: bool,
}

impl Rule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// The first setting that is not valid, by the rules of Prometheus.
    pub fn new(settings: RuleSettings) -> Result<Self, RuleError> {
        settings.check()?;
        let anchored = format!("^(?s:{})$", settings.regex);
        let regex = re2::compile(&anchored).map_err(|error| RuleError {
            key: "regex",
            reason: error.to_string(),
        })?;
        let default = RuleSettings::default();
        Ok(Rule {
            target: Template::new(&settings.target_label),
            replacement: Template::new(&settings.replacement),
            matches_empty: settings.regex == default.regex
                && !settings.target_label.contains('$')
                && !settings.replacement.contains('$'),
            regex,
            settings,
        })
    }

    /// Applies the rule. Returns false if the series or target is dropped.
    #[must_use]
    pub fn apply(&self, labels: &mut LabelBuilder) -> bool {
        let settings = &self.settings;
        let target = settings.target_label.as_str();
        let value = self.source(labels);
        match settings.action {
            Action::Drop => return !self.regex.is_match(&value),
            Action::Keep => return self.regex.is_match(&value),
            Action::DropEqual => return labels.get(target) != value,
            Action::KeepEqual => return labels.get(target) == value,
            Action::Replace => self.replace(&value, labels),
            Action::Lowercase => labels.set(target, mapped(&value, char::to_lowercase)),
            Action::Uppercase => labels.set(target, mapped(&value, char::to_uppercase)),
            Action::HashMod => {
                let hash: [u8; 16] = Md5::digest(value.as_bytes()).into();
                let [.., a, b, c, d, e, f, g, h] = hash;
                let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                let remainder = number.checked_rem(settings.modulus).unwrap_or_default();
                labels.set(target, remainder.to_string());
            }
            Action::LabelMap => self.map_names(labels),
            Action::LabelDrop => labels.remove_all(|name| self.regex.is_match(name)),
            Action::LabelKeep => labels.remove_all(|name| !self.regex.is_match(name)),
        }
        true
    }

    fn source(&self, labels: &LabelBuilder) -> String {
        let values = self
            .settings
            .source_labels
            .iter()
            .map(|name| labels.get(name));
        values.collect::<Vec<_>>().join(&self.settings.separator)
    }

    fn replace(&self, value: &str, labels: &mut LabelBuilder) {
        let settings = &self.settings;
        if value.is_empty() && self.matches_empty {
            return labels.set(&settings.target_label, settings.replacement.as_str());
        }
        let Some(captures) = self.regex.captures(value) else {
            return;
        };
        let target = self.target.expand(&captures);
        if settings.is_name(&target) {
            labels.set(&target, self.replacement.expand(&captures));
        }
    }

    fn map_names(&self, labels: &mut LabelBuilder) {
        let matching = labels.iter().filter(|(name, _)| self.regex.is_match(name));
        let matching = matching.map(|(name, value)| {
            let renamed = |captures: &regex::Captures<'_>| self.replacement.expand(captures);
            let renamed = self.regex.replace_all(name, renamed);
            (renamed.into_owned(), value.to_owned())
        });
        let matching: Vec<(String, String)> = matching.collect();
        for (name, value) in matching {
            labels.set(&name, value);
        }
    }
}

/// Applies rules in their order. Returns false if one of them drops the series or target.
#[must_use]
pub fn apply_all(rules: &[Rule], labels: &mut LabelBuilder) -> bool {
    rules.iter().all(|rule| rule.apply(labels))
}

impl RuleSettings {
    fn is_name(&self, name: &str) -> bool {
        match self.utf8_names {
            true => !name.is_empty(),
            false => is_legacy_name(name),
        }
    }

    /// Whether a text is a name, or becomes one when its references to groups are replaced.
    fn may_be_name(&self, text: &str) -> bool {
        if self.utf8_names || !text.contains('$') {
            return self.is_name(text);
        }
        let mut rest = text;
        let mut name = String::new();
        while let Some((before, after)) = rest.split_once('$') {
            let (after, has_brace) = match after.strip_prefix('{') {
                Some(after) => (after, true),
                None => (after, false),
            };
            let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let (group, after) =
                after.split_at(after.find(|letter| !word(letter)).unwrap_or(after.len()));
            let after = if has_brace {
                after.strip_prefix('}')
            } else {
                Some(after)
            };
            let (Some(after), false) = (after, group.is_empty()) else {
                return false;
            };
            name.push_str(before);
            // Any letter stands for the group.
            name.push('x');
            rest = after;
        }
        name.push_str(rest);
        is_legacy_name(&name)
    }

    fn check(&self) -> Result<(), RuleError> {
        let default = RuleSettings::default();
        let action = self.action;
        let name = action.name();
        let error = |key, reason: String| Err(RuleError { key, reason });
        if action == Action::HashMod && self.modulus == 0 {
            return error(
                "modulus",
                "must be above 0 for `action: hashmod`".to_owned(),
            );
        }
        if action.needs_target() && self.target_label.is_empty() {
            return error("target_label", format!("is required for `action: {name}`"));
        }
        let is_name = match action {
            Action::Replace => self.may_be_name(&self.target_label),
            _ => self.is_name(&self.target_label),
        };
        if action.needs_target() && !is_name {
            let label = &self.target_label;
            return error(
                "target_label",
                format!("`{label}` is not the name of a label"),
            );
        }
        if action.is_plain() && self.replacement != default.replacement {
            return error(
                "replacement",
                format!("has no effect with `action: {name}`: remove it"),
            );
        }
        if action == Action::LabelMap && !self.may_be_name(&self.replacement) {
            let label = &self.replacement;
            return error(
                "replacement",
                format!("`{label}` is not the name of a label"),
            );
        }
        let equal = matches!(action, Action::DropEqual | Action::KeepEqual);
        let names = matches!(action, Action::LabelDrop | Action::LabelKeep);
        let unused = [
            ("regex", equal && self.regex != default.regex),
            ("source_labels", names && !self.source_labels.is_empty()),
            ("target_label", names && !self.target_label.is_empty()),
            ("modulus", (equal || names) && self.modulus != 0),
            (
                "separator",
                (equal || names) && self.separator != default.separator,
            ),
            (
                "replacement",
                names && self.replacement != default.replacement,
            ),
        ];
        match unused.iter().find(|(_, unused)| *unused) {
            Some((key, _)) => error(
                key,
                format!("has no effect with `action: {name}`: remove it"),
            ),
            None => Ok(()),
        }
    }
}

/// Maps each letter by itself, as Go does. A letter whose mapping has several letters stays, except for the dotted
/// capital I.
fn mapped<I: Iterator<Item = char>>(text: &str, map: impl Fn(char) -> I) -> String {
    let letters = text.chars().map(|letter| {
        let mut output = map(letter);
        match (output.next(), output.next()) {
            (Some(only), None) => only,
            (Some('i'), Some(_)) => 'i',
            _ => letter,
        }
    });
    letters.collect()
}
