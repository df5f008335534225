//! `azure` and `aks`: the instance metadata service of Azure.

use regex::Regex;
use serde_json::Value;

use crate::attributes::{DetectedResource, Gathered};
use crate::http::{Service, ServiceError};
use crate::json::{self, filled, text};
use crate::{Detection, DetectionError};

const PATH: &str = "/metadata/instance/compute?api-version=2020-09-01&format=json";

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let compute = match compute(detection).await {
        Ok(compute) => compute,
        Err(error) => return failed(detection, error),
    };
    let section = &detection.config.azure;
    let mut gathered = Gathered::new(&section.resource_attributes);
    let name = filled(&compute, "osProfile/computerName").or_else(|| filled(&compute, "name"));
    gathered
        .text("cloud.provider", "azure")
        .text("cloud.platform", "azure.vm")
        .optional("host.name", name)
        .text("cloud.region", text(&compute, "location"))
        .text("host.id", text(&compute, "vmId"))
        .text("cloud.account.id", text(&compute, "subscriptionId"))
        .optional("cloud.availability_zone", filled(&compute, "zone"))
        .text("azure.vm.name", text(&compute, "name"))
        .text("azure.vm.size", text(&compute, "vmSize"))
        .optional("azure.vm.scaleset.name", filled(&compute, "vmScaleSetName"))
        .text(
            "azure.resourcegroup.name",
            text(&compute, "resourceGroupName"),
        );
    for (key, value) in tags(&compute, &section.patterns()) {
        gathered.extra(format!("azure.tag.{key}"), value);
    }
    Ok(gathered.finish())
}

/// Detects a cluster of the Azure Kubernetes Service.
pub(crate) async fn detect_cluster(
    detection: &Detection<'_>,
) -> Result<DetectedResource, DetectionError> {
    if detection
        .machine
        .filled("KUBERNETES_SERVICE_HOST")
        .is_none()
    {
        return Ok(DetectedResource::default());
    }
    let compute = match compute(detection).await {
        Ok(compute) => compute,
        Err(error) => return failed(detection, error),
    };
    let mut gathered = Gathered::new(&detection.config.aks.resource_attributes);
    gathered
        .text("cloud.provider", "azure")
        .text("cloud.platform", "azure.aks")
        .text(
            "k8s.cluster.name",
            cluster_name(text(&compute, "resourceGroupName")),
        );
    Ok(gathered.finish())
}

async fn compute(detection: &Detection<'_>) -> Result<Value, ServiceError> {
    let service = Service::new(&detection.machine.link_local, detection.deadline)?;
    let response = service.get(PATH, &[("metadata", "true")]).await?;
    json::parse("the instance metadata service", &response.body)
}

/// Other clouds have services at the same address, which refuse the request.
fn failed(
    detection: &Detection<'_>,
    error: ServiceError,
) -> Result<DetectedResource, DetectionError> {
    match error
        .status()
        .is_some_and(|status| status.is_client_error())
    {
        true => detection.absent(error),
        false => detection.failed(error),
    }
}

fn tags(compute: &Value, patterns: &[Regex]) -> Vec<(String, String)> {
    let tags = compute.get("tagsList").and_then(Value::as_array);
    let tags = tags.into_iter().flatten();
    let tags = tags.map(|tag| (text(tag, "name"), text(tag, "value")));
    tags.filter(|(key, _)| patterns.iter().any(|pattern| pattern.is_match(key)))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the name of a cluster from its resource group `MC_GROUP_CLUSTER_LOCATION`; the whole text if it has another
/// form.
fn cluster_name(resource_group: &str) -> &str {
    match resource_group.split('_').collect::<Vec<_>>().as_slice() {
        [mark, _, cluster, _] if mark.eq_ignore_ascii_case("mc") => cluster,
        _ => resource_group,
    }
}

#[cfg(test)]
mod tests {
    use super::cluster_name;
    use crate::BuiltInDetector::{Aks, Azure};
    use crate::testing::{Fixture, MockService, text_pairs};

    const COMPUTE: &str = r#"{"location": "westeurope", "name": "vm", "vmId": "v-1", "vmSize": "Standard_D2",
        "subscriptionId": "s", "resourceGroupName": "MC_group_shop_westeurope", "vmScaleSetName": "", "zone": "1",
        "osProfile": {"computerName": "web"}, "tagsList": [{"name": "team", "value": "payments"},
        {"name": "other", "value": "x"}]}"#;

    async fn service() -> MockService {
        MockService::start(|path, request| {
            assert_eq!(request.headers()["metadata"], "true");
            assert_eq!(path, format!("GET {}", super::PATH));
            Some((200, COMPUTE.to_owned()))
        })
        .await
    }

    #[tokio::test]
    async fn virtual_machine_has_its_identity_and_tags() {
        let service = service().await;
        let mut fixture = Fixture::at(&[], &service);
        fixture.configure("azure: {tags: [^team$]}");
        let found = fixture.detect(Azure).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("azure.resourcegroup.name", "MC_group_shop_westeurope"),
                ("azure.tag.team", "payments"),
                ("azure.vm.name", "vm"),
                ("azure.vm.size", "Standard_D2"),
                ("cloud.account.id", "s"),
                ("cloud.platform", "azure.vm"),
                ("cloud.provider", "azure"),
                ("cloud.region", "westeurope"),
                ("host.id", "v-1"),
                ("host.name", "web"),
            ]
        );
    }

    #[tokio::test]
    async fn cluster_is_detected_in_pods_only() {
        let service = service().await;
        let outside = Fixture::at(&[], &service).detect(Aks).await.unwrap();
        assert!(outside.attributes.is_empty());
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        let mut fixture = Fixture::at(&pod, &service);
        fixture.configure("aks: {resource_attributes: {k8s.cluster.name: {enabled: true}}}");
        let found = fixture.detect(Aks).await.unwrap();
        let cluster = ("k8s.cluster.name", "shop");
        assert_eq!(text_pairs(&found)[2], cluster);
    }

    #[test]
    fn cluster_name_needs_the_form_of_a_resource_group() {
        assert_eq!(cluster_name("mc_a_b_c"), "b");
        assert_eq!(cluster_name("MC_a_b_c_d"), "MC_a_b_c_d");
        assert_eq!(cluster_name("custom"), "custom");
    }
}
