//! The object store client.

use std::sync::Arc;

use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};

use super::StoreConfig;
use crate::build_id::BuildId;
use crate::failure::Failure;
use crate::find::breaker::Breaker;
use crate::find::download::download;
use crate::find::{BinaryFiles, BinarySource, Tools, layout};
use futures_util::future::BoxFuture;
use tributary_net::client::full_error;

/// A prefix of a bucket. The client retries failed requests.
pub struct Store {
    client: Arc<dyn ObjectStore>,
    prefix: Path,
    url: String,
    max_bytes: u64,
    breaker: Breaker,
}

impl Store {
    /// Creates a client for the bucket, without connecting.
    ///
    /// # Errors
    /// Fails if the configuration is not valid for a store.
    pub fn new(config: &StoreConfig) -> Result<Self, String> {
        let (client, prefix) = config.bucket().client()?;
        Ok(Store {
            client,
            prefix,
            url: config.url.clone(),
            max_bytes: config.max_bytes.0,
            breaker: Breaker::default(),
        })
    }

    async fn search(&self, id: &BuildId, tools: &Tools) -> Result<BinaryFiles, Failure> {
        let debug = self.first(layout::debug_information(id), tools).await?;
        let binary = self.first(layout::binary(id), tools).await?;
        let mut found = match (debug, binary) {
            (Some(debug), Some(mut binary)) => {
                // The segments of the binary are authoritative; segments of a debug file may be wrong.
                binary.add(debug);
                binary
            }
            (Some(found), None) | (None, Some(found)) => found,
            (None, None) => return Err(Failure::NotFound),
        };
        let mut supplementary_id = None;
        for file in found.files() {
            // The compilation reports an unreadable file.
            let description = tools.compiler.describe(file).await.unwrap_or_default();
            supplementary_id = supplementary_id.or(description.supplementary_id);
        }
        // Most names can be resolved without the supplementary file.
        if let Some(supplementary_id) = supplementary_id
            && let Some(supplementary_id) = self
                .first(layout::debug_information(&supplementary_id), tools)
                .await?
        {
            found.add(supplementary_id);
        }
        Ok(found)
    }

    /// Returns the first of these files that exists.
    async fn first(
        &self,
        names: [String; 3],
        tools: &Tools,
    ) -> Result<Option<BinaryFiles>, Failure> {
        for name in names {
            match self.fetch(&name, tools).await {
                Err(Failure::NotFound) => {}
                fetched => return fetched.map(Some),
            }
        }
        Ok(None)
    }

    async fn fetch(&self, name: &str, tools: &Tools) -> Result<BinaryFiles, Failure> {
        if !self.breaker.allows_request() {
            let reason = format!(
                "requests to {} are paused for up to a minute after repeated failures",
                self.url
            );
            return Err(Failure::Unreachable(reason));
        }
        let fetched = self.try_fetch(name, tools).await;
        match &fetched {
            Err(Failure::Unreachable(_)) => self.breaker.record_failure(),
            _ => self.breaker.record_success(),
        }
        fetched
    }

    async fn try_fetch(&self, name: &str, tools: &Tools) -> Result<BinaryFiles, Failure> {
        let path = Path::from(format!("{}/{name}", self.prefix));
        let object = match self.client.get(&path).await {
            Ok(object) => object,
            Err(Error::NotFound { .. }) => return Err(Failure::NotFound),
            Err(error) => {
                let mut reason = format!("{}: {}", self.url, full_error(&error));
                if let Error::PermissionDenied { .. } = error {
                    // S3 also responds with this status for a missing object if the caller may not list the bucket.
                    reason.push_str(
                        "; the object may be missing: without permission to list the bucket, the store responds so",
                    );
                }
                return Err(Failure::Unreachable(reason));
            }
        };
        let size = object.meta.size;
        let pieces = object.into_stream();
        let pieces = pieces.map(|piece| piece.map_err(|error| full_error(&error)));
        let file = download(pieces, Some(size), self.max_bytes, &tools.cache).await?;
        Ok(BinaryFiles::download(file))
    }
}

impl BinarySource for Store {
    fn name(&self) -> &'static str {
        "object_store"
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn find<'a>(
        &'a self,
        id: &'a BuildId,
        tools: &'a Tools,
    ) -> BoxFuture<'a, Result<BinaryFiles, Failure>> {
        Box::pin(self.search(id, tools))
    }
}

#[cfg(test)]
mod tests;
