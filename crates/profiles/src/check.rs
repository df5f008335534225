//! Checks a request against the rules of the protocol and reports the positions of violations.
//!
//! Covers the checks of the public `profcheck`, and also references to strings, duplicates in every table and among
//! samples, orphans referred to by orphans only, ids, build ids, and the types of well-known attributes.

mod attributes;
mod entries;
mod path;
mod profiles;
mod rule;
mod tables;

use std::collections::BTreeMap;
use std::fmt;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;

use self::path::Path;
pub use self::rule::{Rule, Severity};
use super::fault::DictionaryTable;

/// Maximum number of findings kept per rule. A mistake in a profiler gives one finding per sample.
pub const FINDINGS_PER_RULE: usize = 10;

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path of the violation, as in `dictionary.location_table[17].mapping_index`.
    pub path: String,
    /// Violated rule.
    pub rule: Rule,
    /// Actual and expected content.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.path, self.detail, self.rule.name())
    }
}

/// Findings in a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    findings: Vec<Finding>,
    counts: BTreeMap<Rule, usize>,
}

impl CheckReport {
    /// Returns the first [`FINDINGS_PER_RULE`] findings of each rule, in the order of detection.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Number of violations of each rule.
    pub fn counts(&self) -> &BTreeMap<Rule, usize> {
        &self.counts
    }

    /// Number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let counts = self.counts.iter();
        counts
            .filter(|(rule, _)| rule.severity() == severity)
            .map(|(_, count)| count)
            .sum()
    }

    /// Whether no rule is violated.
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    fn add(&mut self, rule: Rule, path: &Path<'_>, detail: impl FnOnce() -> String) {
        let count = self.counts.entry(rule).or_default();
        *count += 1;
        if *count <= FINDINGS_PER_RULE {
            self.findings.push(Finding {
                path: path.to_string(),
                rule,
                detail: detail(),
            });
        }
    }
}

/// Checks a request against every [`Rule`].
pub fn check(request: &ExportProfilesServiceRequest) -> CheckReport {
    let none = proto::ProfilesDictionary::default();
    let tables = request.dictionary.as_ref().unwrap_or(&none);
    let mut checker = Checker {
        tables,
        report: CheckReport::default(),
    };
    checker.resources(&request.resource_profiles);
    checker.dictionary();
    checker.duplicates();
    checker.orphans(&request.resource_profiles);
    checker.report
}

/// Asserts that a request written by this program satisfies the rules that do not depend on its input.
///
/// # Panics
/// In debug builds, if a rule is violated.
pub(super) fn debug_assert_structure(request: &[u8]) {
    if cfg!(debug_assertions) {
        use prost::Message as _;

        let request = ExportProfilesServiceRequest::decode(request).unwrap_or_default();
        let report = check(&request);
        let broken = report
            .findings
            .iter()
            .find(|finding| finding.rule.is_structural());
        debug_assert!(
            broken.is_none(),
            "the written request breaks a rule: {broken:?}"
        );
    }
}

struct Checker<'r> {
    tables: &'r proto::ProfilesDictionary,
    report: CheckReport,
}

impl<'r> Checker<'r> {
    fn add(&mut self, rule: Rule, path: &Path<'_>, detail: impl FnOnce() -> String) {
        self.report.add(rule, path, detail);
    }

    fn len(&self, table: DictionaryTable) -> usize {
        let tables = self.tables;
        match table {
            DictionaryTable::Mapping => tables.mapping_table.len(),
            DictionaryTable::Location => tables.location_table.len(),
            DictionaryTable::Function => tables.function_table.len(),
            DictionaryTable::Link => tables.link_table.len(),
            DictionaryTable::String => tables.string_table.len(),
            DictionaryTable::Attribute => tables.attribute_table.len(),
            DictionaryTable::Stack => tables.stack_table.len(),
        }
    }

    /// Whether an index is within its table. Index 0 of an empty table is valid, because the empty table is a separate
    /// finding.
    fn index(&mut self, table: DictionaryTable, index: i32, path: &Path<'_>) -> bool {
        let len = self.len(table);
        let valid = index == 0 || usize::try_from(index).is_ok_and(|index| index < len);
        if !valid {
            self.add(Rule::IndexOutOfRange, path, || {
                format!("is {index}, but {} has {len} entries", table.name())
            });
        }
        valid
    }

    /// Returns a string, or the empty string if the string is missing. Index 0 means no string, even if the entry is
    /// not empty.
    fn text(&self, index: i32) -> &'r str {
        usize::try_from(index)
            .ok()
            .filter(|at| *at != 0)
            .and_then(|at| self.tables.string_table.get(at))
            .map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests;
