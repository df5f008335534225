//! `eks`: a Kubernetes cluster of Amazon.

use std::time::Duration;

use super::instance::InstanceMetadata;
use crate::attributes::{DetectedResource, Gathered};
use crate::config::ApiAuthType;
use crate::http::ServiceError;
use crate::json::text;
use crate::kubernetes::ApiServer;
use crate::tables::EksAttributes;
use crate::{Detection, DetectionError};

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    match is_eks(detection).await {
        Ok(true) => {}
        Ok(false) => return detection.absent("this is no EKS cluster"),
        Err(error) => return detection.absent(error),
    }
    let section = &detection.config.eks;
    let mut gathered = Gathered::new(&section.resource_attributes);
    gathered
        .text("cloud.provider", "aws")
        .text("cloud.platform", "aws_eks");
    let of_instance = [
        "cloud.account.id",
        "cloud.availability_zone",
        "cloud.region",
        "host.id",
        "host.image.id",
        "host.name",
        "host.type",
    ];
    if !section.resource_attributes.any(&of_instance) {
        return Ok(gathered.finish());
    }
    let result = match add_instance(detection, &mut gathered).await {
        // Pods often have no access to the instance metadata.
        Err(_) if !section.node_from_env_var.is_empty() => add_node(detection, &mut gathered).await,
        result => result,
    };
    match result {
        Err(error) if detection.config.fail_on_missing_metadata => {
            Err(DetectionError(error.to_string()))
        }
        _ => Ok(gathered.finish()),
    }
}

async fn add_instance(
    detection: &Detection<'_>,
    gathered: &mut Gathered<'_, EksAttributes>,
) -> Result<(), ServiceError> {
    let metadata = InstanceMetadata::open(detection, 1, Duration::ZERO).await?;
    let document = metadata.document().await?;
    gathered
        .text("host.id", text(&document, "instanceId"))
        .text(
            "cloud.availability_zone",
            text(&document, "availabilityZone"),
        )
        .text("cloud.region", text(&document, "region"))
        .text("cloud.account.id", text(&document, "accountId"))
        .text("host.image.id", text(&document, "imageId"))
        .text("host.type", text(&document, "instanceType"));
    gathered.text("host.name", metadata.get("meta-data/hostname").await?);
    Ok(())
}

/// Adds the identity of the instance that the Kubernetes API has for the node: `aws:///ZONE/INSTANCE`.
async fn add_node(
    detection: &Detection<'_>,
    gathered: &mut Gathered<'_, EksAttributes>,
) -> Result<(), ServiceError> {
    let variable = &detection.config.eks.node_from_env_var;
    let node = detection.machine.filled(variable);
    let node = node.ok_or_else(|| ServiceError::Unreachable(format!("{variable} is not set")))?;
    let server = ApiServer::of_pod(detection, ApiAuthType::ServiceAccount)?;
    let node = server.get(&format!("/api/v1/nodes/{node}")).await?;
    let provider = text(&node, "spec/providerID");
    let mut parts = provider.rsplit('/');
    if let (Some(instance), Some(zone)) = (parts.next(), parts.next()) {
        gathered
            .text("host.id", instance)
            .text("cloud.availability_zone", zone)
            .text(
                "cloud.region",
                zone.trim_end_matches(|end: char| end.is_ascii_lowercase()),
            );
    }
    Ok(())
}

/// Whether the cluster of this pod is an EKS cluster. Credentials of EKS tell so, and otherwise the API server.
async fn is_eks(detection: &Detection<'_>) -> Result<bool, ServiceError> {
    let machine = detection.machine;
    if machine.filled("KUBERNETES_SERVICE_HOST").is_none() {
        return Ok(false);
    }
    let contains = |name, part| {
        let value = machine.variable(name);
        value.is_some_and(|value| value.contains(part))
    };
    if contains("AWS_WEB_IDENTITY_TOKEN_FILE", "eks.amazonaws.com")
        || contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "eks-pod-identity")
    {
        return Ok(true);
    }
    let server = ApiServer::of_pod(detection, ApiAuthType::ServiceAccount)?;
    let issuer = server.get("/.well-known/openid-configuration").await;
    if issuer.is_ok_and(|found| text(&found, "issuer").contains("oidc.eks.")) {
        return Ok(true);
    }
    let version = server.get("/version").await?;
    Ok(text(&version, "gitVersion").contains("-eks-"))
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Eks;
    use crate::testing::{Fixture, MockService, text_pairs};

    const ALL_OF_INSTANCE: &str = "eks: {node_from_env_var: NODE, resource_attributes: {host.id: {enabled: true}, \
        cloud.region: {enabled: true}, cloud.availability_zone: {enabled: true}}}";

    #[tokio::test]
    async fn version_of_the_api_server_shows_a_cluster() {
        for (version, is_eks) in [("v1.30.4-eks-a737599", true), ("v1.30.4-gke.1", false)] {
            let service = MockService::start_tls(move |path, request| {
                assert_eq!(request.headers()["authorization"], "Bearer account");
                (path == "GET /version").then(|| (200, format!(r#"{{"gitVersion": "{version}"}}"#)))
            })
            .await;
            let fixture = Fixture::in_pod(&[], &service);
            let found = fixture.detect(Eks).await.unwrap();
            let expected = [("cloud.platform", "aws_eks"), ("cloud.provider", "aws")];
            assert_eq!(text_pairs(&found) == expected, is_eks, "{found:?}");
            assert_eq!(found.attributes.is_empty(), !is_eks);
        }
    }

    #[tokio::test]
    async fn node_replaces_missing_instance_metadata() {
        let service = MockService::start_tls(|path, _| {
            let body = match path {
                "GET /.well-known/openid-configuration" => {
                    r#"{"issuer": "https://oidc.eks.eu-west-1.amazonaws.com/id/1"}"#
                }
                "GET /api/v1/nodes/n1" => r#"{"spec": {"providerID": "aws:///eu-west-1b/i-9"}}"#,
                _ => return None,
            };
            Some((200, body.to_owned()))
        })
        .await;
        let disabled = [("NODE", "n1"), ("AWS_EC2_METADATA_DISABLED", "true")];
        let mut fixture = Fixture::in_pod(&disabled, &service);
        fixture.configure(ALL_OF_INSTANCE);
        let found = fixture.detect(Eks).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("cloud.availability_zone", "eu-west-1b"),
                ("cloud.platform", "aws_eks"),
                ("cloud.provider", "aws"),
                ("cloud.region", "eu-west-1"),
                ("host.id", "i-9"),
            ]
        );
    }
}
