//! A prefix of an object store, with files under the same names as in directories. Files from `symbol_upload`, a
//! debug package or a debuginfod cache can be copied there unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_net::object_store::{Bucket, StoreOptions};

#[cfg(feature = "object-store")]
mod store;

#[cfg(feature = "object-store")]
pub use self::store::Store;

/// An object store with binaries and debug information by build id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// URL of the bucket and a prefix: `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://account/container/prefix`. Required.
    pub url: String,
    /// Settings of the store, such as `region`, `endpoint` (of a self-hosted S3 server) or `allow_http`, with the
    /// names of the crate object_store. Credentials default to those of the environment (variables, instance
    /// metadata). Default: none.
    pub options: StoreOptions,
    /// Maximum time for one download attempt; more than 0. Default: 2m.
    pub timeout: Duration,
    /// Maximum size of one file; more than 0. Default: 2GiB.
    pub max_bytes: ByteSize,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            url: String::new(),
            options: StoreOptions::new(),
            timeout: Duration::secs(120),
            max_bytes: ByteSize::mib(2048),
        }
    }
}

impl StoreConfig {
    fn bucket(&self) -> Bucket<'_> {
        Bucket {
            url: &self.url,
            options: &self.options,
            timeout: self.timeout,
        }
    }
}

impl Validate for StoreConfig {
    fn validate(&self, problems: &mut Problems) {
        self.bucket()
            .validate("copy the files to one of `directories`", problems);
        if self.max_bytes.0 == 0 {
            problems.error(&["max_bytes"], "must be above 0");
        }
    }
}
