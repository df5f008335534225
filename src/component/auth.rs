//! Authentication of servers and clients, and the `auth` section that names an authenticator.
//!
//! An authenticator is an extension. On a server, the authenticator checks the headers of every request before the body
//! is read. On a client, the authenticator adds headers to every request. Both run for every request and do not
//! allocate.

use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::{BuildContext, BuildError};
use tributary_config::{Capability, ComponentId, ExtensionUse, Problems};
use tributary_net::Owner;
use tributary_net::auth::{ClientAuthenticator, Guard};

/// Authentication by an extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Id of the extension that authenticates, for example `bearertokenauth` or `basicauth/clients`. The extension must
    /// be listed in `service.extensions`.
    pub authenticator: ComponentId,
}

impl Auth {
    /// Returns the extension that a server with this section needs. `section` is the path of the section.
    pub fn server_use(&self, section: &[&str]) -> ExtensionUse {
        self.uses(section, Capability::ServerAuth)
    }

    /// Returns the extension that a client with this section needs. `section` is the path of the section.
    pub fn client_use(&self, section: &[&str]) -> ExtensionUse {
        self.uses(section, Capability::ClientAuth)
    }

    fn uses(&self, section: &[&str], capability: Capability) -> ExtensionUse {
        let keys = section.iter().chain(&["authenticator"]);
        let path = keys.map(|key| (*key).to_owned()).collect();
        ExtensionUse {
            path,
            extension: self.authenticator.clone(),
            capability,
        }
    }
}

/// Returns the guard of a server of the component `cx.id`, if the configuration has an `auth` section.
///
/// # Errors
/// The extension does not exist or cannot authenticate clients. A validated configuration never fails here.
pub fn guard(
    auth: Option<&Auth>,
    cx: &BuildContext,
    owner: &Owner,
) -> Result<Option<Guard>, BuildError> {
    let Some(Auth { authenticator }) = auth else {
        return Ok(None);
    };
    let found = cx.extensions.get(authenticator).server_auth;
    let found = found.ok_or_else(|| unable(authenticator, Capability::ServerAuth))?;
    Ok(Some(Guard::new(found, owner.clone())))
}

/// Returns the authenticator for the requests of a client, if the configuration has an `auth` section.
///
/// # Errors
/// See [`guard`].
pub fn client(
    auth: Option<&Auth>,
    cx: &BuildContext,
) -> Result<Option<Arc<dyn ClientAuthenticator>>, BuildError> {
    let Some(Auth { authenticator }) = auth else {
        return Ok(None);
    };
    let found = cx.extensions.get(authenticator).client_auth;
    let found = found.ok_or_else(|| unable(authenticator, Capability::ClientAuth))?;
    Ok(Some(found))
}

fn unable(id: &ComponentId, capability: Capability) -> BuildError {
    let lack = capability.does_not();
    BuildError(format!(
        "auth::authenticator: the extension `{id}` is not running, or {lack}"
    ))
}

/// Warns about credentials that cross a network without TLS. `host` is empty for all interfaces.
pub fn warn_about_plaintext(auth: Option<&Auth>, tls: bool, host: &str, problems: &mut Problems) {
    if auth.is_some() && !tls && !is_loopback(host) {
        problems.warning(
            &["auth"],
            "the credentials are sent unencrypted: configure `tls`, or use `localhost`",
        );
    }
}

/// Whether `host` is a loopback address.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unencrypted_credentials_cause_warning_except_on_localhost() {
        let auth = Auth {
            authenticator: "bearertokenauth".parse().unwrap(),
        };
        let warned = |auth, tls, host| {
            let mut problems = Problems::default();
            warn_about_plaintext(auth, tls, host, &mut problems);
            assert!(problems.found().iter().all(|problem| problem.warning));
            !problems.found().is_empty()
        };
        for host in [
            "",
            "0.0.0.0",
            "::",
            "192.0.2.1",
            "rack.example",
            "localhost.example",
        ] {
            assert!(warned(Some(&auth), false, host), "{host}");
            assert!(!warned(Some(&auth), true, host), "{host}");
            assert!(!warned(None, false, host), "{host}");
        }
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"] {
            assert!(!warned(Some(&auth), false, host), "{host}");
        }
    }
}
