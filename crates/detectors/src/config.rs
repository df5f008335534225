//! Settings of the detection, under the Collector's names.

mod sections;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_config::units::Duration;
use tributary_config::{Problems, Validate};

use crate::table::BuiltInDetector;
use crate::tables::{
    AksAttributes, BeanstalkAttributes, DockerAttributes, EcsAttributes, GcpAttributes,
    HerokuAttributes, LambdaAttributes,
};
pub use sections::{
    ApiAuthType, AttributesSection, AzureSection, ConsulSection, Ec2Section, EksSection,
    EnvSection, HostNameSource, KeyFilter, KubernetesSection, SystemSection,
};

/// Settings of the detection and of all detectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DetectionConfig {
    /// Detectors to ask: `env`, `system`, `docker`, `ec2`, `ecs`, `eks`, `elastic_beanstalk`, `lambda`, `gcp`, `azure`,
    /// `aks`, `heroku`, `consul`, `k8s_api`, and its former name `k8snode`. If several detectors find an attribute, the
    /// first in this list counts. Default: `[env]`.
    pub detectors: Vec<String>,
    /// Whether a detected attribute replaces an attribute that a resource already has. Default: true.
    pub r#override: bool,
    /// Time limit of the detection, which is a part of the start of the collector. If `retry.max_elapsed_time` is set,
    /// the limit holds for each attempt. More than 0. Default: 5s.
    pub timeout: Duration,
    /// Interval at which the detection is repeated; 0 means never. If a repetition fails, the previous attributes stay.
    /// Default: 0s.
    pub refresh_interval: Duration,
    /// Whether a detector fails if its metadata service cannot be reached. A detector that fails is retried, and at the
    /// end of the time the start fails. Otherwise such a detector finds no attributes. Default: false.
    pub fail_on_missing_metadata: bool,
    /// Retries of detectors that fail.
    pub retry: DetectionRetry,
    /// Keys to emit; attributes with other keys are omitted. Deprecated: use `resource_attributes` of each detector.
    /// Default: all keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
    /// Detector `env`.
    #[serde(skip_serializing_if = "is_default")]
    pub env: EnvSection,
    /// Detector `system`.
    #[serde(skip_serializing_if = "is_default")]
    pub system: SystemSection,
    /// Detector `docker`.
    #[serde(skip_serializing_if = "is_default")]
    pub docker: AttributesSection<DockerAttributes>,
    /// Detector `ec2`.
    #[serde(skip_serializing_if = "is_default")]
    pub ec2: Ec2Section,
    /// Detector `ecs`.
    #[serde(skip_serializing_if = "is_default")]
    pub ecs: AttributesSection<EcsAttributes>,
    /// Detector `eks`.
    #[serde(skip_serializing_if = "is_default")]
    pub eks: EksSection,
    /// Detector `elastic_beanstalk`.
    #[serde(skip_serializing_if = "is_default")]
    pub elasticbeanstalk: AttributesSection<BeanstalkAttributes>,
    /// Detector `lambda`.
    #[serde(skip_serializing_if = "is_default")]
    pub lambda: AttributesSection<LambdaAttributes>,
    /// Detector `gcp`.
    #[serde(skip_serializing_if = "is_default")]
    pub gcp: AttributesSection<GcpAttributes>,
    /// Detector `azure`.
    #[serde(skip_serializing_if = "is_default")]
    pub azure: AzureSection,
    /// Detector `aks`.
    #[serde(skip_serializing_if = "is_default")]
    pub aks: AttributesSection<AksAttributes>,
    /// Detector `heroku`.
    #[serde(skip_serializing_if = "is_default")]
    pub heroku: AttributesSection<HerokuAttributes>,
    /// Detector `consul`.
    #[serde(skip_serializing_if = "is_default")]
    pub consul: ConsulSection,
    /// Detector `k8s_api`.
    #[serde(skip_serializing_if = "is_default")]
    pub k8s_api: KubernetesSection,
    /// Detector `k8snode`, the former name of `k8s_api`.
    #[serde(skip_serializing_if = "is_default")]
    pub k8snode: KubernetesSection,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for DetectionConfig {
    fn default() -> Self {
        DetectionConfig {
            detectors: vec![BuiltInDetector::Env.name().to_owned()],
            r#override: true,
            timeout: Duration::secs(5),
            refresh_interval: Duration::secs(0),
            fail_on_missing_metadata: false,
            retry: DetectionRetry::default(),
            attributes: Vec::new(),
            env: EnvSection::default(),
            system: SystemSection::default(),
            docker: AttributesSection::default(),
            ec2: Ec2Section::default(),
            ecs: AttributesSection::default(),
            eks: EksSection::default(),
            elasticbeanstalk: AttributesSection::default(),
            lambda: AttributesSection::default(),
            gcp: AttributesSection::default(),
            azure: AzureSection::default(),
            aks: AttributesSection::default(),
            heroku: AttributesSection::default(),
            consul: ConsulSection::default(),
            k8s_api: KubernetesSection::default(),
            k8snode: KubernetesSection::default(),
        }
    }
}

