//! The configuration of `pprof`: its sections, each of which is declared beside what it configures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::FileConfig;
use super::own::OwnConfig;
use super::pressure::Adaptive;
use super::scrape::{Remote, Target};
use super::server::ServerConfig;
use tributary_config::units::ByteSize;
use tributary_config::{Endpoint, ExtensionUse, Problems, Section, Validate};
use tributary_profiles::pprof::{IdLabel, LinkLabels};

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
    /// With `delta` in `targets`: the memory that the profiles to subtract may take, of all targets together, as in `256MiB`;
    /// never more than a quarter of the memory budget, in which it counts. One of 300 stacks takes about 100 KB, one of
    /// 10,000 stacks 3 MB, and a Go target has four of them, so the default is enough for some hundred targets. Where it is
    /// not, the targets that came last are without differences: the log says so, and
    /// `tributary_receiver_pprof_forgotten_series` counts it. Default: 256MiB.
    pub delta_max_bytes: ByteSize,
    /// Stretches the intervals of `remote` and `targets` while the CPU is busy. Absent: off.
    pub adaptive: Section<Adaptive>,
    /// Takes the files that are sent to `POST /v1/pprof`. Absent: does not listen.
    pub server: Section<ServerConfig>,
    /// Takes the files of a directory. Absent: reads none.
    pub file: Section<FileConfig>,
    /// Profiles this process. Absent: does not.
    #[serde(rename = "self")]
    pub own: Section<OwnConfig>,
    /// Which labels of samples name a trace and a span, and become links.
    pub links: Links,
    /// Whether the file itself goes along with what it became, as `original_payload`. What is done to the profiles later
    /// is not done to that, and files of which only the difference is taken (`delta`) are left out. Default: false.
    pub include_original: bool,
}

/// Labels that name a trace and a span, each as `KEY` or `KEY=FORMAT`. The formats are `hex` (the default: 32 digits for a
/// trace, 16 for a span) and `decimal` (a number of 64 bits, as Datadog's libraries write them). A sample with one label
/// for each gets a link instead of the labels; the first in a list that a sample has counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Links {
    /// Labels for the trace; an empty list: none. Default: `[trace_id]`.
    pub trace_id: Vec<String>,
    /// Labels for the span; an empty list: none. Default: `[span_id]`.
    pub span_id: Vec<String>,
}

impl Default for Links {
    fn default() -> Self {
        let keys = |labels: Vec<IdLabel>| labels.into_iter().map(|label| label.key).collect();
        let LinkLabels { trace, span } = LinkLabels::default();
        Links {
            trace_id: keys(trace),
            span_id: keys(span),
        }
    }
}

impl Links {
    /// What the reader of files is told. What is no label has been reported.
    pub(super) fn labels(&self) -> LinkLabels {
        let labels = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect();
        LinkLabels {
            trace: labels(&self.trace_id),
            span: labels(&self.span_id),
        }
    }
}

impl Validate for Links {
    fn validate(&self, problems: &mut Problems) {
        for (key, labels) in [("trace_id", &self.trace_id), ("span_id", &self.span_id)] {
            for (at, label) in labels.iter().enumerate() {
                if let Err(error) = label.parse::<IdLabel>() {
                    problems.error(&[key, &at.to_string()], error.to_string());
                }
            }
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            remote: Section(None),
            targets: Vec::new(),
            max_concurrent_scrapes: 256,
            delta_max_bytes: ByteSize::mib(256),
            adaptive: Section(None),
            server: Section(None),
            file: Section(None),
            own: Section(None),
            links: Links::default(),
            include_original: false,
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

/// What one small profile takes.
const LEAST_DELTA_BYTES: u64 = 64 << 10;

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
        if self.delta_max_bytes.0 < LEAST_DELTA_BYTES {
            problems.error(&["delta_max_bytes"], "must be at least 64KiB");
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
        problems.within("links", &self.links);
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

    fn uses_resource(&self) -> bool {
        self.own.is_some()
    }
}
