//! The profile stores that are open in this process, by directory and by exporter.
//!
//! An exporter has a [`StoreLease`] as long as it runs. After a reload, the exporter of the new configuration gets the
//! store that the one of the old configuration still uses, and the last lease closes the store. Queries find stores by
//! the ids of exporters that run.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use tributary_config::ComponentId;
use tributary_profile_store::store::RecoveredStore;
use tributary_profile_store::{ProfileStore, ProfileStoreOptions, StoreOpenError};

/// The open profile stores of the process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ProfileStores(Arc<Mutex<Stores>>);

#[derive(Debug, Default)]
struct Stores {
    /// Stores by their canonical directory. A query may keep a store open after its last lease.
    open: HashMap<PathBuf, Weak<ProfileStore>>,
    /// Stores of running exporters, with the number of the lease that published them.
    running: BTreeMap<String, (u64, Arc<ProfileStore>)>,
    leases: u64,
}

/// The right of an exporter to use a store.
#[derive(Debug)]
pub struct StoreLease {
    stores: ProfileStores,
    store: Arc<ProfileStore>,
    id: String,
    number: u64,
}

impl ProfileStores {
    /// Opens a store for an exporter, or returns the store that is open in this directory, with its settings so far.
    /// The second value describes the start of a store that was not open. May block on the disk.
    ///
    /// # Errors
    /// See [`ProfileStore::open`].
    pub fn open(
        &self,
        id: &ComponentId,
        options: &ProfileStoreOptions,
    ) -> Result<(StoreLease, Option<RecoveredStore>), StoreOpenError> {
        options.check()?;
        let mut stores = self.lock();
        // Another path may lead to the same directory.
        let known = options.directory.canonicalize().ok();
        let known = known.and_then(|key| stores.open.get(&key)?.upgrade());
        let (store, recovered) = match known {
            Some(store) => (store, None),
            None => {
                let (store, recovered) = ProfileStore::open(options.clone())?;
                let store = Arc::new(store);
                if let Ok(key) = options.directory.canonicalize() {
                    stores.open.retain(|_, store| store.strong_count() > 0);
                    stores.open.insert(key, Arc::downgrade(&store));
                }
                (store, Some(recovered))
            }
        };
        stores.leases += 1;
        let lease = StoreLease {
            stores: self.clone(),
            store,
            id: id.to_string(),
            number: stores.leases,
        };
        Ok((lease, recovered))
    }

    /// Returns the store of a running exporter.
    pub fn get(&self, id: &str) -> Option<Arc<ProfileStore>> {
        let stores = self.lock();
        stores.running.get(id).map(|(_, store)| store.clone())
    }

    /// Returns the stores of all running exporters with their ids, ordered by id.
    pub fn all(&self) -> Vec<(String, Arc<ProfileStore>)> {
        let stores = self.lock();
        let running = stores.running.iter();
        running
            .map(|(id, (_, store))| (id.clone(), store.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Stores> {
        self.0.lock()
    }
}

impl StoreLease {
    /// Returns the store.
    pub fn store(&self) -> &Arc<ProfileStore> {
        &self.store
    }

    /// Lets queries find the store by the id of the exporter, instead of the store of an earlier exporter with this id.
    pub fn publish(&self) {
        let mut stores = self.stores.lock();
        let published = (self.number, self.store.clone());
        stores.running.insert(self.id.clone(), published);
    }

    /// Whether queries find the store through this lease.
    pub fn is_published(&self) -> bool {
        let stores = self.stores.lock();
        let running = stores.running.get(&self.id);
        running.is_some_and(|(number, _)| *number == self.number)
    }
}

impl Drop for StoreLease {
    fn drop(&mut self) {
        let mut stores = self.stores.lock();
        let is_own = |(number, _): &(u64, _)| *number == self.number;
        if stores.running.get(&self.id).is_some_and(is_own) {
            stores.running.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_a_directory_share_its_store() {
        let directory = tempfile::tempdir().unwrap();
        let options = ProfileStoreOptions::new(directory.path());
        let stores = ProfileStores::default();
        let id: ComponentId = "profile_store".parse().unwrap();
        let (first, recovered) = stores.open(&id, &options).unwrap();
        assert!(recovered.is_some());
        assert!(stores.get("profile_store").is_none());
        first.publish();
        let (second, recovered) = stores.open(&id, &options).unwrap();
        assert!(recovered.is_none());
        assert!(Arc::ptr_eq(first.store(), second.store()));
        second.publish();
        assert!(!first.is_published() && second.is_published());
        drop(first);
        let queried = stores.get("profile_store").unwrap();
        assert_eq!(stores.all().len(), 1);
        drop(second);
        assert!(stores.get("profile_store").is_none());
        // A query still uses it.
        let (third, recovered) = stores.open(&id, &options).unwrap();
        assert!(recovered.is_none() && Arc::ptr_eq(third.store(), &queried));
        drop((third, queried));
        let (_, recovered) = stores.open(&id, &options).unwrap();
        assert!(recovered.is_some());
    }

    #[test]
    fn wrong_options_open_no_store() {
        let directory = tempfile::tempdir().unwrap();
        let options = ProfileStoreOptions {
            max_disk: 0,
            ..ProfileStoreOptions::new(directory.path().join("new"))
        };
        let stores = ProfileStores::default();
        let id = "profile_store".parse().unwrap();
        stores.open(&id, &options).unwrap_err();
        assert!(!options.directory.exists());
    }
}
