//! The configuration of `pprof`: its sections, each of which is declared beside what it configures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::FileConfig;
use super::own::OwnConfig;
use super::server::ServerConfig;
use crate::config::{Endpoint, ExtensionUse, Problems, Section, Validate};

/// Takes pprof files wherever they are. At least one section is needed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    // One field for each section: `remote` and `targets`, `server`, `file`, `self`.
    /// Takes the files that are sent to `POST /v1/pprof`. Absent: does not listen.
    pub server: Section<ServerConfig>,
    /// Takes the files of a directory. Absent: reads none.
    pub file: Section<FileConfig>,
    /// Profiles this process. Absent: does not.
    #[serde(rename = "self")]
    pub own: Section<OwnConfig>,
}

impl Config {
    /// Whether any section is there.
    fn has_sections(&self) -> bool {
        // One term for each section.
        self.server.is_some() || self.file.is_some() || self.own.is_some()
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
        if let Some(server) = &*self.server {
            problems.within("server", server);
        }
        if let Some(file) = &*self.file {
            problems.within("file", file);
        }
        if let Some(own) = &*self.own {
            problems.within("self", own);
        }
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let server = self.server.iter();
        let endpoint =
            |server: &ServerConfig| (vec!["server", "endpoint"], server.endpoint.clone());
        server.map(endpoint).collect()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let server = self.server.as_ref().and_then(|server| server.auth.as_ref());
        let server = server.map(|auth| auth.server_use(&["server", "auth"]));
        server.into_iter().collect()
    }
}
