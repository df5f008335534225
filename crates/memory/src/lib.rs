//! The process-wide memory budget, in bytes.
//!
//! Every batch of telemetry in memory is covered by a [`Permit`]. A receiver takes the permit as it reads a request,
//! and the permit travels with the data.
//!
//! # Invariants
//!
//! * The bytes of all permits never exceed the limit, except for one record per stored queue (see [`StoredQueue`]).
//! * Taking a permit never waits. A component without a permit refuses the data.
//! * Up to a quarter of the limit is reserved for the read-ahead of stored queues, so that they can drain under load.
//! * Memory of clients without permits, such as open connections, is counted in [`clients`].
//!
//! # Example
//!
//! ```
//! use tributary_memory::Budget;
//!
//! let budget = Budget::new(1 << 20);
//! let mut request = budget.acquire(600 << 10)?;
//! assert!(budget.acquire(600 << 10).is_err());
//! request.resize(100 << 10)?;
//! assert!(budget.acquire(600 << 10).is_ok());
//! drop(request);
//! assert_eq!(budget.used(), 0);
//! # Ok::<(), tributary_memory::NoRoom>(())
//! ```
//!
//! # Where to start reading
//!
//! [`Budget::acquire`] and [`Permit`], then [`Budget::begin`] for requests that are still arriving.

pub mod clients;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use self::clients::ClientMemory;

use smallvec::SmallVec;

/// The memory budget of the process. Code that is about to hold telemetry takes a [`Permit`] first.
///
/// Taking a permit never waits: a receiver without a permit refuses the request, which is cheaper than holding the
/// connection.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    /// Whether the limit was set explicitly, as opposed to the default.
    is_explicit: AtomicBool,
    used: AtomicUsize,
    /// Bytes of `used` for requests that have not arrived completely.
    unfinished: AtomicUsize,
    /// Memory that clients use beside `used`.
    pub clients: ClientMemory,
    stored_queues: AtomicUsize,
    /// Bytes of `used` that stored queues have read from disk.
    read_ahead: AtomicUsize,
}

/// Share of the budget that is reserved for the read-ahead of all stored queues: one part in this many.
const READ_AHEAD_SHARE: usize = 4;
/// Maximum read-ahead of one stored queue, in bytes, regardless of the budget.
const LARGEST_READ_AHEAD: usize = 16 << 20;

