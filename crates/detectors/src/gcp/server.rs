//! The metadata server of Google Cloud.

use std::time::Duration;

use tokio::time::Instant;

use crate::Detection;
use crate::http::{MetadataResponse, Service, ServiceError};

const HEADER: (&str, &str) = ("metadata-flavor", "Google");

/// Time limit for finding the server on a machine that does not look like one of Google's.
const SEARCH: Duration = Duration::from_secs(1);

/// Path with the product name that a machine of Google Cloud has.
const PRODUCT: &str = "sys/class/dmi/id/product_name";

/// The metadata server.
pub(super) struct MetadataServer(Service);

impl MetadataServer {
    /// Finds the server; `None` if this machine is not in Google Cloud.
    pub(super) async fn find(detection: &Detection<'_>) -> Option<Self> {
        let machine = detection.machine;
        // The variable of Google's client libraries.
        let host = machine.filled("GCE_METADATA_HOST");
        let base = match host {
            Some(host) => format!("http://{host}"),
            None => machine.link_local.clone(),
        };
        let service = |deadline| Service::new(&base, deadline).ok();
        let is_google = || {
            let product = machine.read(PRODUCT);
            product.is_ok_and(|product| product.trim_start().starts_with("Google"))
        };
        let deadline = match host.is_some() || is_google() {
            true => detection.deadline,
            false => detection.deadline.min(Instant::now() + SEARCH),
        };
        let probe = service(deadline)?
            .get("/computeMetadata/v1/", &[HEADER])
            .await;
        let found = probe.is_ok_and(|response| is_flavored(&response));
        match found {
            true => service(detection.deadline).map(MetadataServer),
            false => None,
        }
    }

    /// Returns the value at a path below `/computeMetadata/v1/`.
    pub(super) async fn get(&self, path: &str) -> Result<String, ServiceError> {
        let path = format!("/computeMetadata/v1/{path}");
        let response = self.0.get(&path, &[HEADER]).await?;
        Ok(response.body.trim().to_owned())
    }
}

/// Whether a response comes from Google's server. Other clouds have a server at the same address.
fn is_flavored(response: &MetadataResponse) -> bool {
    let (name, value) = HEADER;
    response
        .headers
        .get(name)
        .is_some_and(|found| found == value)
}
