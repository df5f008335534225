//! `consul`: the agent of Consul.

use serde_json::Value;

use crate::attributes::{DetectedResource, Gathered};
use crate::http::{Service, ServiceError};
use crate::json::{self, text};
use crate::{Detection, DetectionError};

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let agent = match agent(detection).await {
        Ok(agent) => agent,
        Err(error) => return detection.absent(error),
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
        let read = std::fs::read_to_string(&file);
        let read = read.map_err(|error| {
            ServiceError::Unreachable(format!("cannot read the token file {file}: {error}"))
        })?;
        token = read.trim().to_owned();
    }
    let header = ("x-consul-token", token.as_str());
    let headers: &[_] = match token.is_empty() {
        true => &[],
        false => &[header],
    };
    let query = [("dc", &section.datacenter), ("ns", &section.namespace)];
    let query = query.into_iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<String> = query.map(|(key, value)| format!("{key}={value}")).collect();
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
    async fn incomplete_response_is_an_error_on_request() {
        let service = MockService::start(|_, _| Some((200, "{}".to_owned()))).await;
        let mut fixture = Fixture::new(&[("CONSUL_HTTP_ADDR", &service.url)]);
        assert!(fixture.detect(Consul).await.unwrap().attributes.is_empty());
        fixture.config.fail_on_missing_metadata = true;
        assert!(fixture.detect(Consul).await.is_err());
    }
}
