//! `zpages`: the console under the name and with the keys of the Collector's extension.
//!
//! Published configurations let `zpages` listen on all interfaces without authentication. The console shows more than the
//! Collector's pages, so in that case it serves clients on this machine only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::console;
use crate::component::auth::{self, Auth, is_loopback};
use crate::component::{BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin};
use crate::entry;
use crate::metric::shared;
use tributary_config::units::Endpoint;
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "zpages",
    aliases: &[],
    "Serves the pages of `console`, with the Collector's keys.",
    &[],
    collector: Origin::Core,
    metrics: &[shared::SERVER, shared::TLS]
);

/// The console under the Collector's name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on. Without `auth`, and without `tls` with `client_ca_file`, only clients on this machine are
    /// served. Default: `localhost:55679`.
    pub endpoint: Endpoint,
    /// TLS of the server. Default: off, plain text.
    pub tls: Section<ServerTls>,
    /// Authentication of clients. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Limits on clients. (The Collector has no such key.)
    pub limits: Limits,
    /// Variables of Go programs at `/debug/vars`. There are none here: see own metrics.
    pub expvar: Expvar,
}

/// Variables of Go programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Expvar {
    /// Has no effect: this is no Go program. Default: false.
    pub enabled: bool,
}

impl Default for Config {
    fn default() -> Self {
        let console::Config {
            endpoint,
            tls,
            auth,
            limits,
            ..
        } = console::Config::default();
        Config {
            endpoint,
            tls,
            auth,
            limits,
            expvar: Expvar::default(),
        }
    }
}

impl Config {
    fn console(&self) -> console::Config {
        console::Config {
            endpoint: self.endpoint.clone(),
            tls: self.tls.clone(),
            auth: self.auth.clone(),
            limits: self.limits.clone(),
            ..console::Config::default()
        }
    }

    /// Whether unknown clients of other machines can reach the server.
    fn is_exposed(&self) -> bool {
        !is_loopback(self.endpoint.host()) && !self.console().authenticates()
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.is_exposed() {
            problems.warning(
                &["endpoint"],
                format!(
                    "`{}` can be reached from other machines, and no client is authenticated: only clients on this machine \
                     are served. For others set `auth`, or `tls` with `client_ca_file`",
                    self.endpoint.0
                ),
            );
        }
        if self.expvar.enabled {
            let message = "has no effect: this is no Go program; see the collector's own metrics";
            problems.warning(&["expvar", "enabled"], message);
        }
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        let host = self.endpoint.host();
        auth::warn_about_plaintext(self.auth.as_ref(), self.tls.is_some(), host, problems);
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.console().uses_extensions()
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        self.console().listens_on()
    }
}

impl ExtensionConfig for Config {
    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        self.console().serve(cx, self.is_exposed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposed_address_is_a_warning_not_an_error() {
        let config: Config =
            serde_yaml::from_str("{endpoint: '0.0.0.0:55679', expvar: {enabled: true}}").unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found: Vec<_> = problems
            .found()
            .iter()
            .map(|problem| (problem.path.join("::"), problem.warning))
            .collect();
        let expected = ["endpoint", "expvar::enabled"].map(|key| (key.to_owned(), true));
        assert_eq!(found, expected);
        assert!(crate::testing::problems::<Config>("{}").is_empty());
    }
}
