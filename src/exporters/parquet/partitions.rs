//! Bounds the number of partitions: rows beyond the bound share partitions.
//!
//! Without the bound, a client that invents a service for each request would cause a file for each
//! request.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use tokio::time::{Duration, Instant};

use super::partition::{NO_HOUR, OVERFLOW};
use super::table::Partition;

/// Partitions of a signal that recently had rows.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    own: Recent,
    /// Partitions for further services, one for each hour.
    hours: Recent,
}

#[derive(Debug, Default)]
struct Recent {
    /// Time at which each partition last had rows.
    last: HashMap<Partition, Instant>,
    /// Time of the last removal of partitions without rows.
    cleared: Option<Instant>,
}

/// Minimum time between two searches for partitions without rows.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

static SERVICE: LazyLock<Arc<str>> = LazyLock::new(|| OVERFLOW.into());

impl Partitions {
    /// Returns the partition whose file gets the rows of `partition`. The first `most` partitions
    /// have files of their own. Those of further services share a file for each hour, and those of
    /// further hours share one. A partition counts until it had no rows for `window`.
    pub(super) fn place(
        &mut self,
        partition: &Partition,
        most: usize,
        window: Duration,
    ) -> Partition {
        if self.own.has_place(partition, most, window) {
            return partition.clone();
        }
        let service = partition.service.as_ref().map(|_| Arc::clone(&SERVICE));
        let shared = Partition {
            hour: partition.hour,
            service,
        };
        if shared.service.is_some() && self.hours.has_place(&shared, most, window) {
            return shared;
        }
        Partition {
            hour: NO_HOUR,
            ..shared
        }
    }
}

impl Recent {
    fn has_place(&mut self, partition: &Partition, most: usize, window: Duration) -> bool {
        let now = Instant::now();
        if let Some(last) = self.last.get_mut(partition) {
            *last = now;
            return true;
        }
        let may_clear = self
            .cleared
            .is_none_or(|cleared| now - cleared >= CLEANUP_INTERVAL);
        if self.last.len() >= most && may_clear {
            self.cleared = Some(now);
            self.last.retain(|_, last| now - *last < window);
        }
        let has_place = self.last.len() < most;
        if has_place {
            self.last.insert(partition.clone(), now);
        }
        has_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn partition(hour: i64, service: Option<&str>) -> Partition {
        Partition {
            hour,
            service: service.map(Arc::from),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn further_services_share_the_partition_of_their_hour() {
        let mut partitions = Partitions::default();
        let mut place = |hour, service| {
            let own = partition(hour, Some(service));
            let place = partitions.place(&own, 2, WINDOW);
            (place.hour, place.service.unwrap().to_string())
        };
        let shared = |hour| (hour, OVERFLOW.to_owned());
        assert_eq!(place(7, "a"), (7, "a".to_owned()));
        assert_eq!(place(7, "b"), (7, "b".to_owned()));
        assert_eq!([place(7, "c"), place(8, "a")], [shared(7), shared(8)]);
        assert_eq!(place(9, "a"), shared(NO_HOUR), "two hours are shared");
        assert_eq!(place(7, "a"), (7, "a".to_owned()));
        tokio::time::advance(WINDOW / 2).await;
        assert_eq!(place(7, "a"), (7, "a".to_owned()));
        tokio::time::advance(WINDOW / 2).await;
        assert_eq!(place(7, "c"), (7, "c".to_owned()), "b is forgotten");
        assert_eq!(place(7, "b"), shared(7));
    }

    #[tokio::test(start_paused = true)]
    async fn further_hours_share_a_partition() {
        let mut partitions = Partitions::default();
        let mut place = |hour| partitions.place(&partition(hour, None), 2, WINDOW);
        let places = [place(1), place(2), place(3), place(1)];
        let expected = [1, 2, NO_HOUR, 1].map(|hour| partition(hour, None));
        assert_eq!(places, expected);
    }
}
