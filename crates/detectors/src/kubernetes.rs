//! `k8s_api` (formerly `k8snode`): the API server of the cluster that this pod runs in.

use http::StatusCode;
use serde_json::Value;
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

use crate::attributes::{DetectedResource, Gathered};
use crate::config::{ApiAuthType, KubernetesSection};
use crate::http::{Service, ServiceError};
use crate::json::{self, text};
use crate::{Detection, DetectionError};

/// Directory with the credentials of the pod.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) async fn detect(
    detection: &Detection<'_>,
    section: &KubernetesSection,
) -> Result<DetectedResource, DetectionError> {
    let server = match ApiServer::of_pod(detection, section.auth_type) {
        Ok(server) => server,
        Err(error) => return detection.failed(error),
    };
    let variable = &section.node_from_env_var;
    let Some(node) = detection.machine.filled(variable) else {
        return Err(DetectionError(format!(
            "the variable {variable}, which must contain the name of the node, is not set; set it from the field \
             `spec.nodeName` of the pod"
        )));
    };
    let switches = &section.resource_attributes;
    let mut gathered = Gathered::new(switches);
    if switches.any(&["k8s.node.uid", "k8s.node.name"]) {
        let node = match server.get(&format!("/api/v1/nodes/{node}")).await {
            Ok(node) => node,
            Err(error) => return detection.failed(error),
        };
        gathered
            .text("k8s.node.uid", text(&node, "metadata/uid"))
            .text("k8s.node.name", text(&node, "metadata/name"));
    }
    if switches.is_enabled("k8s.cluster.uid") {
        match server.get("/api/v1/namespaces/kube-system").await {
            Ok(namespace) => {
                gathered.text("k8s.cluster.uid", text(&namespace, "metadata/uid"));
            }
            // The permission to read the namespace is optional.
            Err(error)
                if matches!(
                    error.status(),
                    Some(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED)
                ) =>
            {
                detection.log_missing(&error.to_string());
            }
            Err(error) => detection.missing(error)?,
        }
    }
    Ok(gathered.finish())
}

/// The API server of the cluster.
pub(crate) struct ApiServer {
    service: Service,
    token: Option<String>,
}

impl ApiServer {
    /// Returns the server from the variables and the credentials that each pod has.
    pub(crate) fn of_pod(
        detection: &Detection<'_>,
        auth: ApiAuthType,
    ) -> Result<Self, ServiceError> {
        let machine = detection.machine;
        let failed = |reason: String| ServiceError::Unreachable(reason);
        let (Some(host), Some(port)) = (
            machine.filled("KUBERNETES_SERVICE_HOST"),
            machine.filled("KUBERNETES_SERVICE_PORT"),
        ) else {
            return Err(failed(
                "not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set"
                    .to_owned(),
            ));
        };
        let token = match auth {
            ApiAuthType::None => None,
            ApiAuthType::ServiceAccount => {
                let token = machine.read(&format!("{ACCOUNT}/token"));
                let token = token.map_err(|error| {
                    failed(format!("cannot read the service account's token: {error}"))
                })?;
                Some(format!("Bearer {}", token.trim()))
            }
        };
        let tls = ClientTls {
            ca_file: machine.path(&format!("{ACCOUNT}/ca.crt")),
            ..ClientTls::default()
        };
        let tls = RotatingClient::new(&tls, &[b"http/1.1"], detection.owner.clone());
        let tls = tls.map_err(|error| failed(error.to_string()))?;
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        let base = format!("https://{host}:{port}");
        let service = Service::over(&base, detection.deadline, Some(tls))?;
        Ok(ApiServer { service, token })
    }

    /// Returns the object at a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ServiceError> {
        let token = self.token.as_deref();
        let headers = token.map(|token| ("authorization", token));
        let response = self.service.get(path, headers.as_slice()).await?;
        json::parse("the Kubernetes API server", &response.body)
    }
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::{KubernetesApi, KubernetesNode};
    use crate::testing::{Fixture, MockService, text_pairs};

    async fn cluster(namespace_status: u16) -> MockService {
        MockService::start_tls(move |path, request| {
            assert_eq!(request.headers()["authorization"], "Bearer account");
            match path {
                "GET /api/v1/nodes/n1" => Some((
                    200,
                    r#"{"metadata": {"name": "n1", "uid": "u1"}}"#.to_owned(),
                )),
                "GET /api/v1/namespaces/kube-system" => Some((
                    namespace_status,
                    r#"{"metadata": {"uid": "c1"}}"#.to_owned(),
                )),
                _ => None,
            }
        })
        .await
    }

    const NODE: (&str, &str) = ("K8S_NODE_NAME", "n1");

    #[tokio::test]
    async fn node_and_cluster_have_their_ids() {
        let service = cluster(200).await;
        for detector in [KubernetesApi, KubernetesNode] {
            let found = Fixture::in_pod(&[NODE], &service).detect(detector).await;
            assert_eq!(
                text_pairs(&found.unwrap()),
                [
                    ("k8s.cluster.uid", "c1"),
                    ("k8s.node.name", "n1"),
                    ("k8s.node.uid", "u1")
                ]
            );
        }
    }

    #[tokio::test]
    async fn cluster_id_needs_a_permission() {
        let service = cluster(403).await;
        let found = Fixture::in_pod(&[NODE], &service)
            .detect(KubernetesApi)
            .await;
        let of_node = [("k8s.node.name", "n1"), ("k8s.node.uid", "u1")];
        assert_eq!(text_pairs(&found.unwrap()), of_node);
        let service = cluster(500).await;
        let mut fixture = Fixture::in_pod(&[NODE], &service);
        let found = fixture.detect(KubernetesApi).await;
        assert_eq!(text_pairs(&found.unwrap()), of_node);
        fixture.config.fail_on_missing_metadata = true;
        assert!(fixture.detect(KubernetesApi).await.is_err());
    }

    #[tokio::test]
    async fn machine_outside_a_pod_is_an_error_only_on_request() {
        let mut fixture = Fixture::new(&[]);
        let found = fixture.detect(KubernetesApi).await.unwrap();
        assert!(found.attributes.is_empty());
        fixture.config.fail_on_missing_metadata = true;
        assert!(fixture.detect(KubernetesApi).await.is_err());
    }

    #[tokio::test]
    async fn refused_node_is_an_error() {
        let service = MockService::start_tls(|_, _| Some((403, String::new()))).await;
        let fixture = Fixture::in_pod(&[NODE], &service);
        assert!(fixture.detect(KubernetesApi).await.is_err());
    }

    #[tokio::test]
    async fn node_name_is_required() {
        let service = cluster(200).await;
        let found = Fixture::in_pod(&[], &service).detect(KubernetesApi).await;
        let error = found.unwrap_err().to_string();
        assert!(error.contains("K8S_NODE_NAME"), "{error}");
    }
}
