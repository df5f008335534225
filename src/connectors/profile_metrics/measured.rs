//! Sums of a request of profiles.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::kinds::Quantity;

#[derive(Debug)]
pub(super) struct Measured {
    /// The retained attributes of the resource.
    pub(super) retained: Vec<u8>,
    pub(super) service: Vec<u8>,
    /// Hash of the whole resource: the resource may be large, and each of its profiles and series
    /// refers to it.
    pub(super) instance: Vec<u8>,
    pub(super) received: Received,
    pub(super) profiles: Vec<Measurement>,
    /// Sample types, with their units, of profiles without a matching metric.
    pub(super) unknown: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) profiles: u64,
    pub(super) samples: u64,
    /// Frames in the stacks of the samples that have a function name.
    pub(super) named: u64,
    /// Frames without a function name.
    pub(super) unnamed: u64,
}

impl Received {
    pub(super) fn add(&mut self, more: Received) {
        self.profiles += more.profiles;
        self.samples += more.samples;
        self.named += more.named;
        self.unnamed += more.unnamed;
    }
}

#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) kind: Quantity,
    /// Name of the profile at its source, if known.
    pub(super) source: Option<Arc<str>>,
    /// Start of the profile in nanoseconds since 1970; 0 if not known.
    pub(super) time: u64,
    /// Identity of the series of a cumulative profile: equal to that of the previous profile.
    pub(super) series: Option<Vec<u8>>,
    pub(super) values: Counted,
}

/// Values of a profile in nanoseconds, bytes or counts. Nearly all are added up and dropped at
/// once, so all names share one allocation.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) total: i128,
    names: String,
    /// Values of each function, with the end of its name in `names`.
    functions: Vec<(usize, Function)>,
}

impl Counted {
    /// Creates a value without functions.
    pub(super) fn new(total: i128) -> Self {
        Counted {
            total,
            ..Counted::default()
        }
    }

    /// Adds the values of a function, which may occur several times.
    pub(super) fn push(&mut self, name: &str, function: Function) {
        self.names.push_str(name);
        self.functions.push((self.names.len(), function));
    }

    /// Returns the values of functions, unordered. A name may occur several times; its values add
    /// up.
    pub(super) fn functions(&self) -> impl Iterator<Item = (&str, Function)> {
        let mut start = 0;
        self.functions.iter().map(move |(end, function)| {
            let name = self.names.get(start..*end).unwrap_or_default();
            start = *end;
            (name, *function)
        })
    }

    /// Returns the approximate memory size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.names.len() + self.functions.len() * size_of::<(usize, Function)>()
    }
}

/// Sum of the values of several profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) total: i128,
    pub(super) functions: HashMap<Arc<str>, Function, RandomState>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Function {
    /// Value of the function itself.
    pub(super) own: i128,
    /// Value of the function and its callees, counted once per stack.
    pub(super) total: i128,
}

/// Upper limit of values, so that sums cannot overflow. In nanoseconds the limit is a few times the
/// age of the universe.
pub(super) const LARGEST: i128 = 1 << 90;

/// Memory of a function's entry, besides its name.
const FUNCTION_BYTES: usize = 96;

impl Values {
    /// Adds the values of a profile. Returns the growth in bytes.
    pub(super) fn add(&mut self, more: &Counted) -> usize {
        self.total += more.total;
        let mut grown = 0;
        for (name, value) in more.functions() {
            match self.functions.get_mut(name) {
                Some(function) => {
                    function.own += value.own;
                    function.total += value.total;
                }
                None => {
                    grown += name.len() + FUNCTION_BYTES;
                    self.functions.insert(name.into(), value);
                }
            }
        }
        grown
    }

    /// Returns the approximate memory size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let names = self.functions.keys().map(|name| name.len());
        names.sum::<usize>() + self.functions.len() * FUNCTION_BYTES
    }
}
