//! The section `remote`: the Collector's, one URL.

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use tributary_compression::compress::CompressionParams;
use tributary_compression::http::Compression;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{ExtensionUse, Headers, Problems, Validate};
use tributary_net::client::{ClientOptions, host_of, parse_url};
use tributary_net::tls::ClientTls;

/// The most bytes of a profile, unless it is said: the Collector's figure for request bodies.
pub(super) const MAX_BODY: ByteSize = ByteSize::mib(20);

/// Takes one profile from one URL, again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Remote {
    /// The URL of the profile, as in `http://localhost:6060/debug/pprof/profile?seconds=5`. Required. Redirects are not
    /// followed, so that credentials do not go elsewhere: the log says where they lead.
    pub endpoint: String,
    /// How often it is taken. While it cannot be had this gets longer, up to 2m. Default: 10s.
    pub collection_interval: Duration,
    /// When it is taken first. Default: 1s.
    pub initial_delay: Duration,
    /// How long it may take in all; 0: the `seconds` in the URL (30 for `/profile` without) and 10s. Default: 0.
    pub timeout: Duration,
    /// The most bytes a profile may have, as it comes and decompressed. (The Collector has no such key.) Default: 20MiB.
    pub max_response_body_size: ByteSize,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// TLS, for `https://`.
    pub tls: ClientTls,
    /// What says to the server who we are. Absent: nothing but `headers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Whether HTTP/2 is offered in the TLS handshake; plaintext is always HTTP/1.1. Default: true.
    pub force_attempt_http2: bool,
    /// How many idle connections are kept in all; 0 is no limit. Default: 100.
    pub max_idle_conns: usize,
    /// How many idle connections are kept to the host; 0 is no limit of its own. Default: 0.
    pub max_idle_conns_per_host: usize,
    /// Has no effect, and gives a warning: there is never more than one request. Default: 0.
    pub max_conns_per_host: usize,
    /// How long an idle connection is kept; 0 is forever. Default: 90s.
    pub idle_conn_timeout: Duration,
    /// Whether every request gets a connection of its own. Default: false.
    pub disable_keep_alives: bool,
    /// How long an HTTP/2 connection may be silent before it is pinged; 0 is never. Default: 0.
    pub http2_read_idle_timeout: Duration,
    /// How long to wait for the answer to a ping before the connection counts as dead. Default: 15s.
    pub http2_ping_timeout: Duration,
    /// Bytes the server may send ahead of our reading over HTTP/2 (its window), at least 65535; 0 is the default.
    /// Default: 0, which is 524288.
    pub read_buffer_size: u32,
    /// Has no effect, and gives a warning: the requests have no bodies. Default: 0.
    pub write_buffer_size: u32,
    /// Has no effect, and gives a warning: the requests have no bodies. Default: `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Has no effect, and gives a warning: the requests have no bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_params: Option<CompressionParams>,
}

impl Default for Remote {
    fn default() -> Self {
        Remote {
            endpoint: String::new(),
            collection_interval: Duration::secs(10),
            initial_delay: Duration::secs(1),
            timeout: Duration::secs(0),
            max_response_body_size: MAX_BODY,
            headers: Headers::default(),
            tls: ClientTls::default(),
            auth: None,
            force_attempt_http2: true,
            max_idle_conns: 100,
            max_idle_conns_per_host: 0,
            max_conns_per_host: 0,
            idle_conn_timeout: Duration::secs(90),
            disable_keep_alives: false,
            http2_read_idle_timeout: Duration::secs(0),
            http2_ping_timeout: Duration::secs(15),
            read_buffer_size: 0,
            write_buffer_size: 0,
            compression: None,
            compression_params: None,
        }
    }
}

impl Remote {
    /// The extension it cannot work without.
    pub(in super::super) fn uses(&self) -> Option<ExtensionUse> {
        let auth = self.auth.as_ref()?;
        Some(auth.client_use(&["remote", "auth"]))
    }

