//! `consul`: the agent of Consul.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::attributes::{DetectedResource, Gathered};
use crate::http::{Service, ServiceError};
use crate::json::{self, text};
use crate::{Detection, DetectionError};

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let agent = match agent(detection).await {
        Ok(agent) => agent,
        Err(error) => return detection.failed(error),
    };
    let section = &detection.config.consul;
    let mut gathered = Gathered::new(&section.resource_attributes);
    gathered
        .text("host.name", text(&agent, "Config/NodeName"))
        .text("cloud.region", text(&agent, "Config/Datacenter"))
        .text("host.id", text(&agent, "Config/NodeID"));
    let meta = agent.get("Meta").and_then(Value::as_object);
    for (key, value) in meta.into_iter().flatten() {
        if let (true, Some(value)) = (section.meta.contains_key(key), value.as_str()) {
            gathered.extra(key.clone(), value.to_owned());
        }
    }
    Ok(gathered.finish())
}

/// Returns the description of the agent.
async fn agent(detection: &Detection<'_>) -> Result<Value, ServiceError> {
    let section = &detection.config.consul;
    let machine = detection.machine;
    // The variables of Consul's client.
    let or_variable = |text: &str, name| match text {
        "" => machine.variable(name).unwrap_or_default().to_owned(),
        text => text.to_owned(),
    };
    let address = match or_variable(&section.address, "CONSUL_HTTP_ADDR") {
        address if address.is_empty() => "http://127.0.0.1:8500".to_owned(),
        address if address.contains("://") => address,
        address => format!("http://{address}"),
    };
    let file = or_variable(
        &section.token_file.to_string_lossy(),
        "CONSUL_HTTP_TOKEN_FILE",
    );
    let mut token = or_variable(section.token.reveal(), "CONSUL_HTTP_TOKEN");
    if token.is_empty() && !file.is_empty() {
        let read = tributary_net::files::read_regular(Path::new(&file), MAX_TOKEN);
        let read = read.map_err(|error| {
            ServiceError::Response(format!("cannot read the token file {file}: {error}"))
        })?;
        token = String::from_utf8_lossy(&read).trim().to_owned();
    }
    let header = ("x-consul-token", token.as_str());
    let headers: &[_] = match token.is_empty() {
        true => &[],
        false => &[header],
    };
    let query = [("dc", &section.datacenter), ("ns", &section.namespace)];
    let query = query.into_iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<String> = query
        .map(|(key, value)| format!("{key}={}", escaped(value)))
        .collect();
    let path = match query.is_empty() {
        true => "/v1/agent/self".to_owned(),
        false => format!("/v1/agent/self?{}", query.join("&")),
    };
    let service = Service::new(&address, detection.deadline)?;
    let response = service.get(&path, headers).await?;
    let agent = json::parse("the Consul agent", &response.body)?;
    let is_complete = ["NodeName", "Datacenter", "NodeID"].iter().all(|key| {
        agent
            .get("Config")
            .and_then(|config| config.get(key))
            .is_some()
    });
    match is_complete {
        true => Ok(agent),
        false => Err(ServiceError::Response(
            "the Consul agent did not send its NodeName, Datacenter and NodeID".to_owned(),
        )),
    }
}

/// Escapes a value of a query.
fn escaped(value: &str) -> String {
    let mut output = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                output.push(char::from(byte));
            }
            _ => drop(write!(output, "%{byte:02X}")),
        }
    }
    output
}

/// Maximum size of the file with the token, in bytes. A token has 36 bytes, or is a JSON web token of a few kilobytes.
const MAX_TOKEN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Consul;
    use crate::testing::{Fixture, MockService, text_pairs};

    const SELF: &str = r#"{"Config": {"NodeName": "n", "Datacenter": "dc1", "NodeID": "id"},
        "Meta": {"rack": "r1", "other": "x"}}"#;

    #[tokio::test]
    async fn agent_has_node_and_selected_metadata() {
        let service = MockService::start(|path, request| {
            assert_eq!(request.headers()["x-consul-token"], "secret");
            (path == "GET /v1/agent/self?dc=dc1").then(|| (200, SELF.to_owned()))
        })
        .await;
        let address = service.url.replace("http://", "");
        let mut fixture = Fixture::new(&[("CONSUL_HTTP_TOKEN", "secret")]);
        fixture.configure(&format!(
            "consul: {{address: '{address}', datacenter: dc1, meta: {{rack: ''}}}}"
        ));
        let found = fixture.detect(Consul).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("cloud.region", "dc1"),
                ("host.id", "id"),
                ("host.name", "n"),
                ("rack", "r1")
            ]
        );
    }

    #[tokio::test]
    async fn datacenter_is_escaped_in_the_query() {
        let service = MockService::start(|path, _| {
            (path == "GET /v1/agent/self?dc=a%26b%20%C3%A9").then(|| (200, SELF.to_owned()))
        })
        .await;
        let mut fixture = Fixture::new(&[("CONSUL_HTTP_ADDR", &service.url)]);
        fixture.configure("consul: {datacenter: 'a&b \u{e9}'}");
        assert!(!fixture.detect(Consul).await.unwrap().attributes.is_empty());
    }

    #[tokio::test]
    async fn token_comes_from_a_regular_file_only() {
        let service = MockService::start(|_, request| {
            assert_eq!(request.headers()["x-consul-token"], "secret");
            Some((200, SELF.to_owned()))
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        for (path, works) in [(file.as_path(), true), (directory.path(), false)] {
            let path = path.to_str().unwrap();
            let variables = [
                ("CONSUL_HTTP_ADDR", service.url.as_str()),
                ("CONSUL_HTTP_TOKEN_FILE", path),
            ];
            let found = Fixture::new(&variables).detect(Consul).await;
            assert_eq!(found.is_ok(), works, "{found:?}");
        }
    }

    #[tokio::test]
    async fn agent_that_responds_with_an_error_is_not_absent() {
        for (status, body) in [(200, "{}"), (403, "")] {
            let service = MockService::start(move |_, _| Some((status, body.to_owned()))).await;
            let fixture = Fixture::new(&[("CONSUL_HTTP_ADDR", &service.url)]);
            assert!(fixture.detect(Consul).await.is_err(), "{status}");
        }
    }

    #[tokio::test]
    async fn missing_agent_is_an_error_only_on_request() {
        let mut fixture = Fixture::new(&[("CONSUL_HTTP_ADDR", "http://127.0.0.1:1")]);
        assert!(fixture.detect(Consul).await.unwrap().attributes.is_empty());
        fixture.config.fail_on_missing_metadata = true;
        assert!(fixture.detect(Consul).await.is_err());
    }
}
