//! Checks passwords at a bounded cost.
//!
//! Good hashes are slow by design: a check takes 50 ms or more. Outcomes are therefore cached,
//! concurrent checks of equal credentials are merged, checks run outside of the workers that serve
//! connections and on half of the cores at most, and addresses with too many failures must wait. An
//! unknown user costs as much time as a known one, so that the time reveals no names.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ring::hmac;
use tokio::sync::{Semaphore, watch};

use super::super::tries::Tries;
use super::htpasswd::{Entry, Hash};
use tributary_net::auth::{AuthFailure, UserIdentity, Verdict};

/// Verifier of users and passwords.
pub(super) struct Verifier {
    users: ArcSwap<Users>,
    /// Limit on running checks.
    running: Arc<Semaphore>,
    /// Limit on running and waiting checks.
    room: Arc<Semaphore>,
    /// Limit on requests that wait for an outcome.
    waiting: Arc<Semaphore>,
    tries: Arc<Tries>,
}

/// Current users, with a cache of outcomes that ends with them.
pub(super) struct Users {
    hashes: HashMap<Box<[u8]>, (Arc<str>, Hash)>,
    /// One name per user, from which unknown users get a hash.
    decoys: Vec<Box<[u8]>>,
    key: hmac::Key,
    known: Mutex<Known>,
}

/// HMAC of credentials under a random key; the credentials themselves are not kept.
type Sum = [u8; 32];

#[derive(Default)]
struct Known {
    right: HashMap<Sum, ()>,
    wrong: HashMap<Sum, ()>,
    in_progress: HashMap<Sum, watch::Receiver<Option<bool>>>,
}

impl Users {
    /// Creates the users. Of two entries for one user, the later one is valid.
    ///
    /// # Errors
    /// Returns an error if the system provides no random numbers.
    pub(super) fn new<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Result<Self, String> {
        let named =
            |Entry { user, hash, .. }: Entry<'a>| (user.as_bytes().into(), (user.into(), hash));
        let hashes: HashMap<Box<[u8]>, _> = entries.into_iter().map(named).collect();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_| "cannot get random numbers from the system".to_owned())?;
        let mut decoys: Vec<Box<[u8]>> = hashes.keys().cloned().collect();
        decoys.sort_unstable();
        Ok(Users {
            hashes,
            decoys,
            key,
            known: Mutex::default(),
        })
    }

    /// Whether `self` and `other` have the same users with the same passwords.
    fn same(&self, other: &Users) -> bool {
        self.hashes == other.hashes
    }

    fn sum(&self, user: &[u8], password: &[u8]) -> Sum {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(user.len() as u64).to_be_bytes());
        context.update(user);
        context.update(password);
        let mut sum = Sum::default();
        sum.copy_from_slice(context.sign().as_ref());
        sum
    }

    /// Returns the hash to check against, and whether the user is known. An unknown user always
    /// gets the same hash of another user.
    fn hash(&self, user: &[u8]) -> Option<(&Hash, bool)> {
        if let Some((_, hash)) = self.hashes.get(user) {
            return Some((hash, true));
        }
        let sum = self.sum(user, b"");
        let at = u64::from_be_bytes(*sum.first_chunk()?) % self.decoys.len().max(1) as u64;
        let decoy = self.decoys.get(usize::try_from(at).ok()?)?;
        let (_, hash) = self.hashes.get(decoy)?;
        Some((hash, false))
    }

    fn check(&self, user: &[u8], password: &[u8]) -> bool {
        match self.hash(user) {
            Some((hash, known)) => hash.matches(password) & known,
            None => false,
        }
    }

    /// Caches an outcome.
    fn learn(&self, sum: Sum, right: bool) {
        let mut known = self.known.lock();
        known.in_progress.remove(&sum);
        // Every user has one valid password, except where bcrypt truncates at 72 bytes.
        let (list, most) = match right {
            true => (&mut known.right, MOST_KNOWN.max(2 * self.hashes.len())),
            false => (&mut known.wrong, MOST_KNOWN),
        };
        if list.len() >= most {
            list.clear();
        }
        list.insert(sum, ());
    }

    fn outcome(&self, user: &[u8], right: bool) -> Result<UserIdentity, AuthFailure> {
        match (right, self.hashes.get(user)) {
            (true, Some((name, _))) => Ok(UserIdentity {
                user: Some(name.clone()),
            }),
            _ => Err(AuthFailure::Wrong),
        }
    }
}

