//! `gcp`: the metadata server of Google Cloud, and the variables of its serverless platforms.

mod server;

use crate::attributes::{DetectedResource, Gathered};
use crate::http::ServiceError;
use crate::tables::GcpAttributes;
use crate::{Detection, DetectionError};
use server::MetadataServer;

type Attributes<'a> = Gathered<'a, GcpAttributes>;

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let mut gathered = Gathered::new(&detection.config.gcp.resource_attributes);
    gathered.text("cloud.provider", "gcp");
    let filled = |name| detection.machine.filled(name);
    if let (Some(project), Some(region), Some(instance)) = (
        filled("BMS_PROJECT_ID"),
        filled("BMS_REGION"),
        filled("BMS_INSTANCE_ID"),
    ) {
        gathered
            .text("cloud.platform", "gcp_bare_metal_solution")
            .text("cloud.account.id", project)
            .text("host.name", instance)
            .text("cloud.region", region);
        return Ok(gathered.finish());
    }
    let Some(server) = MetadataServer::find(detection).await else {
        return Ok(DetectedResource::default());
    };
    let mut platform = Platform {
        detection,
        server,
        gathered,
        errors: Vec::new(),
    };
    platform.add_all().await;
    match platform.errors.first() {
        Some(error) if detection.config.fail_on_missing_metadata => {
            Err(DetectionError(error.to_string()))
        }
        _ => Ok(platform.gathered.finish()),
    }
}

/// The attributes of one platform of Google Cloud. An attribute that cannot be read is missing.
struct Platform<'a> {
    detection: &'a Detection<'a>,
    server: MetadataServer,
    gathered: Attributes<'a>,
    errors: Vec<ServiceError>,
}

