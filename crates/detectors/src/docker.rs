//! `docker`: the Docker daemon of the host.

use std::path::PathBuf;

use serde_json::Value;

use crate::attributes::{DetectedResource, Gathered};
use crate::http::{Service, ServiceError};
use crate::json::{self, text};
use crate::{Detection, DetectionError};

const SOCKET: &str = "var/run/docker.sock";

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let switches = &detection.config.docker.resource_attributes;
    let mut gathered = Gathered::new(switches);
    let service = match daemon(detection) {
        Ok(service) => service,
        Err(error) => return detection.absent(error),
    };
    if switches.any(&["host.name", "os.type"]) {
        let info = match fetch(&service, "/info").await {
            Ok(info) => info,
            Err(error) => return detection.failed(error),
        };
        gathered
            .text("host.name", text(&info, "Name"))
            .text("os.type", text(&info, "OSType"));
    }
    if switches.any(&["container.name", "container.image.name"]) {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        match fetch(&service, &format!("/containers/{host}/json")).await {
            Ok(container) => {
                let name = text(&container, "Name").trim_start_matches('/');
                gathered
                    .text("container.name", name)
                    .text("container.image.name", text(&container, "Config/Image"));
            }
            Err(error) => detection.missing(error)?,
        }
    }
    Ok(gathered.finish())
}

/// Returns the daemon of `DOCKER_HOST`, or the daemon of this machine.
fn daemon(detection: &Detection<'_>) -> Result<Service, ServiceError> {
    let machine = detection.machine;
    let Some(host) = machine.filled("DOCKER_HOST") else {
        return Ok(Service::unix(machine.path(SOCKET), detection.deadline));
    };
    match host.split_once("://") {
        Some(("unix", path)) => Ok(Service::unix(PathBuf::from(path), detection.deadline)),
        Some(("tcp" | "http", address)) => {
            Service::new(&format!("http://{address}"), detection.deadline)
        }
        _ => Err(ServiceError::Unreachable(format!(
            "DOCKER_HOST must begin with unix:// or tcp://, but is `{host}`"
        ))),
    }
}

async fn fetch(service: &Service, path: &str) -> Result<Value, ServiceError> {
    let response = service.get(path, &[]).await?;
    json::parse("the Docker daemon", &response.body)
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Docker;
    use crate::testing::{Fixture, MockService, text_pairs};

    #[tokio::test]
    async fn daemon_knows_host_and_container() {
        let service = MockService::start(|path, _| {
            let body = match path {
                "GET /info" => r#"{"Name": "node-1", "OSType": "linux"}"#,
                path if path.starts_with("GET /containers/") => {
                    r#"{"Name": "/collector", "Image": "sha256:1", "Config": {"Image": "shop/collector"}}"#
                }
                _ => return None,
            };
            Some((200, body.to_owned()))
        })
        .await;
        let host = service.url.replace("http://", "tcp://");
        let mut fixture = Fixture::new(&[("DOCKER_HOST", &host)]);
        let found = fixture.detect(Docker).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [("host.name", "node-1"), ("os.type", "linux")]
        );
        fixture.configure(
            "docker: {resource_attributes: {container.name: {enabled: true}, \
             container.image.name: {enabled: true}}}",
        );
        let found = fixture.detect(Docker).await.unwrap();
        let of_container = [
            ("container.image.name", "shop/collector"),
            ("container.name", "collector"),
        ];
        assert_eq!(text_pairs(&found)[..2], of_container);
    }

    #[tokio::test]
    async fn host_is_known_without_its_container() {
        let service = MockService::start(|path, _| {
            let info = r#"{"Name": "node-1", "OSType": "linux"}"#;
            (path == "GET /info").then(|| (200, info.to_owned()))
        })
        .await;
        let host = service.url.replace("http://", "tcp://");
        let mut fixture = Fixture::new(&[("DOCKER_HOST", &host)]);
        fixture.configure("docker: {resource_attributes: {container.name: {enabled: true}}}");
        let found = fixture.detect(Docker).await.unwrap();
        let of_host = [("host.name", "node-1"), ("os.type", "linux")];
        assert_eq!(text_pairs(&found), of_host);
        fixture.config.fail_on_missing_metadata = true;
        assert!(fixture.detect(Docker).await.is_err());
    }

    #[tokio::test]
    async fn missing_socket_is_an_error_only_on_request() {
        let mut fixture = Fixture::new(&[]);
        assert!(fixture.detect(Docker).await.unwrap().attributes.is_empty());
        fixture.config.fail_on_missing_metadata = true;
        let error = fixture.detect(Docker).await.unwrap_err().to_string();
        assert!(error.contains("docker.sock"), "{error}");
    }
}
