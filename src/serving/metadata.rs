//! The headers of a request, kept with its data.

use std::sync::Arc;

use http::HeaderMap;

use crate::pipeline::batch::Metadata;

/// Returns the headers to keep with a batch: all headers with UTF-8 values.
pub(crate) fn of(headers: &HeaderMap) -> Arc<Metadata> {
    let mut metadata = Metadata::new();
    for (name, value) in headers {
        if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
            let values = metadata.entry(name.as_str().to_owned()).or_default();
            values.push(value.to_owned());
        }
    }
    Arc::new(metadata)
}
