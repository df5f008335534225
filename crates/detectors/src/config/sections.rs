//! Settings of single detectors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_config::units::Duration;
use tributary_config::{Problems, Secret, Validate, re2, wildcard};

use crate::table::{AttributeTable, Switches};
use crate::tables::{
    AzureAttributes, ConsulAttributes, Ec2Attributes, EksAttributes, KubernetesAttributes,
    SystemAttributes,
};

/// Settings of a detector without other settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, bound = "T: AttributeTable")]
#[schemars(bound = "T: AttributeTable", rename = "{T}Section")]
pub struct AttributesSection<T> {
    /// Attributes to emit or to omit, as in `cloud.region: {enabled: false}`. Default: see the table of the detectors.
    pub resource_attributes: Switches<T>,
}

impl<T> Default for AttributesSection<T> {
    fn default() -> Self {
        AttributesSection {
            resource_attributes: Switches::default(),
        }
    }
}

/// Settings of the detector `env`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvSection {
    /// Keys to take from the variable.
    pub attributes: KeyFilter,
}

/// A selection of attribute keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyFilter {
    /// Keys to emit, with `*` for any text and `?` for any character. Default: all keys.
    pub included: Vec<String>,
    /// Keys to omit, even if they are in `included`; patterns as there. Default: none.
    pub excluded: Vec<String>,
}

impl KeyFilter {
    pub(crate) fn selects(&self, key: &str) -> bool {
        let matches = |patterns: &[String]| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| wildcard::matches(pattern, key))
        };
        (self.included.is_empty() || matches(&self.included)) && !matches(&self.excluded)
    }
}

/// Settings of the detector `system`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SystemSection {
    /// Sources of `host.name`, the first that works: `dns` for the fully qualified name from `/etc/hosts` or DNS, `os`
    /// for the name of the kernel, `cname` for the canonical name in DNS, `lookup` for the name in DNS of this host's
    /// address. Default: `[dns, os]`.
    pub hostname_sources: Vec<HostNameSource>,
    /// Attributes to emit or to omit, as in `host.id: {enabled: true}`. Default: see the table of the detectors.
    pub resource_attributes: Switches<SystemAttributes>,
}

impl Default for SystemSection {
    fn default() -> Self {
        SystemSection {
            hostname_sources: vec![HostNameSource::Dns, HostNameSource::Os],
            resource_attributes: Switches::default(),
        }
    }
}

impl Validate for SystemSection {
    fn validate(&self, problems: &mut Problems) {
        if self.hostname_sources.is_empty() {
            problems.error(
                &["hostname_sources"],
                "must not be empty: remove the key for the default, `[dns, os]`",
            );
        }
    }
}

/// Source of `host.name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostNameSource {
    /// The fully qualified name, from `/etc/hosts` or DNS.
    Dns,
    /// The name of the kernel.
    Os,
    /// The canonical name in DNS.
    Cname,
    /// The name in DNS of this host's address.
    Lookup,
}

/// Settings of the detector `ec2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ec2Section {
    /// Regular expressions for keys of instance tags. Matching tags become attributes `ec2.tag.KEY`. Needs
    /// `tags_from_imds: true`. Default: none.
    pub tags: Vec<String>,
    /// Whether tags come from the instance metadata service. The instance must allow access to tags in its metadata.
    /// The EC2 API, the other source in the Collector, is not supported. Default: false.
    pub tags_from_imds: bool,
    /// Maximum number of attempts of each request. At least 1. Default: 3.
    pub max_attempts: u32,
    /// Maximum wait between two attempts. Default: 20s.
    pub max_backoff: Duration,
    /// Deprecated: use `fail_on_missing_metadata` of the processor. Default: false.
    pub fail_on_missing_metadata: bool,
    /// Attributes to emit or to omit, as in `host.id: {enabled: false}`. Default: see the table of the detectors.
    pub resource_attributes: Switches<Ec2Attributes>,
}

impl Default for Ec2Section {
    fn default() -> Self {
        // The defaults of Amazon's SDK.
        Ec2Section {
            tags: Vec::new(),
            tags_from_imds: false,
            max_attempts: 3,
            max_backoff: Duration::secs(20),
            fail_on_missing_metadata: false,
            resource_attributes: Switches::default(),
        }
    }
}

