//! Configuration of object stores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::Duration;
use tributary_config::{ByteSize, Problems, Validate};
use tributary_net::object_store::{Bucket, StoreOptions};

/// A bucket of an object store. A file is uploaded in parts while it is written, and becomes
/// visible when it is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectStoreConfig {
    /// Bucket and prefix: `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://account/container/prefix`. Required.
    pub url: String,
    /// Options of the store, such as `region`, `endpoint` (of an S3 server of your own) or
    /// `allow_http`, with the names of the crate `object_store`. Without credentials in the
    /// options, the credentials of the environment (variables, instance metadata) are used.
    /// Default: none.
    pub options: StoreOptions,
    /// Size of an uploaded part, at least 5MiB. Smaller files are uploaded in one request. Default:
    /// 8MiB.
    pub part_size: ByteSize,
    /// Time limit of one request, after which the request is retried; more than 0. Default: 30s.
    pub timeout: Duration,
}

impl Default for ObjectStoreConfig {
    fn default() -> Self {
        ObjectStoreConfig {
            url: String::new(),
            options: StoreOptions::new(),
            part_size: ByteSize::mib(8),
            timeout: Duration::secs(30),
        }
    }
}

impl ObjectStoreConfig {
    pub(in super::super) fn bucket(&self) -> Bucket<'_> {
        Bucket {
            url: &self.url,
            options: &self.options,
            timeout: self.timeout,
        }
    }
}

impl Validate for ObjectStoreConfig {
    fn validate(&self, problems: &mut Problems) {
        self.bucket()
            .validate("write to a directory (`path`) instead", problems);
        if self.part_size < ByteSize::mib(5) {
            problems.error(&["part_size"], "must be at least 5MiB, the minimum of S3");
        }
    }
}
