//! The configuration of `pyroscope`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serving::keys::http_server_section;
use tributary_config::{Endpoint, ExtensionUse, Problems, Section, Validate};

/// Receives profiles of Pyroscope's agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Transports to listen with.
    pub protocols: PyroscopeProtocols,
    /// Resource attribute with the tenant of the request, which is the value of its header `X-Scope-OrgID`. Labels of
    /// profiles never set this attribute. An empty name ignores the header. Default: `tenant.id`.
    pub tenant_attribute: String,
}

/// The transports of Pyroscope's agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PyroscopeProtocols {
    /// `POST /ingest`, and `push.v1.PusherService/Push` over Connect and gRPC, on one port. Default: on.
    pub http: Section<PyroscopeHttpConfig>,
}

http_server_section! {
    /// The server for HTTP/1.1 and HTTP/2. `max_request_body_size` also limits the profiles of a request, in total, after
    /// decompression.
    pub struct PyroscopeHttpConfig {
        /// Address to listen on. Default: `localhost:4040`.
        endpoint = "localhost:4040",
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            protocols: PyroscopeProtocols::default(),
            tenant_attribute: "tenant.id".to_owned(),
        }
    }
}

impl Default for PyroscopeProtocols {
    fn default() -> Self {
        PyroscopeProtocols {
            http: Section(Some(PyroscopeHttpConfig::default())),
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        match &*self.protocols.http {
            None => problems.error(
                &["protocols", "http"],
                "must not be disabled: `http` is the only protocol of this receiver",
            ),
            Some(http) => {
                let mut inner = Problems::default();
                http.validate_server("0.0.0.0:4040", &mut inner);
                problems.extend(&["protocols", "http"], inner);
            }
        }
        if self.tenant_attribute.chars().any(char::is_control) {
            problems.error(&["tenant_attribute"], "must not contain control characters");
        }
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let http = self.protocols.http.iter();
        let http = http.filter(|http| !http.endpoint.0.is_empty());
        let path = || vec!["protocols", "http", "endpoint"];
        http.map(|http| (path(), http.endpoint.clone())).collect()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let http = self.protocols.http.as_ref();
        let auth = http.and_then(|http| http.auth.as_ref());
        let auth = auth.map(|auth| auth.server_use(&["protocols", "http", "auth"]));
        auth.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        crate::testing::problems::<Config>(yaml)
    }

    #[test]
    fn empty_configuration_listens_like_pyroscope() {
        let config: Config = serde_yaml::from_str("{}").unwrap();
        let [(_, endpoint)] = &config.listens_on()[..] else {
            panic!("{config:?}");
        };
        assert_eq!(endpoint.0, "localhost:4040");
        assert_eq!(problems("{}"), Vec::<String>::new());
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        let yaml =
            "protocols: {http: {endpoint: '', transport: udp, compression_algorithms: [br]}}";
        let http = "protocols::http";
        let expected = ["endpoint", "transport", "compression_algorithms::0"];
        let expected = expected.map(|key| format!("{http}::{key}"));
        assert_eq!(problems(yaml), expected);
        assert_eq!(
            problems("tenant_attribute: \"a\\nb\""),
            ["tenant_attribute"]
        );
    }
}