/// Permits that several batches share together with their bytes.
pub type Permits = SmallVec<[Arc<Permit>; 1]>;

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Budget {
            limit: AtomicUsize::new(limit),
            is_explicit: AtomicBool::new(false),
            used: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            clients: ClientMemory::default(),
            stored_queues: AtomicUsize::new(0),
            read_ahead: AtomicUsize::new(0),
        })
    }

    /// Takes a permit for `bytes`, unless that would exceed the limit.
    pub fn acquire(self: &Arc<Self>, bytes: usize) -> Result<Permit, NoRoom> {
        let mut permit = self.empty_permit();
        permit.grow(bytes).map(|()| permit)
    }

    /// Returns an empty permit, to be grown later.
    pub fn empty_permit(self: &Arc<Self>) -> Permit {
        Permit {
            budget: self.clone(),
            bytes: 0,
            usage: Use::Requests,
        }
    }

    /// Registers a stored queue. Its read-ahead is reserved from now on.
    pub fn stored_queue(self: &Arc<Self>) -> StoredQueue {
        self.stored_queues.fetch_add(1, Relaxed);
        StoredQueue(self.clone())
    }

    /// Returns the free bytes that are reserved for stored queues.
    fn reserved(&self) -> usize {
        let queues = self.stored_queues.load(Relaxed);
        let reserve =
            (self.limit() / READ_AHEAD_SHARE).min(queues.saturating_mul(LARGEST_READ_AHEAD));
        let reserve = if queues == 0 { 0 } else { reserve };
        reserve.saturating_sub(self.read_ahead.load(Relaxed))
    }

    /// Returns an empty permit that may grow beyond the limit, into the [`reserve`](Self::reserve). For the
    /// output of a component whose input is counted already: if requests took all of the budget, no output
    /// could be encoded, and no request would end.
    pub fn for_output(self: &Arc<Self>) -> Permit {
        Permit {
            budget: self.clone(),
            bytes: 0,
            usage: Use::Output,
        }
    }

    /// Returns the bytes beyond the limit that outputs may take: an eighth of the limit, and at least 8 MiB.
    pub fn reserve(&self) -> usize {
        (self.limit() / 8).max(LEAST_RESERVE)
    }

    /// Returns a permit that grows with a request as it arrives. `share` is that of its connection.
    ///
    /// Two rules keep slow and stalled senders from blocking the others. Beyond its first 64 KiB, an unfinished request
    /// gets memory only while all unfinished requests together hold less than half of the budget. The other half stays
    /// free for small and complete requests. All unfinished requests of one connection together get a quarter. Neither
    /// rule applies to the only unfinished request, because otherwise a small budget could never accept a large
    /// request.
    pub fn begin<'s>(self: &Arc<Self>, share: &'s UnfinishedShare) -> UnfinishedPermit<'s> {
        UnfinishedPermit {
            permit: self.empty_permit(),
            share,
        }
    }

    /// Checks that `bytes` would fit now, without taking them.
    pub fn has_room(&self, bytes: usize) -> Result<(), NoRoom> {
        let limit = self.limit() - self.reserved();
        if self.used().saturating_add(bytes) <= self.available(limit) {
            return Ok(());
        }
        Err(NoRoom {
            needed: bytes,
            limit,
        })
    }

    /// Whether less than a quarter of the unreserved limit is free.
    pub fn is_scarce(&self) -> bool {
        let limit = self.limit() - self.reserved();
        self.used() > limit - limit / 4
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Resets the limit to a default, which the next [`set_limit`](Self::set_limit) replaces. Existing permits stay
    /// valid.
    pub fn reset_limit(&self, default: usize) {
        self.is_explicit.store(false, Relaxed);
        self.limit.store(default, Relaxed);
    }

    /// Sets the limit explicitly. The first call replaces the default; of several calls, the smallest limit counts.
    pub fn set_limit(&self, bytes: usize) {
        if self.is_explicit.swap(true, Relaxed) {
            self.limit.fetch_min(bytes, Relaxed);
        } else {
            self.limit.store(bytes, Relaxed);
        }
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Returns the part of `limit` that permits may take now. Memory of clients beside the permits counts as far as it
    /// exceeds [`ALLOWANCE`].
    fn available(&self, limit: usize) -> usize {
        limit.saturating_sub(self.clients.bytes().saturating_sub(ALLOWANCE))
    }

    /// Returns the limit of all permits together when a permit for `usage` grows.
    fn limit_of(&self, usage: Use) -> usize {
        match usage {
            Use::Output => self.limit().saturating_add(self.reserve()),
            Use::Requests | Use::ReadAhead => self.limit() - self.reserved(),
        }
    }

    fn take(&self, bytes: usize, usage: Use) -> bool {
        let limit = self.available(self.limit_of(usage));
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|total| *total <= limit)
            })
            .is_ok()
    }
}

/// Reason why a permit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget of {limit} bytes has no room for {needed} bytes")]
pub struct NoRoom {
    /// Requested size of the permit in bytes.
    pub needed: usize,
    /// Limit of the whole budget in bytes.
    pub limit: usize,
}

impl NoRoom {
    /// Whether the permit would fit into an empty budget.
    pub fn may_fit_later(&self) -> bool {
        self.needed <= self.limit
    }
}

/// The right to hold some bytes, released on drop.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
    usage: Use,
}

/// The purpose of the bytes of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Telemetry that arrived.
    Requests,
    /// Records that a stored queue has read from the disk.
    ReadAhead,
    /// The output of a component, which may take the reserve.
    Output,
}

