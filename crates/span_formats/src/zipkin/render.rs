//! Renders OTLP requests as lists of Zipkin v2 spans.

mod json;
mod model;
mod protobuf;

use tributary_otlp::room::{Room, RoomExhausted};
use tributary_otlp::view::{Request, ResourceEntry};

use self::json::JsonList;
use self::model::{SpanTags, rendered, resource_tags};
use self::protobuf::ProtoList;

/// Encoding of rendered spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZipkinEncoding {
    /// A JSON list.
    Json,
    /// `zipkin.proto3.ListOfSpans`.
    Proto,
}

/// The reason why a request could not be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A span has no valid id.
    #[error(
        "a span has no valid trace id of 16 bytes or span id of 8 bytes, which Zipkin requires"
    )]
    InvalidId,
    /// The room for the output is exhausted.
    #[error(transparent)]
    RoomExhausted(#[from] RoomExhausted),
}

/// Renders the spans of valid requests as one list. `default_service` is the name of the service for resources without
/// a name.
///
/// # Errors
/// A span has no valid id, or the room is exhausted.
pub fn render<R: AsRef<[u8]>>(
    requests: &[R],
    encoding: ZipkinEncoding,
    default_service: &str,
    room: &dyn Room,
) -> Result<Vec<u8>, RenderError> {
    let mut output = match encoding {
        ZipkinEncoding::Json => List::Json(JsonList::new(room)),
        ZipkinEncoding::Proto => List::Proto(ProtoList::new(room)),
    };
    for request in requests {
        for resource in Request::new(request.as_ref()).resources() {
            write_resource(resource, default_service, room, &mut output)?;
        }
    }
    match output {
        List::Json(list) => Ok(list.finish()?),
        List::Proto(list) => Ok(list.finish()),
    }
}

enum List<'r> {
    Json(JsonList<'r>),
    Proto(ProtoList<'r>),
}

fn write_resource(
    resource: ResourceEntry<'_>,
    default_service: &str,
    room: &dyn Room,
    output: &mut List<'_>,
) -> Result<(), RenderError> {
    let mut base = SpanTags::new(room);
    let service = resource_tags(resource, &mut base)?;
    let service = service.as_deref().unwrap_or(default_service);
    for scope in resource.scopes() {
        let mut tags = base.layer()?;
        if let Some(scope) = scope.scope() {
            tags.scope(scope)?;
        }
        for span in scope.spans() {
            let mut tags = tags.layer()?;
            let span = rendered(span, service, &mut tags)?;
            match output {
                List::Json(list) => list.span(&span, &tags)?,
                List::Proto(list) => list.span(&span, &tags)?,
            }
        }
    }
    Ok(())
}
