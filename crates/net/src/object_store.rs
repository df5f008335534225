//! Access to object stores. The content of the objects belongs to the users of this module.

use std::collections::BTreeMap;
#[cfg(feature = "object-store")]
use std::sync::Arc;

use tributary_config::units::Duration;
use tributary_config::{Problems, Secret};

/// Settings by name. The values are secrets.
pub type StoreOptions = BTreeMap<String, Secret>;

/// A bucket with a prefix, from the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'c> {
    /// URL, for example `s3://bucket/prefix`.
    pub url: &'c str,
    /// Settings of the store, by their names in the crate object_store.
    pub options: &'c StoreOptions,
    /// Timeout of one request, after which it is retried.
    pub timeout: Duration,
}

impl Bucket<'_> {
    /// Reports mistakes in the keys `url`, `options` and `timeout`. `instead` names an alternative for builds without
    /// object stores.
    pub fn validate(&self, instead: &str, problems: &mut Problems) {
        const SCHEMES: [&str; 7] = [
            "s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://", "https://",
        ];
        if cfg!(not(feature = "object-store")) {
            let reason = format!(
                "this collector was built without object stores: build it with `cargo build --release --features object-store`, \
                 or {instead}"
            );
            problems.error(&[], reason);
        }
        if !SCHEMES.iter().any(|scheme| self.url.starts_with(scheme)) {
            problems.error(
                &["url"],
                "must be the URL of a bucket, with an optional prefix: `s3://bucket/prefix`, `gs://...` or \
                 `az://...`",
            );
        }
        #[cfg(feature = "object-store")]
        for name in client::unknown_options(self) {
            problems.error(
                &["options", name],
                format!("the store has no option `{name}`"),
            );
        }
        if self.timeout.is_zero() {
            problems.error(&["timeout"], "must be above 0");
        }
    }

    /// Creates a client, without connecting, and the prefix.
    ///
    /// # Errors
    /// The configuration is invalid for its store.
    #[cfg(feature = "object-store")]
    pub fn client(
        &self,
    ) -> Result<(Arc<dyn object_store::ObjectStore>, object_store::path::Path), String> {
        client::new(self).map_err(|error| format!("cannot use the object store: {error}"))
    }
}

#[cfg(feature = "object-store")]
mod client {
    use std::str::FromStr;
    use std::sync::Arc;

    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreScheme, RetryConfig};
    use reqwest::Url;

    use super::Bucket;

    pub(super) fn unknown_options<'c>(bucket: &Bucket<'c>) -> Vec<&'c str> {
        fn known<K: FromStr>(name: &str) -> bool {
            name.parse::<K>().is_ok()
        }
        let url = Url::parse(bucket.url).ok();
        let is_known = match url.and_then(|url| ObjectStoreScheme::parse(&url).ok()) {
            Some((ObjectStoreScheme::AmazonS3, _)) => known::<AmazonS3ConfigKey>,
            Some((ObjectStoreScheme::GoogleCloudStorage, _)) => known::<GoogleConfigKey>,
            Some((ObjectStoreScheme::MicrosoftAzure, _)) => known::<AzureConfigKey>,
            _ => return Vec::new(),
        };
        let names = bucket.options.keys().map(String::as_str);
        names.filter(|name| !is_known(name)).collect()
    }

    /// Creates a client with the settings of the environment. Settings of the configuration take precedence.
    pub(super) fn new(bucket: &Bucket<'_>) -> Result<(Arc<dyn ObjectStore>, Path), String> {
        // The program's crypto provider; reqwest is built without one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = Url::parse(bucket.url).map_err(|error| error.to_string())?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|error| error.to_string())?;
        let timeout = format!("{}ms", bucket.timeout.as_millis());
        // The caller retries requests that fail for longer than this timeout.
        let retry = RetryConfig {
            max_retries: 3,
            retry_timeout: *bucket.timeout * 4,
            ..RetryConfig::default()
        };
        macro_rules! client {
            ($builder:ty) => {{
                let mut builder = <$builder>::from_env()
                    .with_url(url.to_string())
                    .with_retry(retry);
                let options = bucket.options.iter();
                let options = options.map(|(name, value)| (name.as_str(), value.reveal()));
                // Options are set one by one, because setting all client options at once would reset the options of the
                // environment.
                for (name, value) in std::iter::once(("timeout", timeout.as_str())).chain(options) {
                    let key = name
                        .parse()
                        .map_err(|_| format!("the store has no option `{name}`"))?;
                    builder = builder.with_config(key, value);
                }
                let store = builder.build().map_err(|error| error.to_string())?;
                Arc::new(store) as Arc<dyn ObjectStore>
            }};
        }
        let store = match scheme {
            ObjectStoreScheme::AmazonS3 => client!(AmazonS3Builder),
            ObjectStoreScheme::GoogleCloudStorage => client!(GoogleCloudStorageBuilder),
            ObjectStoreScheme::MicrosoftAzure => client!(MicrosoftAzureBuilder),
            _ => return Err("the URL is not that of a bucket".to_owned()),
        };
        Ok((store, prefix))
    }
}

#[cfg(all(test, feature = "object-store"))]
mod tests {
    use super::*;

    #[test]
    fn unknown_store_options_are_reported_at_their_keys() {
        let unknown = |url: &str, names: &[&str]| {
            let options = names.iter().map(|name| ((*name).to_owned(), "".into()));
            let bucket = Bucket {
                url,
                options: &options.collect(),
                timeout: Duration::secs(1),
            };
            let mut problems = Problems::default();
            bucket.validate("", &mut problems);
            let found = problems.found().iter();
            found
                .map(|problem| problem.path.join("::"))
                .collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(unknown("s3://bucket", &["region"]), none);
        let found = unknown("s3://bucket", &["allow_htpp", "region", "regoin"]);
        assert_eq!(found, ["options::allow_htpp", "options::regoin"]);
        assert_eq!(unknown("gs://bucket", &["service_account"]), none);
        assert_eq!(unknown("gs://bucket", &["region"]), ["options::region"]);
        assert_eq!(unknown("az://bucket", &["account_name"]), none);
    }
}
