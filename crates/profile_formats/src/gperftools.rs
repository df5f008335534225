//! CPU profiles of gperftools: words of the program's size and byte order, then the memory map as text.
//!
//! The format is described in `docs/cpuprofile-fileformat.html` of gperftools. As in pprof, addresses of callers become
//! addresses of calls, and frames of the signal handler are removed.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tributary_profiles::id::AttributeSetId;

use crate::builder::Builder;
use crate::error::Fault;
use crate::maps::Maps;

/// Size and byte order of the words of a file.
#[derive(Debug, Clone, Copy)]
struct Words {
    width: usize,
    big_endian: bool,
}

impl Words {
    const ALL: [Words; 4] = [
        Words {
            width: 4,
            big_endian: false,
        },
        Words {
            width: 4,
            big_endian: true,
        },
        Words {
            width: 8,
            big_endian: false,
        },
        Words {
            width: 8,
            big_endian: true,
        },
    ];

    fn get(self, bytes: &[u8], index: usize) -> Option<u64> {
        let start = index.checked_mul(self.width)?;
        let word = bytes.get(start..start.checked_add(self.width)?)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(match self.big_endian {
            true => word.iter().fold(0, add),
            false => word.iter().rev().fold(0, add),
        })
    }

    /// Returns the words of a file, with its sampling period in microseconds.
    fn of(bytes: &[u8]) -> Option<(Words, u64)> {
        Words::ALL.into_iter().find_map(|words| {
            let word = |index| words.get(bytes, index);
            let is = (word(0)?, word(1)?, word(2)?, word(4)?) == (0, 3, 0, 0);
            let period = word(3).filter(|period| (1..=MOST_PERIOD).contains(period));
            period.filter(|_| is).map(|period| (words, period))
        })
    }
}

/// Maximum sampling period in microseconds: an hour.
const MOST_PERIOD: u64 = 3_600_000_000;
/// Number of words of the header.
const HEADER: usize = 5;
/// Memory of a stack while the file is read, in bytes, besides its addresses.
const STACK: usize = 128;

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    Words::of(bytes).is_some()
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let (words, period) =
        Words::of(bytes).ok_or_else(|| Fault::byte(0, "the header is missing"))?;
    let period = i64::try_from(period).unwrap_or_default() * 1000;
    let mut stacks: Vec<(i64, Vec<u64>)> = Vec::new();
    let mut at = HEADER;
    let end = loop {
        let start = at * words.width;
        let fault = |problem: &str| Fault::byte(start, problem);
        let (Some(count), Some(depth)) = (words.get(bytes, at), words.get(bytes, at + 1)) else {
            return Err(fault(
                "the record of the end is missing; the file is truncated",
            ));
        };
        let left = bytes.len() / words.width - at - 2;
        let depth = usize::try_from(depth).ok().filter(|depth| *depth <= left);
        let depth = depth.ok_or_else(|| fault("a stack is longer than the rest of the file"))?;
        let first = at + 2;
        let addresses = (first..first + depth).map_while(|at| words.get(bytes, at));
        at = first + depth;
        if count == 0 && depth == 1 {
            break at * words.width;
        }
        builder.grow(STACK + depth * size_of::<u64>())?;
        let count = i64::try_from(count).map_err(|_| fault("a count exceeds 63 bits"))?;
        stacks.push((count, addresses.collect()));
    };
    let mut maps = Maps::read(bytes.get(end..).unwrap_or_default(), builder)?;
    for _ in 0..2 {
        remove_handler(&mut stacks);
    }
    let columns = [
        builder.sample_type("samples", "count")?,
        builder.sample_type("cpu", "nanoseconds")?,
    ];
    builder.period("cpu", "nanoseconds", period);
    let mut locations = Vec::new();
    for (count, mut addresses) in stacks {
        // The handler may note the interrupted instruction twice: from the signal and from the stack.
        if let [leaf, second, ..] = addresses.as_slice()
            && leaf == second
        {
            addresses.remove(1);
        }
        maps.stack(builder, &addresses, false, &mut locations)?;
        let values = [
            (columns[0], count),
            (columns[1], count.saturating_mul(period)),
        ];
        builder.sample(&locations, AttributeSetId::default(), &values)?;
    }
    Ok(())
}

/// Removes the second frame of all stacks if nearly all stacks have the same one: it belongs to the signal handler.
fn remove_handler(stacks: &mut [(i64, Vec<u64>)]) {
    /// Divisor of the number of stacks: the largest share that may have another second frame.
    const ALIKE: usize = 32;
    let mut counts: HashMap<u64, usize, RandomState> = HashMap::default();
    for (_, addresses) in &*stacks {
        if let Some(second) = addresses.get(1) {
            *counts.entry(*second).or_default() += 1;
        }
    }
    let least = stacks.len() - stacks.len() / ALIKE;
    let Some((handler, _)) = counts.into_iter().find(|(_, count)| *count >= least) else {
        return;
    };
    for (_, addresses) in stacks {
        if addresses.get(1) == Some(&handler) {
            addresses.remove(1);
        }
    }
}