impl Validate for Ec2Section {
    fn validate(&self, problems: &mut Problems) {
        validate_patterns(&["tags"], &self.tags, problems);
        if !self.tags.is_empty() && !self.tags_from_imds {
            problems.error(
                &["tags"],
                "the EC2 API is not supported: allow access to tags in the instance metadata (`aws ec2 \
                 modify-instance-metadata-options --instance-metadata-tags enabled`) and set `tags_from_imds: true`",
            );
        }
        if self.max_attempts == 0 {
            problems.error(&["max_attempts"], "must be at least 1");
        }
    }
}

impl Ec2Section {
    pub(crate) fn patterns(&self) -> Vec<Regex> {
        compiled(&self.tags)
    }
}

/// Settings of the detector `eks`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EksSection {
    /// Environment variable with the name of the node. With the name, the Kubernetes API replaces an instance metadata
    /// service that pods cannot reach. Default: none.
    pub node_from_env_var: String,
    /// Attributes to emit or to omit, as in `host.id: {enabled: true}`. `k8s.cluster.name` needs the EC2 API and cannot
    /// be enabled. Default: see the table of the detectors.
    pub resource_attributes: Switches<EksAttributes>,
}

impl Validate for EksSection {
    fn validate(&self, problems: &mut Problems) {
        if self.resource_attributes.is_enabled("k8s.cluster.name") {
            problems.error(
                &["resource_attributes", "k8s.cluster.name"],
                "is not supported, because only the EC2 API knows the name: set the attribute with the processor \
                 `resource`, or with OTEL_RESOURCE_ATTRIBUTES and the detector `env`",
            );
        }
    }
}

/// Settings of the detector `azure`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AzureSection {
    /// Regular expressions for keys of tags. Matching tags become attributes `azure.tag.KEY`. Default: none.
    pub tags: Vec<String>,
    /// Attributes to emit or to omit, as in `host.id: {enabled: false}`. Default: see the table of the detectors.
    pub resource_attributes: Switches<AzureAttributes>,
}

impl AzureSection {
    pub(crate) fn patterns(&self) -> Vec<Regex> {
        compiled(&self.tags)
    }
}

/// Settings of the detector `consul`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulSection {
    /// Address of the agent. Default: the variable `CONSUL_HTTP_ADDR`, or `127.0.0.1:8500`.
    pub address: String,
    /// Datacenter to ask for. Default: the agent's datacenter.
    pub datacenter: String,
    /// Access token. Default: the variable `CONSUL_HTTP_TOKEN`, or none.
    pub token: Secret,
    /// File with the access token. Default: the variable `CONSUL_HTTP_TOKEN_FILE`, or none.
    pub token_file: PathBuf,
    /// Namespace of the requests. Default: none.
    pub namespace: String,
    /// Keys of node metadata that become attributes. The values are ignored. Default: none.
    pub meta: BTreeMap<String, Option<String>>,
    /// Attributes to emit or to omit, as in `host.id: {enabled: false}`. Default: see the table of the detectors.
    pub resource_attributes: Switches<ConsulAttributes>,
}

/// Settings of the detector `k8s_api`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSection {
    /// Authentication at the API server: `serviceAccount` or `none`. (The Collector also has `kubeConfig` and `tls`.)
    /// Default: `serviceAccount`.
    pub auth_type: ApiAuthType,
    /// Environment variable with the name of the node. Set it in the pod from the field `spec.nodeName`. Default:
    /// `K8S_NODE_NAME`.
    pub node_from_env_var: String,
    /// Attributes to emit or to omit, as in `k8s.node.uid: {enabled: false}`. Default: see the table of the detectors.
    pub resource_attributes: Switches<KubernetesAttributes>,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        KubernetesSection {
            auth_type: ApiAuthType::default(),
            node_from_env_var: "K8S_NODE_NAME".to_owned(),
            resource_attributes: Switches::default(),
        }
    }
}

/// Authentication at the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiAuthType {
    /// The service account of the pod.
    #[default]
    #[serde(rename = "serviceAccount")]
    ServiceAccount,
    /// No authentication.
    #[serde(rename = "none")]
    None,
}

pub(super) fn validate_patterns(path: &[&str], patterns: &[String], problems: &mut Problems) {
    for (at, pattern) in patterns.iter().enumerate() {
        if let Err(error) = re2::compile(pattern) {
            let at = at.to_string();
            let path: Vec<&str> = path.iter().copied().chain([at.as_str()]).collect();
            problems.error(&path, error.to_string());
        }
    }
}

/// Returns validated patterns.
fn compiled(patterns: &[String]) -> Vec<Regex> {
    let compiled = patterns.iter().map(|pattern| re2::compile(pattern));
    compiled.filter_map(Result::ok).collect()
}
