//! Sample types without a metric: counted, and each logged once.

use std::collections::BTreeSet;

use metrics::{Counter, counter};
use parking_lot::Mutex;

use tributary_config::ComponentId;

/// Limits on logged names, which come from clients: number, and length in characters.
const MOST_NAMES: usize = 64;
const LONGEST_NAME: usize = 80;

/// Sample types found so far.
pub(super) struct Unknown {
    connector: ComponentId,
    profiles: Counter,
    named: Mutex<BTreeSet<String>>,
}

impl Unknown {
    /// Creates the initial state.
    pub(super) fn new(connector: &ComponentId) -> Self {
        Unknown {
            connector: connector.clone(),
            profiles: counter!(
                "tributary_connector_profile_metrics_unknown_profiles",
                "connector" => connector.to_string()
            ),
            named: Mutex::default(),
        }
    }

    /// Counts a profile for each of these [names](name).
    pub(super) fn met(&self, sample_types: &[String]) {
        self.profiles.increment(sample_types.len() as u64);
        for name in sample_types {
            if self.is_new(name) {
                tracing::warn!(
                    otelcol.component.id = %self.connector,
                    otelcol.component.kind = "connector",
                    sample_type = name,
                    "Ignored profiles: there is no metric for their sample type"
                );
            }
        }
    }

    fn is_new(&self, name: &str) -> bool {
        let mut named = self.named.lock();
        named.len() < MOST_NAMES && named.insert(name.to_owned())
    }
}

/// Returns the name of a sample type and its unit in the log.
pub(super) fn name(kind: &str, unit: &str) -> String {
    let all = kind.chars().chain(" in ".chars()).chain(unit.chars());
    all.take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_logged_once_and_bounded() {
        let unknown = Unknown::new(&"profile_metrics".parse().unwrap());
        assert!(unknown.is_new("0") && !unknown.is_new("0"));
        let told = (0..1000).filter(|number| unknown.is_new(&number.to_string()));
        assert_eq!(told.count(), MOST_NAMES - 1);
    }
}
