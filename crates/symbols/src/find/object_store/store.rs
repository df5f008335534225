//! The client.

use std::sync::Arc;

use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};

use super::StoreConfig;
use crate::build_id::BuildId;
use crate::failure::Failure;
use crate::find::breaker::Breaker;
use crate::find::download::download;
use crate::find::{Found, Source, Tools, layout};
use futures_util::future::BoxFuture;
use tributary_net::client::full_error;

/// A prefix of a bucket. Requests that fail are tried again by the client.
pub struct Store {
    client: Arc<dyn ObjectStore>,
    prefix: Path,
    /// For messages.
    url: String,
    max_bytes: u64,
    breaker: Breaker,
}

impl Store {
    /// A client for the bucket. It does not connect.
    ///
    /// # Errors
    /// When the configuration is not one of a store.
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

    async fn search(&self, id: &BuildId, tools: &Tools) -> Result<Found, Failure> {
        let debug = self.first(layout::debug_information(id), tools).await?;
        let binary = self.first(layout::binary(id), tools).await?;
        let mut found = match (debug, binary) {
            (Some(debug), Some(mut binary)) => {
                // The segments of a binary are those that count; of a debug file they may be made up.
                binary.add(debug);
                binary
            }
            (Some(found), None) | (None, Some(found)) => found,
            (None, None) => return Err(Failure::NotFound),
        };
        let mut common = None;
        for file in found.files() {
            // One that cannot be read is found out when it is compiled.
            let description = tools.compiler.describe(file).await.unwrap_or_default();
            common = common.or(description.common);
        }
        // Most names do not need it.
        if let Some(common) = common
            && let Some(common) = self
                .first(layout::debug_information(&common), tools)
                .await?
        {
            found.add(common);
        }
        Ok(found)
    }

    /// The first of these that is there.
    async fn first(&self, names: [String; 3], tools: &Tools) -> Result<Option<Found>, Failure> {
        for name in names {
            match self.fetch(&name, tools).await {
                Err(Failure::NotFound) => {}
                fetched => return fetched.map(Some),
            }
        }
        Ok(None)
    }

    async fn fetch(&self, name: &str, tools: &Tools) -> Result<Found, Failure> {
        if !self.breaker.admits() {
            let reason = format!("{} is left alone: it failed several times", self.url);
            return Err(Failure::Unreachable(reason));
        }
        let fetched = self.try_fetch(name, tools).await;
        match &fetched {
            Err(Failure::Unreachable(_)) => self.breaker.failed(),
            _ => self.breaker.worked(),
        }
        fetched
    }

    async fn try_fetch(&self, name: &str, tools: &Tools) -> Result<Found, Failure> {
        let path = Path::from(format!("{}/{name}", self.prefix));
        let object = match self.client.get(&path).await {
            Ok(object) => object,
            Err(Error::NotFound { .. }) => return Err(Failure::NotFound),
            Err(error) => {
                let mut reason = format!("{}: {}", self.url, full_error(&error));
                if let Error::PermissionDenied { .. } = error {
                    // So does S3 answer to those who may not know what there is.
                    reason.push_str("; what is missing looks like this without the permission to list the bucket");
                }
                return Err(Failure::Unreachable(reason));
            }
        };
        let size = object.meta.size;
        let pieces = object.into_stream();
        let pieces = pieces.map(|piece| piece.map_err(|error| full_error(&error)));
        let file = download(pieces, Some(size), self.max_bytes, &tools.cache).await?;
        Ok(Found::download(file))
    }
}

impl Source for Store {
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
    ) -> BoxFuture<'a, Result<Found, Failure>> {
        Box::pin(self.search(id, tools))
    }
}

#[cfg(test)]
mod tests;