impl Verifier {
    pub(super) fn new(users: Users) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Verifier {
            users: ArcSwap::from_pointee(users),
            running: Arc::new(Semaphore::new((processors / 2).max(1))),
            room: Arc::new(Semaphore::new(MOST_CHECKS)),
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
            tries: Arc::default(),
        }
    }

    pub(super) fn replace(&self, users: Users) -> bool {
        let changed = !self.users.load().same(&users);
        if changed {
            self.users.store(Arc::new(users));
        }
        changed
    }

    pub(super) fn verify(&self, user: &[u8], password: &[u8], peer: IpAddr) -> Verdict {
        let users = self.users.load();
        if password.len() > LONGEST_PASSWORD {
            return Verdict::Known(Err(AuthFailure::Wrong));
        }
        let sum = users.sum(user, password);
        let mut known = users.known.lock();
        if known.right.contains_key(&sum) {
            return Verdict::Known(match self.tries.admits(peer, &sum) {
                true => users.outcome(user, true),
                false => Err(AuthFailure::Busy),
            });
        }
        if known.wrong.contains_key(&sum) {
            return Verdict::Known(Err(AuthFailure::Wrong));
        }
        if let Some(in_progress) = known.in_progress.get(&sum) {
            return self.wait(in_progress.clone(), users.clone(), user);
        }
        if !self.tries.begins(peer) {
            return Verdict::Known(Err(AuthFailure::Busy));
        }
        let slow = users.hash(user).is_some_and(|(hash, _)| hash.is_slow());
        if !slow {
            drop(known);
            let right = users.check(user, password);
            self.tries.ends(peer, &sum, right);
            users.learn(sum, right);
            return Verdict::Known(users.outcome(user, right));
        }
        let Ok(place) = self.room.clone().try_acquire_owned() else {
            self.tries.return_try(peer);
            return Verdict::Known(Err(AuthFailure::Busy));
        };
        let (done, in_progress) = watch::channel(None);
        known.in_progress.insert(sum, in_progress.clone());
        drop(known);
        let (running, tries) = (self.running.clone(), self.tries.clone());
        let (checked, name, password) = (users.clone(), user.to_vec(), password.to_vec());
        let forgetful = users.clone();
        // The check runs in its own task: if a client disconnects, its outcome must still be cached
        // for the next request.
        tokio::spawn(async move {
            let permit = running.acquire_owned().await;
            let check = move || {
                let _held = (permit, place);
                let right = checked.check(&name, &password);
                tries.ends(peer, &sum, right);
                checked.learn(sum, right);
                done.send_replace(Some(right));
            };
            if tokio::task::spawn_blocking(check).await.is_err() {
                // The check panicked; no request may wait for it.
                forgetful.known.lock().in_progress.remove(&sum);
            }
        });
        self.wait(in_progress, users.clone(), user)
    }

    /// Waits for the outcome of a running check, unless too many requests wait. During the wait, the
    /// received part of an unauthenticated request stays in memory.
    fn wait(
        &self,
        mut in_progress: watch::Receiver<Option<bool>>,
        users: Arc<Users>,
        user: &[u8],
    ) -> Verdict {
        let Ok(place) = self.waiting.clone().try_acquire_owned() else {
            return Verdict::Known(Err(AuthFailure::Busy));
        };
        let user = user.to_vec();
        Verdict::Pending(Box::pin(async move {
            let _place = place;
            let done = in_progress.wait_for(Option::is_some).await;
            match done.ok().and_then(|done| *done) {
                Some(right) => users.outcome(&user, right),
                // The process is shutting down, or the check panicked.
                None => Err(AuthFailure::Busy),
            }
        }))
    }
}

