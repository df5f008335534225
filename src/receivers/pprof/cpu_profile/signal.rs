//! The signal handler that copies what a thread was doing, and the timer behind it.

#![allow(
    unsafe_code,
    reason = "signals and timers have no other interface; the handler touches nothing but atomics, its slot and errno, \
              and lets the kernel copy the stack, which fails where memory is not mapped instead of crashing"
)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};

use libc::{c_int, c_void, iovec, siginfo_t, ucontext_t};

/// Registers of a thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// Arm: where the function returns to.
    #[cfg(target_arch = "aarch64")]
    pub(super) lr: u64,
}

/// Samples are taken while this lives.
#[derive(Debug)]
pub(super) struct Sampling(());

/// Whether there is one.
static RUNNING: AtomicBool = AtomicBool::new(false);

impl Sampling {
    /// Sets up the handler and the timer.
    pub(super) fn start(frequency: u32) -> io::Result<Self> {
        if RUNNING.swap(true, AcqRel) {
            return Err(io::Error::other("the process is being profiled already"));
        }
        // From here on dropping it undoes everything.
        let sampling = Sampling(());
        LOST.store(0, Relaxed);
        handle(
            on_tick as *const () as usize,
            libc::SA_SIGINFO | libc::SA_RESTART,
        )?;
        set_timer(1_000_000 / i64::from(frequency.max(1)))?;
        Ok(sampling)
    }

    /// Hands out what was copied since the last call, and returns how many samples were lost since.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Registers, &[u8])) -> u64 {
        for slot in &SLOTS {
            if slot.state.load(Acquire) != FULL {
                continue;
            }
            // SAFETY: the slot is full, so no handler writes to it before it is freed below; and `&mut self` of the only
            // `Sampling` exists, so there is no other reader.
            let sample = unsafe { &*slot.sample.get() };
            let stack = sample.stack.get(..sample.copied).unwrap_or_default();
            take(sample.registers, stack);
            slot.state.store(FREE, Release);
        }
        LOST.swap(0, Relaxed)
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        // Neither fails with these arguments. A signal that is under way already is ignored: by default it would end
        // the process.
        let _stopped = set_timer(0);
        let _ignored = handle(libc::SIG_IGN, 0);
        for slot in &SLOTS {
            let _freed = slot.state.compare_exchange(FULL, FREE, AcqRel, Relaxed);
        }
        RUNNING.store(false, Release);
    }
}

/// Room for a sample.
struct Slot {
    state: AtomicU8,
    sample: UnsafeCell<Sample>,
}

struct Sample {
    registers: Registers,
    copied: usize,
    stack: [u8; STACK],
}

// SAFETY: who changes `state` from FREE to WRITING owns `sample` until it is FULL; then the one reader does until it is
// FREE again.
unsafe impl Sync for Slot {}

const FREE: u8 = 0;
const WRITING: u8 = 1;
const FULL: u8 = 2;

/// Bytes copied from a stack, starting at the innermost frame.
const STACK: usize = 32 << 10;
/// As many samples as a tenth of a second has, with 13 busy cores and 99 Hz. They take 4 MiB once they have been used.
const ROOM: usize = 128;
const PAGE: usize = 4096;

static SLOTS: [Slot; ROOM] = [const {
    Slot {
        state: AtomicU8::new(FREE),
        sample: UnsafeCell::new(Sample {
            registers: NO_REGISTERS,
            copied: 0,
            stack: [0; STACK],
        }),
    }
}; ROOM];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

const NO_REGISTERS: Registers = Registers {
    pc: 0,
    sp: 0,
    fp: 0,
    #[cfg(target_arch = "aarch64")]
    lr: 0,
};

/// Runs in whichever thread used the CPU. Everything it calls is async-signal-safe.
extern "C" fn on_tick(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `ucontext_t` to handlers with SA_SIGINFO.
    let registers = registers(unsafe { &*context.cast::<ucontext_t>() });
    let slot = SLOTS.get(NEXT.fetch_add(1, Relaxed) % ROOM);
    let free = |slot: &&Slot| {
        let owned = slot.state.compare_exchange(FREE, WRITING, Acquire, Relaxed);
        owned.is_ok()
    };
    let Some(slot) = slot.filter(free) else {
        LOST.fetch_add(1, Relaxed);
        return;
    };
    // SAFETY: the slot is this handler's while it is WRITING.
    let sample = unsafe { &mut *slot.sample.get() };
    sample.registers = registers;
    sample.copied = copy(registers.sp, &mut sample.stack);
    slot.state.store(FULL, Release);
}

/// Copies memory from this address on, as far as there is any; returns how much.
fn copy(from: u64, to: &mut [u8; STACK]) -> usize {
    let Ok(from) = usize::try_from(from) else {
        return 0;
    };
    // One piece for each page: the kernel copies whole pieces or nothing of them.
    let mut pieces = [const {
        iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        }
    }; STACK / PAGE + 1];
    let (mut at, mut left) = (from, STACK);
    for piece in &mut pieces {
        let len = (PAGE - at % PAGE).min(left);
        piece.iov_base = ptr::without_provenance_mut(at);
        piece.iov_len = len;
        (at, left) = (at.wrapping_add(len), left - len);
    }
    let into = iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: STACK,
    };
    // SAFETY: errno is this thread's own; it is put back so that the code that was interrupted finds it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: `into` and `pieces` are valid for the call, `to` has as many bytes as `into` says, and addresses that
    // cannot be read are the kernel's to notice. getpid and this are system calls and nothing else.
    let copied = unsafe {
        let count = pieces.len() as libc::c_ulong;
        libc::process_vm_readv(
            libc::getpid(),
            &raw const into,
            1,
            pieces.as_ptr(),
            count,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *errno = before };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &ucontext_t) -> Registers {
    let register = |at: c_int| {
        let at = usize::try_from(at).unwrap_or_default();
        let value = context.uc_mcontext.gregs.get(at);
        value.map_or(0, |value| value.cast_unsigned())
    };
    Registers {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &ucontext_t) -> Registers {
    let registers = &context.uc_mcontext;
    Registers {
        pc: registers.pc,
        sp: registers.sp,
        fp: registers.regs.get(29).copied().unwrap_or(0),
        lr: registers.regs.get(30).copied().unwrap_or(0),
    }
}

fn handle(handler: usize, flags: c_int) -> io::Result<()> {
    // SAFETY: zeros are a valid `sigaction`: no handler, no flags, no signals blocked.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: `action` is valid for the call, and its handler for ever.
    let set = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Microseconds of CPU time between two signals; 0 for none.
fn set_timer(micros: i64) -> io::Result<()> {
    let every = libc::timeval {
        tv_sec: micros / 1_000_000,
        tv_usec: micros % 1_000_000,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: `timer` is valid for the call.
    let set = unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
