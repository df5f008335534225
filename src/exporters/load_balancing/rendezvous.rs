//! Assigns keys to members by rendezvous hashing, with an optional limit on the load.
//!
//! Each pair of key and member has a score. The member with the highest score owns the key; if the
//! owner is unavailable, the members follow in the order of their scores. If a member leaves, only
//! its keys move, each to its own second choice. A new member takes an equal share from each of the
//! others. (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
//! Transactions on Networking 6(1), 1998.)
//!
//! A hash ring as in the Collector was rejected. With a hundred points per member, shares differ by
//! a tenth of the average, and all keys of a leaving member move to the few neighbours of its
//! points. Scores cost a few nanoseconds per member and key. That is negligible compared to
//! sending, since there are tens of members, not thousands.
//!
//! The limit is that of consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam,
//! SODA 2018), applied to bytes in flight: a member above its factor of the average is skipped for
//! the next member of the key. The limit is off by default, because a key may then have two members
//! at a time.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Returns the hash of a member's address, for scores.
pub(super) fn seed(address: &str) -> u64 {
    xxh3_64(address.as_bytes())
}

/// Returns the score of a key and a member. The score must be the same in every process of every
/// version, because the senders of a tier must agree.
fn score(key: u64, seed: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of the input changes half of the
    // output.
    let mut mixed = key ^ seed;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The members to choose from, by position.
pub(super) struct Candidates {
    /// Seed and load of each member.
    members: Vec<(u64, u64)>,
    /// Limit of the load in percent of the average; 0 means no limit.
    factor: u32,
    /// Earlier choices, so that a key keeps its member within a batch even with a limit.
    chosen: HashMap<u64, usize>,
}

impl Candidates {
    /// Takes the seed of each member and its bytes in flight.
    pub(super) fn new(members: Vec<(u64, u64)>, factor: u32) -> Self {
        Candidates {
            members,
            factor,
            chosen: HashMap::new(),
        }
    }

    /// Returns the member for a number of bytes of a key; `None` without members.
    pub(super) fn choose(&mut self, key: u64, bytes: usize) -> Option<usize> {
        let bytes = bytes as u64;
        let chosen = match self.chosen.get(&key) {
            Some(chosen) => *chosen,
            None => {
                let chosen = self.best(key, bytes)?;
                self.chosen.insert(key, chosen);
                chosen
            }
        };
        if let Some((_, load)) = self.members.get_mut(chosen) {
            *load += bytes;
        }
        Some(chosen)
    }

    fn best(&self, key: u64, bytes: u64) -> Option<usize> {
        let capacity = self.capacity(bytes);
        let all = self.members.iter().enumerate();
        let room = |(_, (_, load)): &(usize, &(u64, u64))| *load == 0 || load + bytes <= capacity;
        let highest = |(at, (seed, _)): &(usize, &(u64, u64))| (score(key, *seed), *at);
        let best = all.clone().filter(room).max_by_key(highest);
        // A member is always below the limit unless one key has more than the average.
        best.or_else(|| all.max_by_key(highest)).map(|(at, _)| at)
    }

    /// Returns the maximum load of a member after adding a number of bytes.
    fn capacity(&self, bytes: u64) -> u64 {
        if self.factor == 0 {
            return u64::MAX;
        }
        let loads = self.members.iter().map(|(_, load)| u128::from(*load));
        let total = loads.sum::<u128>() + u128::from(bytes);
        let members = self.members.len().max(1) as u128 * 100;
        u64::try_from((total * u128::from(self.factor)).div_ceil(members)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(count: usize) -> Vec<u64> {
        (0..count)
            .map(|number| seed(&format!("10.0.0.{number}:4317")))
            .collect()
    }

    fn idle(seeds: &[u64]) -> Vec<(u64, u64)> {
        seeds.iter().map(|seed| (*seed, 0)).collect()
    }

    fn keys() -> impl Iterator<Item = u64> {
        (0..20_000_u64).map(|number| xxh3_64(&number.to_le_bytes()))
    }

    /// Returns the seed of each key's owner.
    fn owners(seeds: &[u64]) -> Vec<u64> {
        let mut candidates = Candidates::new(idle(seeds), 0);
        keys()
            .map(|key| seeds[candidates.choose(key, 1).unwrap()])
            .collect()
    }

    #[test]
    fn members_have_equal_shares_of_the_keys() {
        let seeds = seeds(10);
        let owners = owners(&seeds);
        for member in &seeds {
            let share = owners.iter().filter(|owner| *owner == member).count();
            // 2000 on average; three standard deviations of a fair draw are 127.
            assert!((1873..=2127).contains(&share), "{share}");
        }
    }

    #[test]
    fn removed_member_moves_only_its_keys_to_all_others() {
        let before = seeds(10);
        let gone = before[3];
        let after: Vec<u64> = before
            .iter()
            .copied()
            .filter(|seed| *seed != gone)
            .collect();
        let mut taken_over = HashMap::new();
        for (was, is) in owners(&before).into_iter().zip(owners(&after)) {
            if was == gone {
                *taken_over.entry(is).or_insert(0) += 1;
            } else {
                assert_eq!(was, is, "a key of a member that stays has moved");
            }
        }
        assert_eq!(taken_over.len(), 9);
        // 222 on average.
        assert!(
            taken_over.values().all(|keys| (170..=275).contains(keys)),
            "{taken_over:?}"
        );
    }

    #[test]
    fn order_of_members_does_not_matter() {
        let seeds = seeds(5);
        let reversed: Vec<u64> = seeds.iter().rev().copied().collect();
        assert_eq!(owners(&seeds), owners(&reversed));
    }

    #[test]
    fn bounded_load_limits_each_member() {
        let seeds = seeds(10);
        // Half of all bytes have keys of one member.
        let of_first = keys()
            .zip(owners(&seeds))
            .filter(|(_, owner)| *owner == seeds[0]);
        let others = (100_000..102_000_u64).map(|number| xxh3_64(&number.to_le_bytes()));
        let skewed: Vec<u64> = of_first.map(|(key, _)| key).chain(others).collect();
        for factor in [101, 125, 200] {
            let mut candidates = Candidates::new(idle(&seeds), factor);
            for key in &skewed {
                candidates.choose(*key, 100).unwrap();
            }
            let loads: Vec<u64> = candidates.members.iter().map(|(_, load)| *load).collect();
            let most = (loads.iter().sum::<u64>() * u64::from(factor)).div_ceil(1000);
            assert!(
                loads.iter().all(|load| *load <= most),
                "{factor}: {loads:?}"
            );
        }
        let mut unbounded = Candidates::new(idle(&seeds), 0);
        for key in &skewed {
            unbounded.choose(*key, 100).unwrap();
        }
        assert!(
            unbounded.members[0].1 > 100_000,
            "the keys are not as skewed as they should be"
        );
    }

    #[test]
    fn key_above_bound_still_has_a_member() {
        let mut candidates = Candidates::new(vec![(1, 10), (2, 10)], 101);
        assert!(candidates.choose(7, 1_000_000).is_some());
        assert_eq!(Candidates::new(Vec::new(), 0).choose(7, 1), None);
    }

    #[test]
    fn scores_are_the_same_in_every_process() {
        // A different result would split traces while a tier is being updated.
        let seeds = seeds(3);
        let owners: Vec<usize> = owners(&seeds)
            .iter()
            .take(12)
            .map(|owner| seeds.iter().position(|seed| seed == owner).unwrap())
            .collect();
        assert_eq!(owners, [0, 1, 0, 2, 1, 2, 0, 2, 1, 0, 1, 1]);
    }
}
