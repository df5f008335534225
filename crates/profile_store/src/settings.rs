//! Settings of a store that runs.

use std::sync::{Arc, PoisonError};

use super::intake::Rules;
use super::options::{OptionsError, ProfileStoreOptions};
use super::store::ProfileStore;

impl ProfileStore {
    /// Returns the settings in use.
    pub fn options(&self) -> Arc<ProfileStoreOptions> {
        let options = self.options.read().unwrap_or_else(PoisonError::into_inner);
        options.clone()
    }

    /// Replaces all settings except the directory. Labels apply to profiles that are flushed or appended from now on.
    /// Smaller bounds apply from the next [`maintain`](Self::maintain) on.
    ///
    /// # Errors
    /// The options contradict each other. The settings stay unchanged.
    pub fn reconfigure(&self, options: ProfileStoreOptions) -> Result<(), OptionsError> {
        options.check()?;
        let mut place = self.options.write().unwrap_or_else(PoisonError::into_inner);
        let directory = place.directory.clone();
        self.finder.set_rules(Rules::of(&options));
        self.queries.set_limit(options.share());
        *place = Arc::new(ProfileStoreOptions {
            directory,
            ..options
        });
        Ok(())
    }
}