impl DetectionConfig {
    /// Returns the configured detectors that this build has.
    pub fn built_in(&self) -> Vec<BuiltInDetector> {
        let names = self.detectors.iter();
        names
            .filter_map(|name| BuiltInDetector::find(name))
            .collect()
    }
}

impl Validate for DetectionConfig {
    fn validate(&self, problems: &mut Problems) {
        for (at, name) in self.detectors.iter().enumerate() {
            if BuiltInDetector::find(name).is_none() {
                let names = BuiltInDetector::ALL.map(BuiltInDetector::name);
                let near = tributary_config::closest(name, &names);
                let hint = near.map_or_else(
                    || ".".to_owned(),
                    |near| format!("; did you mean `{near}`?"),
                );
                problems.error(
                    &["detectors", &at.to_string()],
                    format!(
                        "there is no detector `{name}`{hint} Built in: {}",
                        names.join(", ")
                    ),
                );
            }
        }
        if self.detectors.is_empty() {
            problems.error(&["detectors"], "must not be empty");
        }
        if self.timeout.is_zero() {
            problems.error(&["timeout"], "must be above 0");
        }
        problems.within("retry", &self.retry);
        problems.within("system", &self.system);
        problems.within("ec2", &self.ec2);
        problems.within("eks", &self.eks);
        sections::validate_patterns(&["azure", "tags"], &self.azure.tags, problems);
    }
}

/// Retries of detectors that fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DetectionRetry {
    /// Whether a detector is retried. Default: true.
    pub enabled: bool,
    /// Wait after the first failure. Default: 1s.
    pub initial_interval: Duration,
    /// Random variation of each wait, as a fraction between 0 and 1. Default: 0.5.
    pub randomization_factor: f64,
    /// Factor by which each wait exceeds the previous one; at least 1. Default: 2.0.
    pub multiplier: f64,
    /// Maximum wait. Default: 30s.
    pub max_interval: Duration,
    /// Time after which a detector has failed; 0 means the processor's `timeout`. Default: 0s.
    pub max_elapsed_time: Duration,
}

impl Default for DetectionRetry {
    fn default() -> Self {
        DetectionRetry {
            enabled: true,
            initial_interval: Duration::secs(1),
            randomization_factor: 0.5,
            multiplier: 2.0,
            max_interval: Duration::secs(30),
            max_elapsed_time: Duration::secs(0),
        }
    }
}

impl Validate for DetectionRetry {
    fn validate(&self, problems: &mut Problems) {
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            problems.error(&["randomization_factor"], "must be between 0 and 1");
        }
        if !(self.multiplier >= 1.0 && self.multiplier.is_finite()) {
            problems.error(&["multiplier"], "must be at least 1");
        }
    }
}
