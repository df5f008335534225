//! The section `targets`: servers with several profiles each, configured or discovered.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::DnsSd;
use super::profile::ScrapedProfile;
use super::remote::MAX_BODY;
use crate::component::auth;
use crate::component::auth::Auth;
use crate::receivers::scraping::file_sd::FileSd;
pub use crate::receivers::scraping::scheme::Scheme;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{ExtensionUse, Headers, Problems, Validate};
use tributary_net::client::{host_of, parse_url};
use tributary_net::tls::ClientTls;

/// Servers with the same profiles, given by exactly one of `endpoint`, `file_sd` and `dns_sd`.
///
/// The resource of a profile describes the scraped server: the attributes of `resource`, the
/// discovered labels, `service.instance.id` (host and port; for `localhost`, the name of this
/// machine or pod and the port), and `service.name`: if it is not given, the file name of the
/// program according to the profile, or else the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// URL of a server, as in `http://localhost:6060`; a path in the URL is a prefix of each profile's path. Redirects
    /// are logged and not followed, so that credentials are not sent to another server. Exactly one of `endpoint`,
    /// `file_sd` and `dns_sd` is required. Default: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Files that list the servers. Their labels become resource attributes: `job` and `service_name` become
    /// `service.name`, `instance` becomes `service.instance.id`, all others keep their names. Of the labels that begin
    /// with `__`, `__scheme__` and `__profile_path__` replace `scheme` and `path_prefix`; all others are ignored.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_sd: Option<FileSd>,
    /// Host names whose addresses are the servers. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_sd: Option<DnsSd>,
    /// URL scheme of discovered servers: `http` or `https`. Default: `http`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// Path prefix of the profiles. Default: `/debug/pprof`.
    pub path_prefix: String,
    /// Profiles to scrape: names (`cpu`, `heap`, `allocs`, `goroutine`, `mutex`, `block`,
    /// `threadcreate`) or mappings with settings for each profile. Default: `cpu`, `heap` and
    /// `goroutine`.
    pub profiles: Vec<ScrapedProfile>,
    /// Interval of scrapes of each profile. The offset within the interval is fixed for each server and profile, so
    /// that scrapes are spread over time. While scrapes fail, the interval grows up to 2m. Above 0. Default: 1m.
    pub collection_interval: Duration,
    /// Timeout of a scrape, in addition to the `seconds` of the profile. Above 0. Default: 10s.
    pub timeout: Duration,
    /// Maximum size of a profile, both as received and after decompression. Above 0. Default: 20MiB.
    pub max_response_body_size: ByteSize,
    /// Whether to subtract the previous profile from cumulative ones (Go's `allocs`, `mutex` and
    /// `block`, and half of `heap`); the first profile is only remembered. CPU profiles and gauges
    /// are not changed. The remembered profiles of all targets use at most `delta_max_bytes`, and
    /// survive a reload of the configuration. Default: false.
    pub delta: bool,
    /// Resource attributes of all profiles. Default: none.
    pub resource: BTreeMap<String, String>,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// TLS settings for `https`.
    pub tls: ClientTls,
    /// Authentication to the servers. Default: none, only `headers` are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
}

impl Default for Target {
    fn default() -> Self {
        Target {
            endpoint: String::new(),
            file_sd: None,
            dns_sd: None,
            scheme: None,
            path_prefix: "/debug/pprof".to_owned(),
            profiles: ["cpu", "heap", "goroutine"]
                .map(ScrapedProfile::named)
                .into(),
            collection_interval: Duration::secs(60),
            timeout: Duration::secs(10),
            max_response_body_size: MAX_BODY,
            delta: false,
            resource: BTreeMap::new(),
            headers: Headers::default(),
            tls: ClientTls::default(),
            auth: None,
        }
    }
}

impl Target {
    /// Returns the extension that the target requires; `at` is the target's index in the list.
    pub(in super::super) fn uses(&self, at: usize) -> Option<ExtensionUse> {
        let auth = self.auth.as_ref()?;
        Some(auth.client_use(&["targets", &at.to_string(), "auth"]))
    }

