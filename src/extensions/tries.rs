//! Slows the guessing of credentials: a network with too many wrong credentials must wait.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use tokio::time::Instant;

use tributary_net::network;

/// Wrong credentials of each network.
#[derive(Default)]
pub(super) struct Tries {
    buckets: Mutex<Buckets>,
    /// Networks, each with the hash of a credential that was accepted from the network.
    served: RwLock<HashSet<(IpAddr, u64)>>,
    /// Random key of the hashes, so that no client can choose credentials with equal hashes.
    key: RandomState,
}

#[derive(Default)]
struct Buckets {
    by_address: HashMap<IpAddr, Bucket>,
    /// Time of the last removal of full buckets.
    swept: Option<Instant>,
}

impl Buckets {
    /// Whether there is room for one more address. Not every request may scan all addresses, which
    /// would help an attacker with many addresses.
    fn has_room(&mut self) -> bool {
        let full = |buckets: &HashMap<_, _>| buckets.len() >= MOST_ADDRESSES;
        let due = self.swept.is_none_or(|swept| swept.elapsed() >= PAUSE);
        if full(&self.by_address) && due {
            self.swept = Some(Instant::now());
            self.by_address.retain(|_, bucket| {
                bucket.refill();
                bucket.used > 0
            });
        }
        !full(&self.by_address)
    }
}

/// Number of tries that an address has used.
struct Bucket {
    used: u32,
    /// Time at which the last try was returned.
    since: Instant,
}

impl Bucket {
    fn refill(&mut self) {
        let back = self.since.elapsed().as_millis() / PAUSE.as_millis();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        if back > 0 {
            self.used = self.used.saturating_sub(back);
            self.since = Instant::now();
        }
    }
}

impl Tries {
    /// Takes a try, if there is one. A try in progress counts as a failure until it [ends](Self::ends),
    /// so that concurrent tries count separately.
    pub(super) fn begins(&self, peer: IpAddr) -> bool {
        let mut buckets = self.buckets.lock();
        let peer = network(peer);
        if !buckets.by_address.contains_key(&peer) && !buckets.has_room() {
            return false;
        }
        let bucket = buckets.by_address.entry(peer).or_insert(Bucket {
            used: 0,
            since: Instant::now(),
        });
        bucket.refill();
        if bucket.used >= BURST {
            return false;
        }
        if bucket.used == 0 {
            bucket.since = Instant::now();
        }
        bucket.used += 1;
        true
    }

    /// Returns the try if the credential was right.
    pub(super) fn ends(&self, peer: IpAddr, credential: &[u8], right: bool) {
        if right {
            self.return_try(peer);
            self.serve(network(peer), credential);
        }
    }

    pub(super) fn return_try(&self, peer: IpAddr) {
        let mut buckets = self.buckets.lock();
        let peer = network(peer);
        if let Some(bucket) = buckets.by_address.get_mut(&peer) {
            bucket.used = bucket.used.saturating_sub(1);
            if bucket.used == 0 {
                buckets.by_address.remove(&peer);
            }
        }
    }

    /// Whether a correct credential may be used without a try. A network without tries must not learn that a guess was
    /// correct, so only credentials are allowed that were accepted from the network before.
    pub(super) fn admits(&self, peer: IpAddr, credential: &[u8]) -> bool {
        let peer = network(peer);
        let entry = (peer, self.key.hash_one(credential));
        let served = self.served.read();
        let known = served.contains(&entry);
        drop(served);
        if !known && self.is_spent(peer) {
            return false;
        }
        if !known {
            self.serve(peer, credential);
        }
        true
    }

    fn is_spent(&self, peer: IpAddr) -> bool {
        let mut buckets = self.buckets.lock();
        buckets.by_address.get_mut(&peer).is_some_and(|bucket| {
            bucket.refill();
            bucket.used >= BURST
        })
    }

    fn serve(&self, peer: IpAddr, credential: &[u8]) {
        let mut served = self.served.write();
        if served.len() >= MOST_SERVED {
            served.clear();
        }
        served.insert((peer, self.key.hash_one(credential)));
    }

    /// Whether no network has recent failures.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.lock().by_address.is_empty()
    }
}

/// Maximum number of addresses with recent failures.
const MOST_ADDRESSES: usize = 10_000;
/// Failures of one address allowed at once.
pub(super) const BURST: u32 = 20;
/// Time after which one more try is allowed.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of credentials that are remembered with the network that used them.
const MOST_SERVED: usize = 100_000;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn addresses_take_bounded_memory() {
        let tries = Tries::default();
        let address = |number: u32| IpAddr::from(Ipv4Addr::from(number));
        let most = u32::try_from(MOST_ADDRESSES).unwrap();
        assert!((0..most).all(|number| tries.begins(address(number))));
        assert!(!tries.begins(address(most)));
        assert!(tries.begins(address(0)), "it is known already");
        tokio::time::advance(PAUSE * 2).await;
        assert!(tries.begins(address(most)));
        assert_eq!(tries.buckets.lock().by_address.len(), 1);
    }
}
