//! Compares two measurements by function.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::top::Top;

/// Two measurements of one sample type, side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// Sums of all values.
    pub total: Change,
    /// Functions of both measurements.
    pub rows: Vec<DiffRow>,
}

/// A function in both measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffRow {
    /// Name, as in [`Top`]; functions with the same name are one row.
    pub name: String,
    /// Value of the function itself.
    pub flat: Change,
    /// Value of the function and its callees.
    pub cumulative: Change,
}

/// A value in both measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// Value in the first measurement.
    pub before: f64,
    /// Value in the second measurement.
    pub after: f64,
}

/// Factors that make two measurements comparable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// Factor for values of the first measurement.
    pub before: f64,
    /// Factor for values of the second measurement.
    pub after: f64,
}

impl Scales {
    /// Changes the factor of the first measurement so that both totals are equal and only shares count. Unchanged
    /// if a total is 0.
    pub fn normalized(self, before: &Top, after: &Top) -> Self {
        let total = |top: &Top, scale: f64| top.total as f64 * scale;
        let (first, second) = (total(before, self.before), total(after, self.after));
        if first == 0.0 || second == 0.0 {
            return self;
        }
        Scales {
            before: self.before * second / first,
            ..self
        }
    }
}

impl Change {
    /// Returns the increase of the value; negative if it decreased.
    pub fn difference(self) -> f64 {
        self.after - self.before
    }

    /// Returns the increase relative to the first value; infinite if the first value is 0.
    pub fn growth(self) -> f64 {
        match self.difference() {
            0.0 => 0.0,
            difference => difference / self.before.abs(),
        }
    }

    /// Returns the larger share of the value in the respective total.
    pub fn share(self, total: Change) -> f64 {
        let part = |value: f64, total: f64| match total {
            0.0 => 0.0,
            total => (value / total).abs(),
        };
        part(self.before, total.before).max(part(self.after, total.after))
    }
}

/// Compares two measurements. The rows are in no order.
pub fn diff(before: &Top, after: &Top, scales: Scales) -> Diff {
    let mut rows: Vec<DiffRow> = Vec::with_capacity(before.rows.len().max(after.rows.len()));
    let mut by_name: HashMap<&str, usize, RandomState> = HashMap::default();
    let sides = [
        (before, scales.before, first as fn(&mut Change) -> &mut f64),
        (after, scales.after, second),
    ];
    for (top, scale, side) in sides {
        for row in &top.rows {
            let next = rows.len();
            let at = *by_name.entry(row.name.as_str()).or_insert(next);
            if at == next {
                rows.push(DiffRow {
                    name: row.name.clone(),
                    flat: Change::default(),
                    cumulative: Change::default(),
                });
            }
            if let Some(found) = rows.get_mut(at) {
                *side(&mut found.flat) += row.flat as f64 * scale;
                *side(&mut found.cumulative) += row.cumulative as f64 * scale;
            }
        }
    }
    Diff {
        total: Change {
            before: before.total as f64 * scales.before,
            after: after.total as f64 * scales.after,
        },
        rows,
    }
}

fn first(change: &mut Change) -> &mut f64 {
    &mut change.before
}

fn second(change: &mut Change) -> &mut f64 {
    &mut change.after
}

#[cfg(test)]
mod tests {
    use super::super::frames::Selection;
    use super::super::{folded, top};
    use super::*;

    fn measured(text: &str) -> Top {
        let profiles = folded::read(text).unwrap();
        let kind = top::sample_type(&profiles, None).unwrap();
        top::top(&profiles, kind, &Selection::default())
    }

    const AS_THEY_ARE: Scales = Scales {
        before: 1.0,
        after: 1.0,
    };

    fn row(diff: &Diff, name: &str) -> (Change, Change) {
        let row = diff.rows.iter().find(|row| row.name == name).unwrap();
        (row.flat, row.cumulative)
    }

    fn change(before: f64, after: f64) -> Change {
        Change { before, after }
    }

    #[test]
    fn diff_pairs_functions_of_both_sides() {
        let before = measured("main;work 8\nmain;gone 2\n");
        let after = measured("main;work 12\nmain;new 1\n");
        let diff = diff(&before, &after, AS_THEY_ARE);
        assert_eq!(diff.total, change(10.0, 13.0));
        assert_eq!(row(&diff, "work"), (change(8.0, 12.0), change(8.0, 12.0)));
        assert_eq!(row(&diff, "main"), (change(0.0, 0.0), change(10.0, 13.0)));
        assert_eq!(row(&diff, "gone").0, change(2.0, 0.0));
        assert_eq!(row(&diff, "new").0, change(0.0, 1.0));
        assert_eq!(diff.rows.len(), 4);
    }

    #[test]
    fn growth_is_relative_and_infinite_from_zero() {
        assert_eq!(change(8.0, 12.0).growth(), 0.5);
        assert_eq!(change(8.0, 0.0).growth(), -1.0);
        assert_eq!(change(0.0, 1.0).growth(), f64::INFINITY);
        assert_eq!(change(0.0, 0.0).growth(), 0.0);
    }

    #[test]
    fn normalized_totals_are_equal_and_only_shares_differ() {
        let before = measured("main;a 1\nmain;b 1\n");
        let after = measured("main;a 30\nmain;b 10\n");
        let diff = diff(&before, &after, AS_THEY_ARE.normalized(&before, &after));
        assert_eq!(diff.total, change(40.0, 40.0));
        assert_eq!(row(&diff, "a").0, change(20.0, 30.0));
        let none = measured("");
        assert_eq!(AS_THEY_ARE.normalized(&before, &none), AS_THEY_ARE);
    }

    #[test]
    fn share_is_the_larger_of_both() {
        let total = change(100.0, 200.0);
        assert_eq!(change(10.0, 10.0).share(total), 0.1);
        assert_eq!(change(0.0, 50.0).share(total), 0.25);
        assert_eq!(change(0.0, 0.0).share(change(0.0, 0.0)), 0.0);
    }
}
