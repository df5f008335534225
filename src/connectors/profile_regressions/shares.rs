//! Sums of a window by function, and their shares of the total.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Values of a function: its own, and those including callees.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FunctionSum {
    pub(super) own: f64,
    pub(super) total: f64,
}

/// Sums over the profiles of a window.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    pub(super) total: f64,
    pub(super) samples: u64,
    pub(super) functions: HashMap<Arc<str>, FunctionSum, RandomState>,
}

/// Memory of a function in [`Sums`], besides its name.
pub(super) const SUM_BYTES: usize = 80;

impl Sums {
    pub(super) fn add(&mut self, name: &str, more: FunctionSum) {
        match self.functions.get_mut(name) {
            Some(sum) => {
                sum.own += more.own;
                sum.total += more.total;
            }
            None => {
                self.functions.insert(name.into(), more);
            }
        }
    }

    /// Adds the sums of other profiles.
    pub(super) fn add_all(&mut self, more: &Sums) {
        self.total += more.total;
        self.samples += more.samples;
        for (name, more) in &more.functions {
            let sum = self.functions.entry(name.clone()).or_default();
            sum.own += more.own;
            sum.total += more.total;
        }
    }
}

/// Shares of a function in the total of a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Share {
    pub(super) name: Arc<str>,
    pub(super) own: f32,
    pub(super) total: f32,
}

/// Shares of the heaviest functions in a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shares {
    /// Start and end of the window, in milliseconds since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Largest share of a function that is left out.
    pub(super) cut: f32,
    pub(super) functions: Box<[Share]>,
}

/// Names of functions that the windows of a series share.
pub(super) type Names = HashSet<Arc<str>, RandomState>;

/// Memory of a name, besides its text, and of a window, besides its functions.
const NAME_BYTES: usize = 48;
const WINDOW_BYTES: usize = 64;

impl Shares {
    /// Returns the shares of at most `most` functions with at least `least` of the total; `None`
    /// without a total.
    pub(super) fn of(
        sums: &Sums,
        (start, end): (u64, u64),
        most: usize,
        least: f32,
    ) -> Option<Self> {
        if sums.total <= 0.0 {
            return None;
        }
        let share = |value: f64| (value / sums.total).clamp(0.0, 1.0) as f32;
        let mut cut: f32 = 0.0;
        let mut functions = Vec::new();
        for (name, sum) in &sums.functions {
            let total = share(sum.total);
            if total < least {
                cut = cut.max(total);
                continue;
            }
            functions.push(Share {
                name: name.clone(),
                own: share(sum.own),
                total,
            });
        }
        functions.sort_unstable_by(|a, b| {
            b.total
                .total_cmp(&a.total)
                .then_with(|| a.name.cmp(&b.name))
        });
        if let Some(first) = functions.get(most) {
            cut = cut.max(first.total);
            functions.truncate(most);
        }
        Some(Shares {
            start,
            end,
            cut,
            functions: functions.into(),
        })
    }

    /// Replaces the names by those that the series already has.
    pub(super) fn intern(&mut self, names: &mut Names) {
        for share in &mut self.functions {
            match names.get(&share.name) {
                Some(known) => share.name = known.clone(),
                None => {
                    // A copy: only names in the windows of the series share it.
                    share.name = Arc::from(&*share.name);
                    names.insert(share.name.clone());
                }
            }
        }
    }

    /// Returns the approximate memory without names, in bytes.
    pub(super) fn bytes(&self) -> usize {
        WINDOW_BYTES + self.functions.len() * size_of::<Share>()
    }
}

/// Returns the approximate memory of an interned name, in bytes.
pub(super) fn name_bytes(name: &str) -> usize {
    NAME_BYTES + name.len()
}
