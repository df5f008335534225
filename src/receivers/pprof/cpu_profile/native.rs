//! From what the signal handler copied to stacks.

use std::io;

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder, UnwinderNative};

use super::binaries::{self, Binary};
use super::signal::{Registers, Sampling};
use super::{MOST_STACKS, Mapped, Stacks};

/// Takes samples while it lives; there is no other one meanwhile.
pub struct Profiler {
    sampling: Sampling,
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    mapped: Vec<Mapped>,
}

impl Profiler {
    /// Begins to take so many samples for each second of CPU time.
    ///
    /// # Errors
    /// When there is another one, or the system does not allow it.
    pub fn start(frequency: u32) -> io::Result<Self> {
        let mut unwinder = UnwinderNative::new();
        let mut mapped = Vec::new();
        for Binary { code, module } in binaries::of_this_process()? {
            mapped.extend(code);
            if let Some(module) = module {
                unwinder.add_module(module);
            }
        }
        Ok(Profiler {
            sampling: Sampling::start(frequency)?,
            unwinder,
            cache: CacheNative::new(),
            mapped,
        })
    }

    /// Adds what was sampled since the last call. It must be called about ten times a second: there is room for 128
    /// samples. Returns how many were lost since, for that or because there were too many different stacks.
    pub fn collect(&mut self, stacks: &mut Stacks) -> u64 {
        let (unwinder, cache) = (&self.unwinder, &mut self.cache);
        let mut unkept = 0;
        let lost = self.sampling.drain(|registers, memory| {
            let stack = unwind(unwinder, cache, registers, memory);
            if stacks.len() >= MOST_STACKS && !stacks.contains_key(&stack) {
                unkept += 1;
            } else {
                *stacks.entry(stack).or_default() += 1;
            }
        });
        lost + unkept
    }

    /// The code in memory when this began, that of the program itself first.
    pub fn mapped(&self) -> &[Mapped] {
        &self.mapped
    }
}

/// The addresses of a stack, as far as they can be followed. Those of callers are the last byte of the call.
fn unwind(
    unwinder: &UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: &mut CacheNative<MayAllocateDuringUnwind>,
    registers: Registers,
    memory: &[u8],
) -> Vec<u64> {
    let mut read = |address: u64| {
        let at = address.checked_sub(registers.sp).ok_or(())?;
        let at = usize::try_from(at).map_err(|_| ())?;
        let word = memory.get(at..).and_then(<[u8]>::first_chunk);
        word.map(|word| u64::from_le_bytes(*word)).ok_or(())
    };
    #[cfg(target_arch = "x86_64")]
    let start = UnwindRegsNative::new(registers.pc, registers.sp, registers.fp);
    #[cfg(target_arch = "aarch64")]
    let start = UnwindRegsNative::new(registers.lr, registers.sp, registers.fp);
    let mut frames = unwinder.iter_frames(registers.pc, start, cache, &mut read);
    let mut stack = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        stack.push(frame.address_for_lookup());
        if stack.len() == DEEPEST {
            break;
        }
    }
    stack
}

/// Frames of a stack; there are no more in what is copied of it, mostly.
const DEEPEST: usize = 256;

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::*;

    #[inline(never)]
    fn burn(until: Instant) -> u64 {
        let mut sum = 0u64;
        while Instant::now() < until {
            for at in 0..10_000u64 {
                sum = black_box(sum.wrapping_mul(31).wrapping_add(at));
            }
        }
        sum
    }

    #[inline(never)]
    fn burn_below(until: Instant) -> u64 {
        black_box(burn(until)) + 1
    }

    #[test]
    fn what_uses_the_cpu_is_in_the_stacks_with_who_called_it() {
        let mut profiler = Profiler::start(500).unwrap();
        assert!(Profiler::start(500).is_err(), "there is one already");
        let mut stacks = Stacks::new();
        let within = |address: u64, function: fn(Instant) -> u64| {
            let start = function as usize as u64;
            (start..start + 4096).contains(&address)
        };
        let seen = |stacks: &Stacks| {
            stacks.keys().any(|stack| {
                let caller = stack.iter().position(|at| within(*at, burn_below));
                caller.is_some_and(|at| at > 0 && stack.len() > at + 3)
            })
        };
        // As much CPU time as it takes: the machine may be busy with something else.
        let started = Instant::now();
        while !seen(&stacks) && started.elapsed() < Duration::from_secs(60) {
            black_box(burn_below(Instant::now() + Duration::from_millis(50)));
            profiler.collect(&mut stacks);
        }
        assert!(seen(&stacks));
        let program = &profiler.mapped()[0];
        let own = burn as fn(Instant) -> u64 as usize as u64;
        assert!((program.start..program.limit).contains(&own), "{program:?}");
        drop(profiler);
        // The next one can begin.
        drop(Profiler::start(10).unwrap());
    }
}
