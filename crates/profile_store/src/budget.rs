//! Budgets of queries: memory and time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::error::QueryError;

/// Bounds of a query. A query beyond a bound is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryLimits {
    /// Maximum memory for merging, in bytes.
    pub bytes: u64,
    /// Maximum time.
    pub time: Duration,
}

impl Default for QueryLimits {
    /// 64 MiB and 10 seconds.
    fn default() -> Self {
        QueryLimits {
            bytes: 64 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// The memory that all queries share.
#[derive(Debug)]
pub(crate) struct Pool {
    used: Arc<AtomicU64>,
    limit: AtomicU64,
}

impl Pool {
    pub(crate) fn new(limit: u64) -> Self {
        Pool {
            used: Arc::default(),
            limit: AtomicU64::new(limit),
        }
    }

    /// Memory in use, in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Changes the limit for queries that begin from now on.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    pub(crate) fn begin(&self, limits: QueryLimits) -> Spending {
        Spending {
            used: self.used.clone(),
            pool: self.limit.load(Relaxed),
            limits,
            began: Instant::now(),
            bytes: 0,
        }
    }
}

/// Memory and time of a query. The drop releases the memory.
#[derive(Debug)]
pub(crate) struct Spending {
    used: Arc<AtomicU64>,
    pool: u64,
    limits: QueryLimits,
    began: Instant,
    bytes: u64,
}

impl Spending {
    /// Takes memory up to `bytes` in total, and checks the time.
    pub(crate) fn reach(&mut self, bytes: u64) -> Result<(), QueryError> {
        if self.began.elapsed() > self.limits.time {
            return Err(QueryError::TooSlow(self.limits.time));
        }
        let limit = self.limits.bytes.min(self.pool);
        if bytes > limit {
            let needed = bytes;
            return Err(QueryError::TooLarge { needed, limit });
        }
        let Some(more) = bytes.checked_sub(self.bytes) else {
            return Ok(());
        };
        let taken = self.used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(more).filter(|used| *used <= self.pool)
        });
        taken.map_err(|_| QueryError::Busy)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Memory taken by the query, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases memory, down to `bytes` in total.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.used.fetch_sub(less, Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_share_and_release_memory() {
        let pool = Pool::new(100);
        let limits = QueryLimits {
            bytes: 80,
            ..QueryLimits::default()
        };
        let mut first = pool.begin(limits);
        first.reach(70).unwrap();
        first.reach(60).unwrap();
        assert!(matches!(
            first.reach(81),
            Err(QueryError::TooLarge {
                needed: 81,
                limit: 80
            })
        ));
        let mut second = pool.begin(limits);
        assert!(matches!(second.reach(31), Err(QueryError::Busy)));
        second.reach(30).unwrap();
        first.shrink(10);
        assert_eq!(pool.used(), 40);
        drop((first, second));
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn query_beyond_time_limit_is_refused() {
        let limits = QueryLimits {
            time: Duration::ZERO,
            ..QueryLimits::default()
        };
        let mut spending = Pool::new(100).begin(limits);
        while spending.began.elapsed().is_zero() {}
        assert!(matches!(spending.reach(1), Err(QueryError::TooSlow(_))));
    }
}
