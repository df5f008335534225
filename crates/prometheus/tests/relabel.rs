//! Relabelling, compared with Prometheus' own package. `tests/generators/relabel` wrote the expected results.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_prometheus::relabel::{Action, Rule, RuleSettings, apply_all};
use tributary_prometheus::{LabelBuilder, PageLabels};

#[derive(Deserialize)]
struct Line {
    labels: BTreeMap<String, String>,
    rules: Vec<Settings>,
    valid: bool,
    keep: bool,
    result: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct Settings {
    source_labels: Vec<String>,
    separator: String,
    regex: String,
    modulus: u64,
    target_label: String,
    replacement: String,
    action: String,
    utf8: bool,
}

impl Settings {
    fn compile(&self) -> Option<Rule> {
        let actions = [
            Action::Replace,
            Action::Keep,
            Action::Drop,
            Action::KeepEqual,
            Action::DropEqual,
            Action::HashMod,
            Action::LabelMap,
            Action::LabelDrop,
            Action::LabelKeep,
            Action::Lowercase,
            Action::Uppercase,
        ];
        let action = actions
            .into_iter()
            .find(|action| action.name() == self.action)?;
        Rule::new(RuleSettings {
            source_labels: self.source_labels.clone(),
            separator: self.separator.clone(),
            regex: self.regex.clone(),
            modulus: self.modulus,
            target_label: self.target_label.clone(),
            replacement: self.replacement.clone(),
            action,
            utf8_names: self.utf8,
        })
        .ok()
    }
}

#[test]
fn rules_give_the_results_of_prometheus() {
    let lines = include_str!("golden/relabel.jsonl").lines();
    for (number, line) in lines.enumerate() {
        let line: Line = serde_json::from_str(line).unwrap();
        let shown = format!("line {}: {:?} {:?}", number + 1, line.labels, line.rules);
        let rules: Option<Vec<Rule>> = line.rules.iter().map(Settings::compile).collect();
        assert_eq!(rules.is_some(), line.valid, "{shown}");
        let Some(rules) = rules else { continue };
        let labels = line
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let mut labels = LabelBuilder::from(PageLabels::from_iter(labels));
        assert_eq!(apply_all(&rules, &mut labels), line.keep, "{shown}");
        if let Some(expected) = line.result {
            let labels = labels.build();
            let result: BTreeMap<&str, &str> = labels.iter().collect();
            let expected = expected
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            assert_eq!(result, expected.collect(), "{shown}");
        }
    }
}
