//! The configuration of `pprof`: its sections, each of which is declared beside what it configures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Endpoint, ExtensionUse, Problems, Validate};

/// Takes pprof files wherever they are. At least one section is needed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    // One field for each section: `remote` and `targets`, `server`, `file`, `self`.
}

impl Config {
    /// Whether any section is there.
    fn has_sections(&self) -> bool {
        // One term for each section.
        false
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if !self.has_sections() {
            problems.error(
                &[],
                "at least one of remote, targets, file, self or server must be configured",
            );
        }
        // One line for each section.
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        Vec::new()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        Vec::new()
    }
}
