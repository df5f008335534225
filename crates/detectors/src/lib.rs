//! Detectors of the resource that this process belongs to: host, container, cluster node, cloud instance.
//!
//! [`detect`] asks one detector for its attributes, under the names and with the meaning of the Collector's processor
//! `resourcedetection`. Detectors read environment variables, files, and metadata services of the platform.
//!
//! # Invariants
//!
//! * A detection ends at its deadline, whatever a service does. A response has at most 1 MiB.
//! * No redirect is followed, so that credentials reach only the configured server. No proxy is used.
//! * A platform that is absent is no error: its detector returns no attributes, unless
//!   [`DetectionConfig::fail_on_missing_metadata`] is set.

mod attributes;
mod aws;
mod azure;
pub mod config;
mod consul;
mod docker;
mod environment;
mod gcp;
mod heroku;
mod http;
mod json;
mod kubernetes;
mod machine;
mod system;
mod table;
mod tables;

use tokio::time::Instant;
use tributary_net::Owner;

use http::ServiceError;

pub use attributes::{AttributeValue, DetectedResource};
pub use config::DetectionConfig;
pub use machine::Machine;
pub use table::{BuiltInDetector, Switches};

/// Inputs of one attempt of a detector.
pub struct Detection<'a> {
    /// Settings of the detection and of all detectors.
    pub config: &'a DetectionConfig,
    /// The machine to look at.
    pub machine: &'a Machine,
    /// Time at which the attempt ends. A service that has not responded by then counts as absent.
    pub deadline: Instant,
    /// The component that needs the attributes, for TLS settings.
    pub owner: &'a Owner,
}

/// Reason why a detector failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DetectionError(pub String);

impl Detection<'_> {
    /// Returns the result for a platform that is absent for this `reason`: no attributes, or an error.
    pub(crate) fn absent(&self, reason: impl ToString) -> Result<DetectedResource, DetectionError> {
        self.missing(reason).map(|()| DetectedResource::default())
    }

    /// Logs the `reason` of missing attributes, or returns it as an error if
    /// [`DetectionConfig::fail_on_missing_metadata`] is set.
    pub(crate) fn missing(&self, reason: impl ToString) -> Result<(), DetectionError> {
        let reason = reason.to_string();
        if self.config.fail_on_missing_metadata {
            return Err(DetectionError(reason));
        }
        self.log_missing(&reason);
        Ok(())
    }

    pub(crate) fn log_missing(&self, reason: &str) {
        tracing::info!(
            otelcol.component.id = %self.owner.id,
            otelcol.component.kind = self.owner.kind,
            reason,
            "Metadata of a platform is missing"
        );
    }

    /// Returns the result of a failed service. A service that cannot be reached counts as absent; one that responds
    /// with an error is present.
    pub(crate) fn failed(&self, error: ServiceError) -> Result<DetectedResource, DetectionError> {
        match error {
            ServiceError::Unreachable(reason) => self.absent(reason),
            present => Err(DetectionError(present.to_string())),
        }
    }
}

/// Runs a detector once.
///
/// # Errors
/// Fails if the platform is present but its metadata cannot be read, or if the platform is absent and
/// [`DetectionConfig::fail_on_missing_metadata`] is set.
pub async fn detect(
    detector: BuiltInDetector,
    detection: &Detection<'_>,
) -> Result<DetectedResource, DetectionError> {
    match detector {
        BuiltInDetector::Env => environment::detect(detection),
        BuiltInDetector::System => system::detect(detection).await,
        BuiltInDetector::Docker => docker::detect(detection).await,
        BuiltInDetector::Ec2 => aws::ec2::detect(detection).await,
        BuiltInDetector::Ecs => aws::ecs::detect(detection).await,
        BuiltInDetector::Eks => aws::eks::detect(detection).await,
        BuiltInDetector::ElasticBeanstalk => aws::beanstalk::detect(detection),
        BuiltInDetector::Lambda => aws::lambda::detect(detection),
        BuiltInDetector::Gcp => gcp::detect(detection).await,
        BuiltInDetector::Azure => azure::detect(detection).await,
        BuiltInDetector::Aks => azure::detect_cluster(detection).await,
        BuiltInDetector::Heroku => heroku::detect(detection),
        BuiltInDetector::Consul => consul::detect(detection).await,
        BuiltInDetector::KubernetesApi => {
            kubernetes::detect(detection, &detection.config.k8s_api).await
        }
        BuiltInDetector::KubernetesNode => {
            kubernetes::detect(detection, &detection.config.k8snode).await
        }
    }
}

#[cfg(test)]
mod testing;
