//! Pages that show the running pipelines and the stored profiles, and the APIs behind the pages.
//!
//! ```text
//! request -> Host, authentication -> page file | snapshot of the pipelines | configuration | profile API
//! ```

mod files;
mod handler;
mod snapshot;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::handler::Console;
use crate::component::auth::{self, Auth, is_loopback};
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::shared;
use crate::serving::HttpEndpoint;
use tributary_config::units::Endpoint;
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::Owner;
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "console",
    aliases: &[],
    "Serves pages that show the running pipelines and the stored profiles.",
    &[],
    collector: Origin::Own,
    metrics: &[shared::SERVER, shared::TLS]
);

/// Pages for browsers: the graph of the running pipelines with rates, queues and errors, and the stored profiles as flame
/// graphs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on. An address that other machines can reach needs `auth`, or `tls` with `client_ca_file`.
    /// Default: `localhost:55679`.
    pub endpoint: Endpoint,
    /// TLS of the server. Default: off, plain text.
    pub tls: Section<ServerTls>,
    /// Authentication of clients. Default: none, every user of this machine can read the pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Limits on clients.
    pub limits: Limits,
    /// Host names of requests that are answered without authentication, beside `localhost` and IP addresses. Needed if a
    /// proxy passes its own host name. Other names are refused, so that a page of another site cannot read the console by
    /// a name that resolves to this machine. Default: none.
    pub allowed_hosts: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            endpoint: Endpoint("localhost:55679".to_owned()),
            tls: Section::default(),
            auth: None,
            limits: Limits::default(),
            allowed_hosts: Vec::new(),
        }
    }
}

impl Config {
    /// Whether the server authenticates its clients.
    pub(super) fn authenticates(&self) -> bool {
        let tls = self.tls.as_ref();
        self.auth.is_some() || tls.is_some_and(|tls| !tls.client_ca_file.as_os_str().is_empty())
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let host = self.endpoint.host();
        if !is_loopback(host) && !self.authenticates() {
            problems.error(
                &["endpoint"],
                format!(
                    "`{}` can be reached from other machines, and the console shows the configuration and the profiles: set \
                     `auth`, or `tls` with `client_ca_file`, or listen on `localhost`",
                    self.endpoint.0
                ),
            );
        }
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        auth::warn_about_plaintext(self.auth.as_ref(), self.tls.is_some(), host, problems);
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter();
        auth.map(|auth| auth.server_use(&["auth"])).collect()
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        vec![(vec!["endpoint"], self.endpoint.clone())]
    }
}

impl ExtensionConfig for Config {
    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        self.serve(cx, false)
    }
}

impl Config {
    /// Builds the server. With `is_local_only`, clients of other machines are refused.
    ///
    /// # Errors
    /// The address, a file of `tls` or the authenticator is not usable.
    pub(super) fn serve(
        &self,
        cx: &BuildContext,
        is_local_only: bool,
    ) -> Result<Extension, BuildError> {
        let owner = Owner::new(&cx.id, "extension").with_transport("http");
        let guard = auth::guard(self.auth.as_ref(), cx, &owner)?;
        let handler = Console::new(self, cx, guard, is_local_only);
        let http = HttpEndpoint {
            endpoint: &self.endpoint,
            tls: &self.tls,
            limits: &self.limits,
        };
        Ok(Extension {
            component: Box::new(http.serve(handler, cx, owner)?),
            services: Services::default(),
        })
    }
}
