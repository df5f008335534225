//! The comparison of two groups of windows.
//!
//! A function is reported only if three statements hold:
//!
//! 1. Its shares differ significantly ([`RankTest`]), and so do its shares relative to the other
//!    functions. If one function becomes more expensive, the shares of all others fall, though they
//!    cost as much as before. The median change over all functions tells this dilution.
//! 2. The change of the mean share is large enough, with and without the dilution.
//! 3. The function has enough of the total before or after.
//!
//! The p-values are multiplied by the number of tested values and by the number of looks at the same
//! data (Bonferroni), so that the stated error rate holds for all of them together. The selection of
//! functions depends on all windows together, not on the group of a window. So the selection does not
//! disturb the test.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::rank::RankTest;
use super::shares::Shares;

/// Part of a function's value that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    /// The value of the function itself.
    Own,
    /// The value including callees.
    Total,
}

/// Conditions of a finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    /// Probability of any finding in a comparison without a change, over all looks.
    pub(super) error_rate: f64,
    /// Least relative change of a share.
    pub(super) min_change: f64,
    /// Least share before or after.
    pub(super) min_share: f64,
    /// Number of looks at a comparison.
    pub(super) looks: usize,
}

/// A significant change of a function's share.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) function: Arc<str>,
    pub(super) part: Part,
    /// Mean shares.
    pub(super) before: f64,
    pub(super) after: f64,
    /// P-value, corrected for the number of tests and looks.
    pub(super) p_value: f64,
}

impl Change {
    /// Returns the relative change of the share; infinite for a new function.
    pub(super) fn relative(&self) -> f64 {
        self.after / self.before - 1.0
    }
}

/// Shares of a function in all windows.
struct Column {
    name: Arc<str>,
    own: Vec<f64>,
    total: Vec<f64>,
}

/// Fewest functions whose median change is taken for the dilution.
const LEAST_FOR_MEDIAN: usize = 3;

/// Compares two groups of windows, each in the order of time.
pub(super) fn compare(
    before: &[&Shares],
    after: &[&Shares],
    thresholds: &Thresholds,
) -> Vec<Change> {
    let split = before.len();
    if before.is_empty() || after.is_empty() {
        return Vec::new();
    }
    let means = |values: &[f64]| {
        let (before, after) = values.split_at(split);
        (mean(before), mean(after))
    };
    let columns = columns(before, after, thresholds.min_share / 2.0);
    // If one group has at least the least share, both together have at least this share.
    let smaller = before.len().min(after.len()) as f64;
    let pooled = thresholds.min_share * smaller / (before.len() + after.len()) as f64;
    let of_parts = columns.iter().flat_map(|column| {
        let total = (column, Part::Total, &column.total);
        // A function without callees is tested once.
        let total = (column.own != column.total).then_some(total);
        std::iter::once((column, Part::Own, &column.own)).chain(total)
    });
    let tested: Vec<_> = of_parts
        .filter(|(_, _, values)| mean(values) >= pooled)
        .collect();
    let of_functions = tested.iter().filter(|(_, part, _)| *part == Part::Own);
    let ratios = of_functions
        .filter(|(_, _, values)| mean(values) >= thresholds.min_share)
        .map(|(_, _, values)| means(values))
        .filter(|(before, after)| *before > 0.0 && *after > 0.0)
        .map(|(before, after)| after / before);
    let dilution = median(ratios.collect()).unwrap_or(1.0);
    let test = RankTest::new(before.len(), after.len());
    let tests = (tested.len() * thresholds.looks) as f64;
    let mut changes = Vec::new();
    for (column, part, values) in &tested {
        let (before, after) = means(values);
        let change = |after: f64| after / before - 1.0;
        let (plain, relative) = (change(after), change(after / dilution));
        let is_large = |change: f64| change.abs() >= thresholds.min_change;
        if before.max(after) < thresholds.min_share
            || !is_large(plain)
            || !is_large(relative)
            || (plain < 0.0) != (relative < 0.0)
        {
            continue;
        }
        let mut corrected = values.to_vec();
        for value in corrected.iter_mut().skip(split) {
            *value /= dilution;
        }
        let p_value = test.p_value(values).max(test.p_value(&corrected)) * tests;
        if p_value <= thresholds.error_rate {
            changes.push(Change {
                function: column.name.clone(),
                part: *part,
                before,
                after,
                p_value,
            });
        }
    }
    changes.sort_by(|a, b| {
        let order = a.p_value.total_cmp(&b.p_value);
        order.then_with(|| (&a.function, a.part).cmp(&(&b.function, b.part)))
    });
    changes
}

/// Returns the shares by function. A function that a window lacks has no share there, and is left
/// out if it could have had `unknown` or more.
fn columns(before: &[&Shares], after: &[&Shares], unknown: f64) -> Vec<Column> {
    let windows = || before.iter().chain(after);
    let count = windows().count();
    let mut columns: Vec<Column> = Vec::new();
    let mut by_name: HashMap<&str, usize, RandomState> = HashMap::default();
    for (window, shares) in windows().enumerate() {
        for share in &shares.functions {
            let next = columns.len();
            let at = *by_name.entry(&share.name).or_insert(next);
            if at == next {
                columns.push(Column {
                    name: share.name.clone(),
                    own: vec![f64::NAN; count],
                    total: vec![f64::NAN; count],
                });
            }
            if let Some(column) = columns.get_mut(at) {
                column.own[window] = share.own.into();
                column.total[window] = share.total.into();
            }
        }
    }
    columns.retain_mut(|column| {
        let absent = windows()
            .zip(&column.total)
            .filter(|(_, share)| share.is_nan());
        let is_known = absent
            .map(|(shares, _)| f64::from(shares.cut))
            .all(|cut| cut < unknown);
        for value in column.own.iter_mut().chain(&mut column.total) {
            if value.is_nan() {
                *value = 0.0;
            }
        }
        is_known
    });
    columns
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    if values.len() < LEAST_FOR_MEDIAN {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}
