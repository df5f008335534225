//! The configuration of `pprof`. Each section is declared next to the code it configures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::FileConfig;
use super::pressure::Adaptive;
use super::scrape::{Remote, Target};
use super::server::ServerConfig;
use tributary_config::units::ByteSize;
use tributary_config::{Endpoint, ExtensionUse, Problems, Section, Validate};
use tributary_profiles::pprof::{IdLabel, LinkLabels, ReadOptions};

/// Receives pprof profiles. At least one of `remote`, `targets`, `file` and `server` is required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// URL of one profile to scrape at an interval. Default: off.
    pub remote: Section<Remote>,
    /// Servers to scrape profiles from at an interval. Default: none. (The Collector has no such key.)
    pub targets: Vec<Target>,
    /// Maximum number of concurrent requests of `remote` and `targets`; 0 disables the limit. The request for a CPU
    /// profile lasts as long as the profile. Default: 256. (The Collector has no such key.)
    pub max_concurrent_scrapes: usize,
    /// Memory for the previous profiles of all targets with `delta`, as in `256MiB`. At most a quarter of the memory
    /// budget is used, and the memory counts toward the budget. A profile with 300 stacks takes about 100 KB, one with
    /// 10,000 stacks 3 MB, and a Go target has four such profiles, so the default suffices for some hundred targets.
    /// Beyond the limit, the most recently added targets get no differences; the log reports this, and
    /// `tributary_receiver_pprof_forgotten_series` counts the affected series. At least 64KiB. Default: 256MiB. (The
    /// Collector has no such key.)
    pub delta_max_bytes: ByteSize,
    /// Lengthening of the intervals of `remote` and `targets` while the CPU is busy. Default: off. (The Collector has
    /// no such key.)
    pub adaptive: Section<Adaptive>,
    /// Server that receives profiles by `POST /v1/pprof`. Default: off.
    pub server: Section<ServerConfig>,
    /// Files to read profiles from. Default: off.
    pub file: Section<FileConfig>,
    /// Sample labels that contain trace and span ids and become links. (The Collector has no such key.)
    pub links: Links,
    /// Whether to add the received file as `original_payload`. Later changes to the profiles do not change the payload,
    /// and files reduced to their difference (`delta`) have no payload. Default: false. (The Collector has no such
    /// key.)
    pub include_original: bool,
    /// Whether to repair pprof files with invalid ids and references, as some profilers of .NET write them, instead of
    /// refusing them: references to missing entries are removed, and samples with a wrong number of values are dropped.
    /// `tributary_receiver_pprof_repairs` counts the repairs, and the log reports them. Default: false. (The Collector
    /// has no such key.)
    pub lenient: bool,
}

/// Sample labels that contain trace and span ids, each as `KEY` or `KEY=FORMAT`. The formats are
/// `hex` (the default: 32 digits for a trace, 16 for a span) and `decimal` (a 64-bit number, as
/// Datadog's libraries write it). A sample with a trace label and a span label gets a link in place
/// of the labels. If a sample has several labels of a list, the first in the list is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Links {
    /// Labels of trace ids; an empty list disables links. Default: `[trace_id]`.
    pub trace_id: Vec<String>,
    /// Labels of span ids; an empty list disables links. Default: `[span_id]`.
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
    /// Returns the labels for the pprof decoder. Invalid labels are skipped; validation has
    /// reported them.
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
            links: Links::default(),
            include_original: false,
            lenient: false,
        }
    }
}

impl Config {
    /// Returns the options for reading files, without the limit of a section.
    pub(super) fn read_options(&self) -> ReadOptions {
        ReadOptions {
            links: self.links.labels(),
            keep_original: self.include_original,
            lenient: self.lenient,
            ..ReadOptions::default()
        }
    }

    /// Whether any section is configured.
    fn has_sections(&self) -> bool {
        self.scrapes() || self.server.is_some() || self.file.is_some()
    }

    /// Whether any section scrapes.
    fn scrapes(&self) -> bool {
        self.remote.is_some() || !self.targets.is_empty()
    }
}

/// Memory of one small profile.
const LEAST_DELTA_BYTES: u64 = 64 << 10;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if !self.has_sections() {
            problems.error(
                &[],
                "at least one of remote, targets, file or server must be configured",
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
        problems.within("links", &self.links);
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
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

    fn removed_keys() -> &'static [(&'static str, &'static str)] {
        &[(
            "self",
            "the collector does not profile itself; profile its process from outside, for example with perf \
             or an eBPF profiler",
        )]
    }
}
