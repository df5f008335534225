//! Code shared by all HTTP exporters: connecting, connection pools, bodies, headers.

mod body;
mod connect;
mod connect_error;
mod cookies;
mod dial;
mod options;
mod pool;
mod proxy;
mod renewing;
mod stream;

use http::Uri;

pub use body::{Chunks, coalesce};
pub use connect::{ConnectError, Connector, Stream, split_host_port};
pub use cookies::CookieJar;
pub use dial::Dialer;
pub use options::ClientOptions;
pub use pool::{Balancing, Pool, PoolSettings, RequestError};
pub use proxy::Proxy;
pub use renewing::RenewingClient;

/// Parses the URL of an HTTP server. The URL must have a host.
///
/// # Errors
/// A sentence that describes the mistake.
pub fn parse_url(url: &str) -> Result<Uri, String> {
    if !url.contains("://") {
        return Err(format!("\"{url}\" must begin with http:// or https://"));
    }
    let parsed: Uri = url
        .parse()
        .map_err(|error| format!("\"{url}\" is not a URL: {error}"))?;
    let authority = parsed
        .authority()
        .map_or("", |authority| authority.as_str());
    match parsed.scheme_str() {
        Some("http" | "https") if authority.contains('@') => {
            Err("a user name in the URL is not supported; use an `authorization` header".to_owned())
        }
        Some("http" | "https") if !authority.is_empty() => Ok(parsed),
        _ => Err(format!(
            "\"{url}\" must begin with http:// or https:// and a host"
        )),
    }
}

/// Returns the host of a URL, an IPv6 address without its brackets.
pub fn host_of(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

/// Returns the text of an error with all its causes, each once.
pub fn full_error(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.ends_with(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        cause = error.source();
    }
    text
}

#[cfg(any(test, feature = "testing"))]
pub mod test_server;
