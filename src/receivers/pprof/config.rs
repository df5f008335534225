//! The configuration of `pprof`: its sections, each of which is declared beside what it configures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::FileConfig;
use super::own::OwnConfig;
use super::pressure::Adaptive;
use super::scrape::{Remote, Target};
use super::server::ServerConfig;
use crate::config::{Endpoint, ExtensionUse, Problems, Section, Validate};

/// Takes pprof files wherever they are. At least one of `remote`, `targets`, `file`, `self` and `server` is needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// One URL of a profile that is taken again and again.
    pub remote: Section<Remote>,
    /// Servers whose profiles are taken again and again. Default: none.
    pub targets: Vec<Target>,
    /// How many requests of `remote` and `targets` are under way at most; 0 is no limit. A CPU profile is a request that
    /// takes its seconds. Default: 256.
    pub max_concurrent_scrapes: usize,
    /// Stretches the intervals of `remote` and `targets` while the CPU is busy. Absent: off.
    pub adaptive: Section<Adaptive>,
    /// Takes the files that are sent to `POST /v1/pprof`. Absent: does not listen.
    pub server: Section<ServerConfig>,
    /// Takes the files of a directory. Absent: reads none.
    pub file: Section<FileConfig>,
    /// Profiles this process. Absent: does not.
    #[serde(rename = "self")]
    pub own: Section<OwnConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            remote: Section(None),
            targets: Vec::new(),
            max_concurrent_scrapes: 256,
            adaptive: Section(None),
            server: Section(None),
            file: Section(None),
            own: Section(None),
        }
    }
}

impl Config {
    /// Whether any section is there.
    fn has_sections(&self) -> bool {
        self.scrapes() || self.server.is_some() || self.file.is_some() || self.own.is_some()
    }

    /// Whether anything is scraped.
    fn scrapes(&self) -> bool {
        self.remote.is_some() || !self.targets.is_empty()
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
        if let Some(remote) = &*self.remote {
            problems.within("remote", remote);
        }
        for (at, target) in self.targets.iter().enumerate() {
            let mut inner = Problems::default();
            target.validate(&mut inner);
            problems.extend(&["targets", &at.to_string()], inner);
        }
        if let Some(adaptive) = &*self.adaptive {
            problems.within("adaptive", adaptive);
        }
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
        // One without an address has been reported.
        let server = self
            .server
            .iter()
            .filter(|server| !server.endpoint.0.is_empty());
        let endpoint =
            |server: &ServerConfig| (vec!["server", "endpoint"], server.endpoint.clone());
        server.map(endpoint).collect()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let remote = self.remote.as_ref().and_then(Remote::uses);
        let targets = self.targets.iter().enumerate();
        let targets = targets.filter_map(|(at, target)| target.uses(at));
        let server = self.server.as_ref().and_then(|server| server.auth.as_ref());
        let server = server.map(|auth| auth.server_use(&["server", "auth"]));
        remote.into_iter().chain(targets).chain(server).collect()
    }
}
