//! The section `remote`, compatible with the Collector: one URL to scrape.

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

/// Default maximum size of a profile: the Collector's default for request bodies.
pub(super) const MAX_BODY: ByteSize = ByteSize::mib(20);

/// Scrapes one profile from one URL at an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Remote {
    /// URL of the profile, as in `http://localhost:6060/debug/pprof/profile?seconds=5`. Redirects are logged and not
    /// followed, so that credentials are not sent to another server. Required.
    pub endpoint: String,
    /// Interval of scrapes. While scrapes fail, the interval grows up to 2m. Above 0. Default: 10s.
    pub collection_interval: Duration,
    /// Delay of the first scrape. Default: 1s.
    pub initial_delay: Duration,
    /// Timeout of a scrape; 0 means the `seconds` of the URL (30 for `/profile` without `seconds`)
    /// plus 10s. Default: 0.
    pub timeout: Duration,
    /// Maximum size of a profile, both as received and after decompression. Above 0. Default: 20MiB. (The Collector has
    /// no such key.)
    pub max_response_body_size: ByteSize,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// TLS settings for `https://`.
    pub tls: ClientTls,
    /// Authentication to the server. Default: none, only `headers` are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Whether the TLS handshake offers HTTP/2; plain text connections always use HTTP/1.1.
    /// Default: true.
    pub force_attempt_http2: bool,
    /// Maximum number of idle connections; 0 disables the limit. Default: 100.
    pub max_idle_conns: usize,
    /// Maximum number of idle connections to the host; 0 disables the limit. Default: 0.
    pub max_idle_conns_per_host: usize,
    /// Has no effect and causes a warning: at most one request is in progress. Default: 0.
    pub max_conns_per_host: usize,
    /// Time after which an idle connection is closed; 0 disables the timeout. Default: 1m30s.
    pub idle_conn_timeout: Duration,
    /// Whether every request uses a new connection. Default: false.
    pub disable_keep_alives: bool,
    /// Idle time after which an HTTP/2 connection is pinged; 0 disables pings. Default: 0.
    pub http2_read_idle_timeout: Duration,
    /// Time to wait for the answer to a ping before the connection is closed. Above 0. Default: 15s.
    pub http2_ping_timeout: Duration,
    /// Bytes that the server may send over HTTP/2 before the collector reads them (the flow control
    /// window), at least 65535; 0 means 524288. Default: 0.
    pub read_buffer_size: u32,
    /// Has no effect and causes a warning: requests have no bodies. Default: 0.
    pub write_buffer_size: u32,
    /// Has no effect and causes a warning: requests have no bodies. Default: `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Has no effect and causes a warning: requests have no bodies. Default: none.
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
    /// Returns the extension that the section requires.
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

/// Returns the name and the duration of the profile that a URL describes.
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
    /// Warns of the Collector's keys that have no effect here.
    fn check_unused(&self, problems: &mut Problems) {
        const NO_BODIES: &str = "requests have no bodies";
        let compression = !matches!(self.compression, None | Some(Compression::None));
        for (key, given, why) in [
            (
                "max_conns_per_host",
                self.max_conns_per_host != 0,
                "there is at most one request at a time",
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
                let message = format!("has no effect: {why}; remove it");
                problems.warning(&[key], message);
            }
        }
    }

    fn check_url(&self, url: &Uri, problems: &mut Problems) {
        let tls = url.scheme_str() == Some("https");
        match tls {
            true => self.tls.validate_for_tls("tls", problems),
            false => auth::warn_about_plaintext(self.auth.as_ref(), false, host_of(url), problems),
        }
        if url.path() == "/" {
            problems.warning(
                &["endpoint"],
                "must be the URL of a profile, as in http://localhost:6060/debug/pprof/heap; for several profiles \
                 of a server, use `targets`",
            );
        }
        if let (_, Some(takes)) = described(url)
            && let Some(timeout) = self.timeout.unless_zero()
            && timeout <= takes
        {
            problems.error(
                &["timeout"],
                format!(
                    "must be longer than the {} seconds of the profile",
                    takes.as_secs()
                ),
            );
        }
    }
}
