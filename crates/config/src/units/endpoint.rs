//! Network addresses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Address to listen on or connect to: `host:port`. An empty host means all interfaces when listening.
// Any text is accepted here, because the valid form depends on the use: endpoints in `Validate::listens_on` are checked
// with `check` during decoding, and clients may accept a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Endpoint(pub String);

impl Endpoint {
    /// Creates an endpoint from its parts. An IPv6 host gets brackets.
    pub fn new(host: &str, port: u16) -> Self {
        if host.contains(':') && !host.starts_with('[') {
            Endpoint(format!("[{host}]:{port}"))
        } else {
            Endpoint(format!("{host}:{port}"))
        }
    }

    /// Returns the host without brackets; empty for all interfaces.
    pub fn host(&self) -> &str {
        self.parts().map_or("", |(host, _)| host)
    }

    /// Returns the port, if it is valid.
    pub fn port(&self) -> Option<u16> {
        parse_port(self.parts().ok()?.1)
    }

    /// Checks that the endpoint is an address to listen on or connect to: `host:port`, without a scheme.
    ///
    /// # Errors
    /// A sentence that describes the mistake.
    pub fn check(&self) -> Result<(), String> {
        let text = &self.0;
        if text.is_empty() {
            return Err("the endpoint is empty: write `host:port`".to_owned());
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(format!(
                "an endpoint is `host:port` without a scheme: write `{}` instead of \
                 `{scheme}://...`",
                rest.trim_end_matches('/')
            ));
        }
        let (host, port) = self.parts()?;
        if let Some(letter) = host.chars().find(|letter| !is_host_letter(*letter)) {
            return Err(format!(
                "`{letter}` is not allowed in a host name: write `host:port`"
            ));
        }
        if parse_port(port).is_none() {
            return Err(format!(
                "`{port}` is not a port: ports are numbers from 0 to 65535"
            ));
        }
        Ok(())
    }

    fn parts(&self) -> Result<(&str, &str), String> {
        let text = self.0.as_str();
        if let Some(rest) = text.strip_prefix('[') {
            let Some((host, rest)) = rest.split_once(']') else {
                return Err(format!("`{text}` has a `[` without a `]`"));
            };
            return match rest.strip_prefix(':') {
                Some(port) => Ok((host, port)),
                None => Err(format!("`{text}` has no port: write `[{host}]:port`")),
            };
        }
        match text.rsplit_once(':') {
            None => Err(format!("`{text}` has no port: write `{text}:port`")),
            Some((host, _)) if host.contains(':') => Err(format!(
                "`{text}` has several colons: an IPv6 address goes in brackets, as in `[::1]:4317`"
            )),
            Some(parts) => Ok(parts),
        }
    }
}

fn is_host_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':' | '%' | '*')
}

fn parse_port(text: &str) -> Option<u16> {
    // `parse` would accept a sign.
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_has_host_and_port() {
        for (text, host, port) in [
            ("localhost:4317", "localhost", 4317),
            (":4317", "", 4317),
            ("[::1]:4317", "::1", 4317),
            ("0.0.0.0:0", "0.0.0.0", 0),
        ] {
            let endpoint = Endpoint(text.to_owned());
            assert_eq!(endpoint.check(), Ok(()), "{text}");
            assert_eq!(
                (endpoint.host(), endpoint.port()),
                (host, Some(port)),
                "{text}"
            );
            assert_eq!(Endpoint::new(host, port), endpoint);
        }
    }

    #[test]
    fn invalid_address_has_a_reason() {
        for (text, part) in [
            ("", "empty"),
            ("localhost", "no port"),
            ("localhost:", "not a port"),
            ("localhost:70000", "0 to 65535"),
            ("localhost:+1", "not a port"),
            ("::1:4317", "brackets"),
            ("[::1", "without a `]`"),
            ("[::1]", "no port"),
            ("http://localhost:4318/", "write `localhost:4318`"),
            ("a b:1", "host name"),
        ] {
            let error = Endpoint(text.to_owned()).check().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
