//! A prefix of an object store, with files by the names that they have in directories: what `symbol_upload`, a debug package or
//! a debuginfod cache has can be copied there as it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_net::object_store::{Bucket, StoreOptions};

#[cfg(feature = "object-store")]
mod store;

#[cfg(feature = "object-store")]
pub use self::store::Store;

/// A bucket with binaries and debug information by build id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The bucket and a prefix: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://account/container/prefix`. Required.
    pub url: String,
    /// Settings of the store, such as `region`, `endpoint` (of an S3 server of your own) or `allow_http`; the names are those
    /// of the crate object_store. Without credentials here those of the environment (variables, instance metadata) are used.
    /// Default: none.
    pub options: StoreOptions,
    /// How long one download may take, after which it is tried again; more than 0. Default: 2m.
    pub timeout: Duration,
    /// The most bytes of one file; more than 0. Default: 2GiB.
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
            .validate("copy the files into one of `directories`", problems);
        if self.max_bytes.0 == 0 {
            problems.error(&["max_bytes"], "must be above 0");
        }
    }
}