/// Maximum length of passwords in bytes. bcrypt uses the first 72.
pub(super) const LONGEST_PASSWORD: usize = 1024;
/// Maximum number of running and waiting checks. Further ones are refused; the client may retry.
const MOST_CHECKS: usize = 256;
/// Maximum number of requests that wait for a check; several may wait for the same one. Further
/// ones are refused.
const MOST_WAITING: usize = 1024;
/// Maximum number of cached outcomes of each kind.
const MOST_KNOWN: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::htpasswd;
    use super::*;
    use crate::extensions::tries::PAUSE;

    /// Hash of `secret`, with a cost low enough for tests.
    const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn users(text: &str) -> Users {
        let (entries, wrong) = htpasswd::parse(text);
        assert_eq!(wrong, []);
        Users::new(entries).unwrap()
    }

    fn verifier(text: &str) -> Verifier {
        Verifier::new(users(text))
    }

    /// Returns the verdict, and whether a check ran.
    async fn asked(
        verifier: &Verifier,
        user: &str,
        password: &str,
    ) -> (Result<UserIdentity, AuthFailure>, bool) {
        match verifier.verify(user.as_bytes(), password.as_bytes(), PEER) {
            Verdict::Known(known) => (known, false),
            Verdict::Pending(pending) => (pending.await, true),
        }
    }

    fn is(user: &str) -> Result<UserIdentity, AuthFailure> {
        Ok(UserIdentity {
            user: Some(user.into()),
        })
    }

    #[tokio::test]
    async fn credentials_are_checked_once_until_the_users_change() {
        let text = format!("alice:{BCRYPT}\nbob:{BCRYPT}\nplain:secret");
        let verifier = verifier(&text);
        let wrong = Err(AuthFailure::Wrong);
        for (user, password, expected, slow) in [
            ("alice", "secret", is("alice"), true),
            ("bob", "secret", is("bob"), true),
            ("alice", "other", wrong.clone(), true),
            ("plain", "secret", is("plain"), false),
            ("plain", "other", wrong.clone(), false),
        ] {
            let first = asked(&verifier, user, password).await;
            assert_eq!(first, (expected.clone(), slow), "{user} {password}");
            let second = asked(&verifier, user, password).await;
            assert_eq!(second, (expected, false), "{user} {password}");
        }
        // User and password must not be interchangeable at their boundary.
        assert_eq!(asked(&verifier, "bobs", "ecret").await.0, wrong);

        assert!(!verifier.replace(users(&text)), "the same again");
        assert_eq!(
            asked(&verifier, "alice", "secret").await,
            (is("alice"), false)
        );
        assert!(verifier.replace(users(&format!("bob:{BCRYPT}"))));
        assert_eq!(asked(&verifier, "alice", "secret").await, (wrong, true));
        assert_eq!(asked(&verifier, "bob", "secret").await, (is("bob"), true));
    }

    #[tokio::test]
    async fn unknown_user_takes_as_long_as_known_user() {
        let verifier = verifier(&format!("alice:{BCRYPT}\nbob:{BCRYPT}"));
        for user in ["mallory", "", "alic", "a\u{e9}"] {
            for password in ["secret", "other"] {
                let asked = asked(&verifier, user, password).await;
                assert_eq!(asked, (Err(AuthFailure::Wrong), true), "{user} {password}");
            }
        }
        let long = "x".repeat(LONGEST_PASSWORD + 1);
        for user in ["alice", "mallory"] {
            let asked = asked(&verifier, user, &long).await;
            assert_eq!(asked, (Err(AuthFailure::Wrong), false));
        }
    }

    #[tokio::test]
    async fn concurrent_requests_of_client_share_one_check() {
        let verifier = verifier(&format!("alice:{BCRYPT}"));
        let requests: Vec<_> = (0..1000)
            .map(|_| asked(&verifier, "alice", "secret"))
            .collect();
        for (outcome, _) in futures_util::future::join_all(requests).await {
            assert_eq!(outcome, is("alice"));
        }
        assert_eq!(verifier.room.available_permits(), MOST_CHECKS);
        assert_eq!(verifier.waiting.available_permits(), MOST_WAITING);
        assert!(verifier.tries.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_wrong_passwords_delay_only_their_sender() {
        let verifier = verifier(&format!("alice:{BCRYPT}\nplain:secret\nknown:secret"));
        assert_eq!(asked(&verifier, "known", "secret").await.0, is("known"));
        let mut checked = 0;
        for number in 0..100 {
            match asked(&verifier, "alice", &format!("guess {number}"))
                .await
                .0
            {
                Err(AuthFailure::Wrong) => checked += 1,
                Err(AuthFailure::Busy) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!((20..25).contains(&checked), "{checked}");
        assert_eq!(
            asked(&verifier, "plain", "guess").await.0,
            Err(AuthFailure::Busy)
        );
        // Right passwords are refused as well; otherwise guessing would succeed.
        assert_eq!(
            asked(&verifier, "plain", "secret").await.0,
            Err(AuthFailure::Busy)
        );
        let elsewhere = verifier.verify(b"plain", b"secret", Ipv4Addr::new(192, 0, 2, 1).into());
        assert!(matches!(elsewhere, Verdict::Known(Ok(_))));
        // A right password that is known from elsewhere could be a guess, too.
        assert_eq!(
            asked(&verifier, "plain", "secret").await.0,
            Err(AuthFailure::Busy)
        );
        // Clients that were served before stay served.
        assert_eq!(asked(&verifier, "known", "secret").await.0, is("known"));

        tokio::time::advance(PAUSE).await;
        assert_eq!(
            asked(&verifier, "alice", "one more").await.0,
            Err(AuthFailure::Wrong)
        );
        assert_eq!(
            asked(&verifier, "alice", "and another").await.0,
            Err(AuthFailure::Busy)
        );
    }

    #[tokio::test]
    async fn requests_beyond_wait_limit_are_refused_at_once() {
        let verifier = verifier(&format!("alice:{BCRYPT}"));
        let ask = || verifier.verify(b"alice", b"secret", PEER);
        let waiting: Vec<_> = (0..MOST_WAITING).map(|_| ask()).collect();
        assert!(
            waiting
                .iter()
                .all(|verdict| matches!(verdict, Verdict::Pending(_)))
        );
        assert!(matches!(ask(), Verdict::Known(Err(AuthFailure::Busy))));
        drop(waiting);
        assert!(matches!(ask(), Verdict::Pending(_)));
    }

    #[tokio::test]
    async fn disconnected_client_leaves_no_state() {
        let verifier = verifier(&format!("alice:{BCRYPT}"));
        drop(verifier.verify(b"alice", b"secret", PEER));
        let room = verifier.room.clone().acquire_many_owned(256).await;
        assert!(room.is_ok(), "its check has ended");
        drop(room);
        assert_eq!(
            asked(&verifier, "alice", "secret").await,
            (is("alice"), false)
        );
    }
}
