//! Redirects that are followed.

use std::net::SocketAddr;

use http::header::LOCATION;
use http::{HeaderMap, Uri};

use super::network::{connector, has_public_ip, host_and_port, is_local};
use super::{Attempt, Server};
use tributary_net::client::{Connector, host_of};

/// Returns the target of a redirect: an absolute URL, or a path on the same server. No known server sends the four
/// other forms.
pub(super) fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, Attempt> {
    let nowhere = || Attempt::Retryable(format!("{from} redirects without a valid target"));
    let location = headers.get(LOCATION).ok_or_else(nowhere)?;
    let location: Uri = location
        .to_str()
        .ok()
        .and_then(|location| location.parse().ok())
        .ok_or_else(nowhere)?;
    match (location.scheme(), location.authority()) {
        (Some(_), Some(_)) => Ok(location),
        (None, None) if location.path().starts_with('/') => {
            let mut parts = from.clone().into_parts();
            parts.path_and_query = location.into_parts().path_and_query;
            Uri::from_parts(parts).map_err(|_| nowhere())
        }
        _ => Err(nowhere()),
    }
}

impl Server {
    /// Whether a redirect to these addresses may be followed.
    pub(super) fn may_redirect(
        &self,
        outside: bool,
        to: &Uri,
        addresses: &[SocketAddr],
    ) -> Result<(), &'static str> {
        let is_private = !addresses.iter().all(has_public_ip);
        if addresses.iter().any(is_local) {
            Err("the target is a loopback or link-local address, to which redirects are refused")
        } else if is_private && outside {
            Err("the target is in a private network, to which public servers may not redirect")
        } else if is_private && !self.configured.contains(&host_and_port(to)) {
            Err("the target is in a private network and not one of `servers`")
        } else {
            Ok(())
        }
    }

    pub(super) fn redirect_connector(&self, url: &Uri) -> Result<Connector, String> {
        match (url.scheme_str(), &self.redirect_connector) {
            (Some("https"), Some((tls, source))) => {
                let name = tls.server_name(host_of(url));
                let name = name.map_err(|error| error.to_string())?;
                Ok(connector(url, Some((source.clone(), name))))
            }
            (Some("http"), None) => Ok(connector(url, None)),
            _ => Err("redirects to another scheme are not followed".to_owned()),
        }
    }
}
