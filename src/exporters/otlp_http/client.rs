//! The HTTP client of the exporter, from its configuration.

use std::collections::HashMap;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

use super::config::{Config, Encoding};
use super::response::{JSON, PROTOBUF};
use tributary_net::client::{ClientOptions, Connector, RenewingClient, host_of};
use tributary_net::tls::TlsError;
use tributary_net::tls::rotation::RotatingClient;

/// Returns the protocols to offer in a TLS handshake.
pub(super) fn alpn(config: &Config) -> &'static [&'static [u8]] {
    match config.force_attempt_http2 {
        true => &[b"h2", b"http/1.1"],
        false => &[b"http/1.1"],
    }
}

/// Returns the connector to the host of `url`; it uses `tls` if the URL is HTTPS.
pub(super) fn connector(
    config: &Config,
    url: &Uri,
    tls: Option<&RotatingClient>,
) -> Result<Connector, TlsError> {
    let host = host_of(url);
    let Some(tls) = tls.filter(|_| Config::is_tls(url)) else {
        return Ok(Connector::new(host, url.port_u16().unwrap_or(80), None));
    };
    let tls = (tls.clone(), config.tls.server_name(host)?);
    Ok(Connector::new(
        host,
        url.port_u16().unwrap_or(443),
        Some(tls),
    ))
}

/// Returns the client of some hosts.
pub(super) fn client(
    config: &Config,
    hosts: HashMap<Authority, Connector>,
    tls: Option<RotatingClient>,
) -> RenewingClient {
    let no_limit = |count: usize| match count {
        0 => usize::MAX,
        count => count,
    };
    let fair_share = no_limit(config.max_idle_conns).div_ceil(hosts.len().max(1));
    let idle = match config.disable_keep_alives {
        true => 0,
        false => no_limit(config.max_idle_conns_per_host).min(fair_share),
    };
    let options = ClientOptions {
        max_idle_per_host: idle,
        idle_timeout: config.idle_conn_timeout.unless_zero(),
        ping_interval: config.http2_read_idle_timeout.unless_zero(),
        ping_timeout: *config.http2_ping_timeout,
        window: match config.read_buffer_size {
            0 => ClientOptions::default().window,
            bytes => bytes,
        },
        send_buffer: usize::try_from(config.write_buffer_size)
            .ok()
            .filter(|bytes| *bytes > 0),
    };
    options.client(hosts, tls)
}

/// Returns the headers of every request. Configured headers replace the defaults, except those that describe the
/// body.
pub(super) fn headers(config: &Config) -> HeaderMap {
    let mut headers = config.headers.to_map();
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!(
            "tributary/",
            env!("CARGO_PKG_VERSION")
        )));
    let content_type = match config.encoding {
        Encoding::Proto => PROTOBUF,
        Encoding::Json => JSON,
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.remove(CONTENT_ENCODING);
    if let Some(encoding) = config.compression.name() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    headers
}