    /// Whether the servers use TLS; `None` if each server's URL decides.
    pub(super) fn speaks_tls(&self) -> Option<bool> {
        match (self.endpoint.is_empty(), self.scheme) {
            (false, _) => Some(self.endpoint.starts_with("https://")),
            (true, Some(Scheme::Https)) => Some(true),
            (true, _) if self.file_sd.is_some() => None,
            (true, _) => Some(false),
        }
    }

    fn check_source(&self, problems: &mut Problems) {
        let given = [
            ("endpoint", !self.endpoint.is_empty()),
            ("file_sd", self.file_sd.is_some()),
            ("dns_sd", self.dns_sd.is_some()),
        ];
        let mut given = given.iter().filter(|(_, given)| *given);
        match (given.next(), given.next()) {
            (None, _) => {
                problems.error(&[], "one of `endpoint`, `file_sd` and `dns_sd` must be set")
            }
            (Some((one, _)), Some((other, _))) => problems.error(
                &[other],
                format!("cannot be combined with `{one}`: define two targets"),
            ),
            _ => {}
        }
        if !self.endpoint.is_empty() {
            if self.scheme.is_some() {
                problems.error(
                    &["scheme"],
                    "has no effect with `endpoint`, whose URL has a scheme: remove it",
                );
            }
            match parse_url(&self.endpoint) {
                Err(reason) => problems.error(&["endpoint"], reason),
                Ok(url) if url.query().is_some() => problems.error(
                    &["endpoint"],
                    "must be the URL of a server, without a query; for the URL of a profile, use `remote`",
                ),
                Ok(url) => {
                    let path = url.path().trim_end_matches('/');
                    let prefix = self.path_prefix.trim_end_matches('/');
                    if !prefix.is_empty() && path.contains(prefix) {
                        problems.error(
                            &["endpoint"],
                            format!("must not end with `{prefix}`, which `path_prefix` adds: remove it here"),
                        );
                    }
                    self.check_transport(
                        url.scheme_str() == Some("https"),
                        host_of(&url),
                        problems,
                    );
                }
            }
        } else {
            self.check_transport(self.scheme == Some(Scheme::Https), "", problems);
        }
    }

    fn check_transport(&self, tls: bool, host: &str, problems: &mut Problems) {
        match tls {
            true => self.tls.validate_for_tls("tls", problems),
            false => auth::warn_about_plaintext(self.auth.as_ref(), false, host, problems),
        }
    }
}

impl Validate for Target {
    fn validate(&self, problems: &mut Problems) {
        self.check_source(problems);
        if let Some(files) = &self.file_sd {
            problems.within("file_sd", files);
        }
        if let Some(names) = &self.dns_sd {
            problems.within("dns_sd", names);
        }
        if self.collection_interval.is_zero() {
            problems.error(&["collection_interval"], "must be above 0");
        }
        if self.timeout.is_zero() {
            let message = "must be above 0";
            problems.error(&["timeout"], message);
        }
        if self.max_response_body_size.0 == 0 {
            problems.error(&["max_response_body_size"], "must be above 0");
        }
        let prefix = &self.path_prefix;
        if !prefix.is_empty() && prefix.parse::<http::uri::PathAndQuery>().is_err() {
            let message = format!("`{prefix}` is not a path: write it as in `/debug/pprof`");
            problems.error(&["path_prefix"], message);
        }
        if self.profiles.is_empty() {
            problems.error(
                &["profiles"],
                "must not be empty: list at least one profile",
            );
        }
        let mut names = Vec::new();
        for (at, profile) in self.profiles.iter().enumerate() {
            let at = at.to_string();
            let mut inner = Problems::default();
            profile.check(self.collection_interval, &mut inner);
            if names.contains(&&profile.0.name) {
                let name = &profile.0.name;
                inner.error(&[], format!("the profile `{name}` is listed twice"));
            }
            names.push(&profile.0.name);
            problems.extend(&["profiles", &at], inner);
        }
        for key in self.resource.keys().filter(|key| key.is_empty()) {
            problems.error(
                &["resource", key],
                "the name of an attribute must not be empty",
            );
        }
    }
}
