//! The configuration.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use tributary_config::units::{ByteSize, Endpoint};
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;
use tributary_symbols::worker::WorkerLimits;

/// Receives uploads of binaries for symbolization. Uploaded binaries decide the function names in
/// profiles, so clients must authenticate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on. Default: `localhost:13135`.
    pub endpoint: Endpoint,
    /// TLS of the server. Default: off, plain text.
    pub tls: Section<ServerTls>,
    /// Authentication of clients. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Limits on clients. (The Collector has no such key.)
    pub limits: Limits,
    /// Directory of uploaded files, created if missing. Add this directory to `directories` of the
    /// processor `symbolication` as well. Default: `/var/lib/tributary/symbols`.
    pub directory: PathBuf,
    /// Maximum size of all files together; further uploads are refused. Files are never deleted automatically: remove
    /// unneeded files yourself. Above 0. Default: 20GiB.
    pub max_bytes: ByteSize,
    /// Maximum size of one file. Above 0. Default: 2GiB.
    pub max_upload_bytes: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            endpoint: Endpoint("localhost:13135".to_owned()),
            tls: Section::default(),
            auth: None,
            limits: Limits::default(),
            directory: PathBuf::from("/var/lib/tributary/symbols"),
            max_bytes: ByteSize::mib(20 << 10),
            max_upload_bytes: ByteSize::mib(2 << 10),
        }
    }
}

impl Config {
    /// Reading the build id of a file needs few resources.
    pub(super) fn worker_limits(&self) -> WorkerLimits {
        WorkerLimits {
            memory: 256 << 20,
            cpu: Duration::from_secs(10),
            input: self.max_upload_bytes.0,
            output: 0,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        if self.auth.is_none() {
            problems.error(
                &["auth"],
                "must be set, because uploads determine the function names in profiles; for example `auth: \
                 {authenticator: bearertokenauth}`",
            );
        }
        let (auth, host) = (self.auth.as_ref(), self.endpoint.host());
        auth::warn_about_plaintext(auth, self.tls.is_some(), host, problems);
        if !self.directory.is_absolute() {
            problems.error(
                &["directory"],
                "must be an absolute path, as in `/var/lib/tributary/symbols`",
            );
        }
        for (key, size) in [
            ("max_bytes", self.max_bytes),
            ("max_upload_bytes", self.max_upload_bytes),
        ] {
            if size.0 == 0 {
                problems.error(&[key], "must be above 0");
            }
        }
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter();
        auth.map(|auth| auth.server_use(&["auth"])).collect()
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        vec![(vec!["endpoint"], self.endpoint.clone())]
    }
}
