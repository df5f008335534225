//! Checks the main promise: acknowledged items arrive, and every item that arrives was sent.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Backend, POLL_INTERVAL, within};

/// Items that clients sent, and items that were acknowledged. Clones share their state.
#[derive(Clone, Default)]
pub struct Oracle(Arc<Mutex<Accounts>>);

#[derive(Default)]
struct Accounts {
    sent: HashSet<String>,
    acknowledged: HashSet<String>,
}

impl Oracle {
    /// These items are about to be sent.
    pub fn sent(&self, ids: &[String]) {
        self.accounts().sent.extend(ids.iter().cloned());
    }

    /// Records that the collector has acknowledged these items.
    pub fn acknowledged(&self, ids: &[String]) {
        self.accounts().acknowledged.extend(ids.iter().cloned());
    }

    /// Number of acknowledged items.
    pub fn acknowledged_count(&self) -> usize {
        self.accounts().acknowledged.len()
    }

    /// Number of acknowledged items that have not arrived.
    pub fn missing(&self, backend: &Backend) -> usize {
        let record = backend.record();
        let arrived = |id: &&String| record.arrivals.contains_key(*id);
        let accounts = self.accounts();
        accounts.acknowledged.len() - accounts.acknowledged.iter().filter(arrived).count()
    }

    /// Acknowledged items that have arrived at none of these next hops.
    pub fn missing_among(&self, backends: &[&Backend]) -> Vec<String> {
        let arrived = arrivals(backends);
        let accounts = self.accounts();
        let missing = accounts.acknowledged.iter();
        missing
            .filter(|id| !arrived.contains_key(*id))
            .cloned()
            .collect()
    }

    /// Number of items that arrived although no client sent them.
    pub fn unsent_among(&self, backends: &[&Backend]) -> usize {
        let accounts = self.accounts();
        let arrived = arrivals(backends);
        arrived
            .keys()
            .filter(|id| !accounts.sent.contains(*id))
            .count()
    }

    /// Number of deliveries beyond the first delivery of each item.
    pub fn duplicates_among(&self, backends: &[&Backend]) -> usize {
        arrivals(backends).values().map(|times| times - 1).sum()
    }

    /// Waits until all acknowledged items have arrived, and checks that no other items did. Returns the number of
    /// duplicates: a next hop that does not respond may get a request again.
    pub async fn wait_for_delivery(&self, backend: &Backend) -> usize {
        let acknowledged_count = self.accounts().acknowledged.clone();
        let what = format!(
            "arrival of all {} acknowledged items",
            acknowledged_count.len()
        );
        within(
            &what,
            backend.until(|record| {
                acknowledged_count
                    .iter()
                    .all(|id| record.arrivals.contains_key(id))
            }),
        )
        .await;
        let record = backend.record();
        let accounts = self.accounts();
        for id in record.arrivals.keys() {
            assert!(
                accounts.sent.contains(id),
                "{id} arrived, but nobody sent it"
            );
        }
        record.arrivals.values().filter(|times| **times > 1).count()
    }

    /// Waits until each acknowledged item has arrived at one of the next hops. Returns the number of duplicates.
    pub async fn wait_for_delivery_among(&self, backends: &[&Backend]) -> usize {
        let what = format!(
            "arrival of all {} acknowledged items somewhere",
            self.acknowledged_count()
        );
        within(&what, async {
            while !self.missing_among(backends).is_empty() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
        .await;
        assert_eq!(self.unsent_among(backends), 0, "items that nobody sent");
        let arrived = arrivals(backends);
        arrived.values().filter(|times| **times > 1).count()
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap()
    }
}

/// Number of arrivals of each item, over all next hops.
fn arrivals(backends: &[&Backend]) -> HashMap<String, usize> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for backend in backends {
        for (id, arrivals) in &backend.record().arrivals {
            *times.entry(id.clone()).or_default() += arrivals;
        }
    }
    times
}