impl Platform<'_> {
    async fn add_all(&mut self) {
        self.add("cloud.account.id", "project/project-id").await;
        let is_set = |name| self.detection.machine.variable(name).is_some();
        let is_cluster = is_set("KUBERNETES_SERVICE_HOST")
            && self
                .server
                .get("instance/attributes/cluster-location")
                .await
                .is_ok();
        let is_function = is_set("FUNCTION_TARGET");
        let is_job = is_set("CLOUD_RUN_JOB");
        let is_run = is_set("K_CONFIGURATION") || is_set("CLOUD_RUN_WORKER_POOL");
        if is_cluster {
            self.add_cluster().await;
        } else if is_function {
            self.add_function("gcp_cloud_functions").await;
        } else if is_set("K_CONFIGURATION") {
            self.add_function("gcp_cloud_run").await;
        } else if is_job {
            self.add_job().await;
        } else if is_run {
            self.add_function("gcp_cloud_run").await;
        } else if self.detection.machine.variable("GAE_ENV") == Some("standard") {
            self.add_app_engine();
            self.add_zone("cloud.availability_zone").await;
            self.add_region().await;
        } else if is_set("GAE_SERVICE") {
            self.add_app_engine();
            self.add_zone_and_region().await;
        } else {
            self.add_instance().await;
        }
    }

    async fn add_cluster(&mut self) {
        self.gathered
            .text("cloud.platform", "gcp_kubernetes_engine");
        let location = self.get("instance/attributes/cluster-location").await;
        if let Some(location) = location {
            // A zone has one part more than a region, as in `us-east1-b`.
            match location.matches('-').count() {
                1 => self.gathered.text("cloud.region", location),
                _ => self.gathered.text("cloud.availability_zone", location),
            };
        }
        self.add("k8s.cluster.name", "instance/attributes/cluster-name")
            .await;
        self.add("host.id", "instance/id").await;
        // Workload identity hides the name in some versions of GKE.
        if let Ok(name) = self.server.get("instance/name").await {
            self.gathered.text("host.name", name);
        }
    }

    async fn add_function(&mut self, platform: &str) {
        self.gathered.text("cloud.platform", platform);
        self.add_variables("faas.name", &["K_SERVICE", "CLOUD_RUN_WORKER_POOL"]);
        self.add_variables("faas.version", &["CLOUD_RUN_REVISION", "K_REVISION"]);
        self.add("faas.instance", "instance/id").await;
        self.add_region().await;
    }

    async fn add_job(&mut self) {
        self.gathered.text("cloud.platform", "gcp_cloud_run");
        self.add_variables("faas.name", &["K_SERVICE", "CLOUD_RUN_JOB"]);
        self.add_variables("gcp.cloud_run.job.execution", &["CLOUD_RUN_EXECUTION"]);
        self.add_variables("gcp.cloud_run.job.task_index", &["CLOUD_RUN_TASK_INDEX"]);
        self.add("faas.instance", "instance/id").await;
        self.add_region().await;
    }

    fn add_app_engine(&mut self) {
        self.gathered.text("cloud.platform", "gcp_app_engine");
        self.add_variables("faas.name", &["GAE_SERVICE"]);
        self.add_variables("faas.version", &["GAE_VERSION"]);
        self.add_variables("faas.instance", &["GAE_INSTANCE"]);
    }

    async fn add_instance(&mut self) {
        let Some(machine_type) = self.get("instance/machine-type").await else {
            return;
        };
        self.gathered
            .text("cloud.platform", "gcp_compute_engine")
            .text("host.type", last_part(&machine_type));
        self.add_zone_and_region().await;
        self.add("host.id", "instance/id").await;
        self.add("host.name", "instance/name").await;
        self.add("gcp.gce.instance.hostname", "instance/hostname")
            .await;
        self.add("gcp.gce.instance.name", "instance/name").await;
        let created_by = self.server.get("instance/attributes/created-by").await;
        self.add_group(&created_by.unwrap_or_default());
    }

    /// Adds the managed instance group, as in `projects/P/zones/ZONE/instanceGroupManagers/NAME`.
    fn add_group(&mut self, created_by: &str) {
        let parts: Vec<&str> = created_by.split('/').collect();
        if let ["projects", _, kind, place, "instanceGroupManagers", name] = parts.as_slice() {
            let key = match *kind {
                "zones" => "gcp.gce.instance_group_manager.zone",
                "regions" => "gcp.gce.instance_group_manager.region",
                _ => return,
            };
            self.gathered
                .text("gcp.gce.instance_group_manager.name", *name)
                .text(key, *place);
        }
    }

    async fn add_zone(&mut self, key: &str) -> Option<String> {
        let zone = self.get("instance/zone").await?;
        let zone = last_part(&zone).to_owned();
        self.gathered.text(key, zone.as_str());
        Some(zone)
    }

    async fn add_zone_and_region(&mut self) {
        if let Some(zone) = self.add_zone("cloud.availability_zone").await
            && let Some((region, _)) = zone.rsplit_once('-')
        {
            self.gathered.text("cloud.region", region);
        }
    }

    async fn add_region(&mut self) {
        if let Some(region) = self.get("instance/region").await {
            self.gathered.text("cloud.region", last_part(&region));
        }
    }

    fn add_variables(&mut self, key: &str, names: &[&str]) {
        let mut values = names
            .iter()
            .map(|name| self.detection.machine.variable(name));
        match values.find_map(|value| value) {
            Some(value) => {
                self.gathered.text(key, value);
            }
            None => self.errors.push(ServiceError::Response(format!(
                "{key}: {} is not set",
                names.join(" or ")
            ))),
        }
    }

    async fn add(&mut self, key: &str, path: &str) {
        if let Some(value) = self.get(path).await {
            self.gathered.text(key, value);
        }
    }

    async fn get(&mut self, path: &str) -> Option<String> {
        match self.server.get(path).await {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Gcp;
    use crate::testing::{Fixture, MockService, text_pairs};

    async fn service(cluster: bool) -> MockService {
        MockService::start_with_header("metadata-flavor", "Google", move |path, request| {
            assert_eq!(request.headers()["metadata-flavor"], "Google");
            let value = match path.strip_prefix("GET /computeMetadata/v1/")? {
                "" => "",
                "project/project-id" => "shop",
                "instance/id" => "123",
                "instance/name" => "vm",
                "instance/hostname" => "vm.internal",
                "instance/zone" => "projects/1/zones/us-east1-b",
                "instance/region" => "projects/1/regions/us-east1",
                "instance/machine-type" => "projects/1/machineTypes/n2",
                "instance/attributes/created-by" => {
                    "projects/1/zones/us-east1-b/instanceGroupManagers/group"
                }
                "instance/attributes/cluster-location" if cluster => "us-east1",
                "instance/attributes/cluster-name" if cluster => "prod",
                _ => return None,
            };
            Some((200, value.to_owned()))
        })
        .await
    }

    async fn found(variables: &[(&str, &str)], cluster: bool) -> Vec<(String, String)> {
        let service = service(cluster).await;
        let fixture = Fixture::at(variables, &service);
        let found = fixture.detect(Gcp).await.unwrap();
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        text_pairs(&found).into_iter().map(owned).collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[tokio::test]
    async fn instance_of_a_group_has_its_identity() {
        let expected = [
            ("cloud.account.id", "shop"),
            ("cloud.availability_zone", "us-east1-b"),
            ("cloud.platform", "gcp_compute_engine"),
            ("cloud.provider", "gcp"),
            ("cloud.region", "us-east1"),
            ("gcp.gce.instance_group_manager.name", "group"),
            ("gcp.gce.instance_group_manager.zone", "us-east1-b"),
            ("host.id", "123"),
            ("host.name", "vm"),
            ("host.type", "n2"),
        ];
        assert_eq!(found(&[], false).await, owned(&expected));
        let in_other_cluster = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        assert_eq!(found(&in_other_cluster, false).await, owned(&expected));
    }

    #[tokio::test]
    async fn cluster_has_its_name_and_region() {
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        assert_eq!(
            found(&pod, true).await,
            owned(&[
                ("cloud.account.id", "shop"),
                ("cloud.platform", "gcp_kubernetes_engine"),
                ("cloud.provider", "gcp"),
                ("cloud.region", "us-east1"),
                ("host.id", "123"),
                ("host.name", "vm"),
                ("k8s.cluster.name", "prod"),
            ])
        );
    }

    #[tokio::test]
    async fn services_and_jobs_are_told_apart() {
        let service = [
            ("K_CONFIGURATION", ""),
            ("K_SERVICE", "s"),
            ("K_REVISION", "s-1"),
        ];
        assert_eq!(
            found(&service, false).await,
            owned(&[
                ("cloud.account.id", "shop"),
                ("cloud.platform", "gcp_cloud_run"),
                ("cloud.provider", "gcp"),
                ("cloud.region", "us-east1"),
                ("faas.instance", "123"),
                ("faas.name", "s"),
                ("faas.version", "s-1"),
            ])
        );
        let job = [
            ("CLOUD_RUN_JOB", "j"),
            ("CLOUD_RUN_EXECUTION", "j-1"),
            ("CLOUD_RUN_TASK_INDEX", "0"),
        ];
        let job = found(&job, false).await;
        assert_eq!(
            job[4..],
            owned(&[
                ("faas.instance", "123"),
                ("faas.name", "j"),
                ("gcp.cloud_run.job.execution", "j-1"),
                ("gcp.cloud_run.job.task_index", "0"),
            ])
        );
    }

    #[tokio::test]
    async fn metadata_service_of_another_cloud_is_ignored() {
        let other = MockService::start(|_, _| Some((200, String::new()))).await;
        let found = Fixture::at(&[], &other).detect(Gcp).await.unwrap();
        assert!(found.attributes.is_empty());
    }
}