impl Permit {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the budget that the permit was taken from.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The reserve for outputs of the budget: see [`Budget::reserve`].
    pub fn reserve(&self) -> usize {
        self.budget.reserve()
    }

    /// Takes another permit from the same budget.
    pub fn another(&self, bytes: usize) -> Result<Permit, NoRoom> {
        self.budget.acquire(bytes)
    }

    /// Grows by `more` bytes, or stays unchanged on error.
    pub fn grow(&mut self, more: usize) -> Result<(), NoRoom> {
        if !self.budget.take(more, self.usage) {
            return Err(NoRoom {
                needed: self.bytes.saturating_add(more),
                limit: self.budget.limit_of(self.usage),
            });
        }
        self.bytes += more;
        Ok(())
    }

    /// Changes the size to `bytes`, or stays unchanged on error.
    pub fn resize(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.shrink_to(bytes);
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Releases the bytes above `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(surplus) = self.bytes.checked_sub(bytes) {
            self.budget.used.fetch_sub(surplus, Relaxed);
            if self.usage == Use::ReadAhead {
                self.budget.read_ahead.fetch_sub(surplus, Relaxed);
            }
            self.bytes = bytes;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// An open stored queue. Its read-ahead is reserved until this is dropped.
#[derive(Debug)]
pub struct StoredQueue(Arc<Budget>);

impl StoredQueue {
    /// Returns the maximum bytes of records that the queue may have in memory: an equal part of the reserve of all
    /// stored queues.
    pub fn allowance(&self) -> usize {
        let queues = self.0.stored_queues.load(Relaxed).max(1);
        (self.0.limit() / READ_AHEAD_SHARE / queues).min(LARGEST_READ_AHEAD)
    }

    /// Takes a permit for a record that was read from disk. This never fails, because the queue respects its
    /// [`allowance`](Self::allowance), which is reserved. The queue may exceed the allowance by one record.
    pub fn read_ahead(&self, bytes: usize) -> Permit {
        self.0.used.fetch_add(bytes, Relaxed);
        self.0.read_ahead.fetch_add(bytes, Relaxed);
        Permit {
            budget: self.0.clone(),
            bytes,
            usage: Use::ReadAhead,
        }
    }
}

impl Drop for StoredQueue {
    fn drop(&mut self) {
        self.0.stored_queues.fetch_sub(1, Relaxed);
    }
}

/// Bytes that one connection holds for requests that have not arrived completely.
#[derive(Debug, Default)]
pub struct UnfinishedShare(AtomicUsize);

/// The permit of a request that is still arriving. See [`Budget::begin`].
#[derive(Debug)]
pub struct UnfinishedPermit<'s> {
    permit: Permit,
    share: &'s UnfinishedShare,
}

impl UnfinishedPermit<'_> {
    /// Grows by `more` bytes, or stays unchanged on error.
    pub fn grow(&mut self, more: usize) -> Result<(), NoRoom> {
        let budget = &*self.permit.budget;
        let (own, limit) = (self.permit.bytes, budget.limit());
        let needed = own.saturating_add(more);
        // Concurrent calls may exceed the share slightly. The budget itself is exact.
        let exceeds = |all: &AtomicUsize, share: usize| {
            let others = all.load(Relaxed).saturating_sub(own);
            others > 0 && others.saturating_add(needed) > share
        };
        let for_all = needed > SMALL && exceeds(&budget.unfinished, limit / 2);
        if for_all || exceeds(&self.share.0, limit / 4) {
            return Err(NoRoom { needed, limit });
        }
        self.permit.grow(more)?;
        self.permit.budget.unfinished.fetch_add(more, Relaxed);
        self.share.0.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Converts the permit of a complete request into an ordinary permit.
    pub fn finish(mut self) -> Permit {
        let nothing = self.permit.budget.empty_permit();
        self.leave();
        std::mem::replace(&mut self.permit, nothing)
    }

    fn leave(&self) {
        let own = self.permit.bytes;
        self.permit.budget.unfinished.fetch_sub(own, Relaxed);
        self.share.0.fetch_sub(own, Relaxed);
    }
}

impl Drop for UnfinishedPermit<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Bytes that clients may use beside the permits before the permits get less: half of the 48 MiB that the process may
/// use above the limit. The program itself uses the other half.
const ALLOWANCE: usize = 24 << 20;

/// Minimum reserve for outputs, in bytes: a request of the usual maximum size, 4 MiB, and as much for the
/// result.
const LEAST_RESERVE: usize = 8 << 20;

/// Bytes that an unfinished request may always take, from the half that is reserved for small requests.
const SMALL: usize = 64 << 10;

/// Returns the memory limit of this process's cgroup or, without a limit, the memory of the machine, in bytes. Falls
/// back to 1 GiB if neither can be read.
pub fn machine_memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_limit(Path::new("/sys/fs/cgroup"), &groups);
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let kib = text
                .strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()?;
            Some(kib * 1024)
        });
    cgroup.into_iter().chain(machine).min().unwrap_or(1 << 30)
}

/// Returns the lowest limit of the cgroups of a process, from the text of `/proc/self/cgroup`. A container sees its own
/// group as the root. A service of systemd is in a nested group, and the groups above it limit it too.
///
/// Without a limit, cgroup v1 reports a huge number and v2 the word `max`.
fn cgroup_limit(root: &Path, groups: &str) -> Option<u64> {
    let number = |path: &Path| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // The root is always included: in a container, the listed path may be the host's, which the container does not see.
    let lines = groups.lines().chain(["0::/", "0:memory:/"]);
    let limits = lines.filter_map(|line| {
        let (_, group) = line.split_once(':')?;
        let (controllers, path) = group.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = root.join(path.trim_start_matches('/'));
        let groups = group
            .ancestors()
            .take_while(|group| group.starts_with(&root));
        groups.filter_map(|group| number(&group.join(file))).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_limit_of_any_ancestor_counts() {
        let root = tempfile::tempdir().unwrap();
        let set = |file: &str, limit: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, limit).unwrap();
        };
        let limit = |groups: &str| cgroup_limit(root.path(), groups);
        let service = "0::/system.slice/tributary.service\n";
        assert_eq!(limit(service), None, "no groups at all");
        set("system.slice/tributary.service/memory.max", "1000\n");
        set("system.slice/memory.max", "max\n");
        assert_eq!(limit(service), Some(1000), "of the service itself");
        set("system.slice/memory.max", "900\n");
        assert_eq!(limit(service), Some(900), "of the slice that it is in");
        assert_eq!(limit("0::/user.slice\n"), None, "others do not count");
        // A container, with or without its own cgroup namespace.
        set("memory.max", "800\n");
        assert_eq!(limit("0::/\n"), Some(800));
        assert_eq!(limit("0::/kubepods/pod1/c1\n"), Some(800));
        assert_eq!(limit(""), Some(800));
        // Version 1, where each controller has its own tree.
        let groups = "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a\n1:name=systemd:/a\n0::/\n";
        set("memory/a/memory.limit_in_bytes", "700\n");
        set("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(groups), Some(700));
    }

    #[test]
    fn permits_never_exceed_the_limit_and_return_when_dropped() {
        let budget = Budget::new(100);
        let mut first = budget.acquire(60).unwrap();
        assert!(
            budget
                .acquire(41)
                .is_err_and(|no_room| no_room.may_fit_later())
        );
        assert!(
            first
                .grow(41)
                .is_err_and(|no_room| !no_room.may_fit_later())
        );
        first.grow(40).unwrap();
        assert_eq!(budget.used(), 100);
        first.resize(10).unwrap();
        assert_eq!(budget.used(), 10);
        assert!(first.resize(101).is_err());
        first.resize(30).unwrap();
        assert_eq!((first.bytes(), budget.used()), (30, 30));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn smallest_explicit_limit_replaces_the_default() {
        let budget = Budget::new(100);
        for (is_explicit, limit) in [(500, 500), (300, 300), (400, 300)] {
            budget.set_limit(is_explicit);
            assert_eq!(budget.limit(), limit);
        }
        budget.reset_limit(100);
        assert_eq!(budget.limit(), 100);
    }

    #[test]
    fn unfinished_requests_leave_half_of_the_budget() {
        const KIB: usize = 1 << 10;
        let budget = Budget::new(1024 * KIB);
        let shares: [UnfinishedShare; 4] = Default::default();
        let held: Vec<UnfinishedPermit> = shares
            .iter()
            .map(|share| {
                let mut request = budget.begin(share);
                request.grow(128 * KIB).unwrap();
                request
            })
            .collect();
        let newcomer = UnfinishedShare::default();
        let mut request = budget.begin(&newcomer);
        request.grow(64 * KIB).unwrap();
        assert!(request.grow(1).is_err_and(|why| why.may_fit_later()));
        let complete = budget.acquire(400 * KIB).unwrap();
        drop(held);
        request.grow(64 * KIB).unwrap();
        let permit = request.finish();
        assert_eq!(permit.bytes(), 128 * KIB);
        assert_eq!(budget.unfinished.load(Relaxed), 0);
        drop((permit, complete));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn connection_gets_a_quarter_or_one_unfinished_request() {
        let budget = Budget::new(1000);
        let (one, other) = (UnfinishedShare::default(), UnfinishedShare::default());
        let mut only = budget.begin(&one);
        only.grow(900).unwrap();
        drop(only);
        let mut first = budget.begin(&one);
        first.grow(200).unwrap();
        let mut second = budget.begin(&one);
        second.grow(50).unwrap();
        assert!(second.grow(1).is_err_and(|why| why.may_fit_later()));
        budget.begin(&other).grow(250).unwrap();
        drop(first);
        second.grow(700).unwrap();
        drop(second);
        assert_eq!((budget.used(), one.0.load(Relaxed)), (0, 0));
    }

    #[test]
    fn connections_beyond_the_allowance_reduce_permits() {
        let budget = Budget::new(64 << 20);
        let connections = ALLOWANCE / clients::CONNECTION_COST;
        budget.clients.connections.store(connections, Relaxed);
        assert!(budget.acquire(64 << 20).is_ok());
        budget.clients.frames.store(8 << 20, Relaxed);
        assert!(budget.acquire((56 << 20) + 1).is_err());
        assert!(budget.has_room((56 << 20) + 1).is_err());
        assert!(budget.acquire(56 << 20).is_ok());
    }

    #[test]
    fn disk_queues_share_exclusive_reserve() {
        let budget = Budget::new(800);
        let first = budget.stored_queue();
        assert_eq!(first.allowance(), 200);
        let second = budget.stored_queue();
        assert_eq!((first.allowance(), second.allowance()), (100, 100));
        let full = budget.acquire(601).unwrap_err();
        assert!(!full.may_fit_later(), "{full}");
        let others = budget.acquire(600).unwrap();
        assert!(budget.has_room(1).is_err() && budget.acquire(1).is_err());
        let (one, other) = (first.read_ahead(100), second.read_ahead(100));
        assert_eq!(budget.used(), 800);
        drop(others);
        assert!(budget.acquire(601).is_err() && budget.acquire(600).is_ok());
        drop((one, other, first, second));
        assert_eq!(budget.used(), 0);
        assert!(budget.acquire(800).is_ok(), "nothing is reserved any more");
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let budget = Budget::new(usize::MAX);
        let _held = budget.acquire(10).unwrap();
        assert!(budget.acquire(usize::MAX).is_err());
    }
}