    pub(super) fn options(&self) -> ClientOptions {
        let no_limit = |count: usize| match count {
            0 => usize::MAX,
            count => count,
        };
        let defaults = ClientOptions::default();
        ClientOptions {
            max_idle_per_host: match self.disable_keep_alives {
                true => 0,
                false => no_limit(self.max_idle_conns).min(no_limit(self.max_idle_conns_per_host)),
            },
            idle_timeout: self.idle_conn_timeout.unless_zero(),
            ping_interval: self.http2_read_idle_timeout.unless_zero(),
            ping_timeout: *self.http2_ping_timeout,
            window: match self.read_buffer_size {
                0 => defaults.window,
                bytes => bytes,
            },
            ..defaults
        }
    }
}

/// What a URL says about the profile behind it: its name, and how long it takes.
pub(super) fn described(url: &Uri) -> (String, Option<std::time::Duration>) {
    let last = url.path().rsplit('/').next().unwrap_or_default();
    let query = url.query().unwrap_or_default().split('&');
    let mut seconds = query.filter_map(|pair| pair.strip_prefix("seconds="));
    let seconds = seconds.find_map(|seconds| seconds.parse().ok());
    let (name, default) = match last {
        "profile" => ("cpu", Some(30)),
        "" => ("profile", None),
        other => (other, None),
    };
    let takes = seconds.or(default).filter(|seconds| *seconds > 0);
    (name.to_owned(), takes.map(std::time::Duration::from_secs))
}

impl Validate for Remote {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.is_empty() {
            problems.error(
                &["endpoint"],
                "remote.endpoint must be specified: the URL of a profile, as in \
                 http://localhost:6060/debug/pprof/heap",
            );
        } else {
            match parse_url(&self.endpoint) {
                Err(reason) => problems.error(&["endpoint"], reason),
                Ok(url) => self.check_url(&url, problems),
            }
        }
        if self.collection_interval.is_zero() {
            problems.error(&["collection_interval"], "must be above 0");
        }
        if self.max_response_body_size.0 == 0 {
            problems.error(&["max_response_body_size"], "must be above 0");
        }
        if self.http2_ping_timeout.is_zero() && !self.http2_read_idle_timeout.is_zero() {
            problems.error(&["http2_ping_timeout"], "must be above 0");
        }
        if !matches!(self.read_buffer_size, 0 | 65_535..=0x7fff_ffff) {
            problems.error(
                &["read_buffer_size"],
                "must be 0, or from 65535 to 2147483647",
            );
        }
        self.check_unused(problems);
    }
}

impl Remote {
    /// Warns of keys that are the Collector's and mean nothing here.
    fn check_unused(&self, problems: &mut Problems) {
        const NO_BODIES: &str = "the requests have no bodies";
        let compression = !matches!(self.compression, None | Some(Compression::None));
        for (key, given, why) in [
            (
                "max_conns_per_host",
                self.max_conns_per_host != 0,
                "there is never more than one request",
            ),
            ("write_buffer_size", self.write_buffer_size != 0, NO_BODIES),
            ("compression", compression, NO_BODIES),
            (
                "compression_params",
                self.compression_params.is_some(),
                NO_BODIES,
            ),
        ] {
            if given {
                let message = format!("has no effect: {why}; remove it to silence this");
                problems.warning(&[key], message);
            }
        }
    }

    fn check_url(&self, url: &Uri, problems: &mut Problems) {
        let tls = url.scheme_str() == Some("https");
        match tls {
            true => self.tls.validate_for_tls("tls", problems),
            false => auth::warn_of_plaintext(self.auth.as_ref(), false, host_of(url), problems),
        }
        if url.path() == "/" {
            problems.warning(
                &["endpoint"],
                "this is a server and not a profile: `remote` needs the whole URL, as in \
                 http://localhost:6060/debug/pprof/heap; `targets` takes several profiles of a server",
            );
        }
        if let (_, Some(takes)) = described(url)
            && let Some(timeout) = self.timeout.unless_zero()
            && timeout <= takes
        {
            problems.error(
                &["timeout"],
                format!(
                    "must be longer than the {} seconds that the profile takes",
                    takes.as_secs()
                ),
            );
        }
    }
}
