//! Writes Zipkin v2 as protobuf.

use std::net::IpAddr;

use tributary_otlp::room::{Room, RoomExhausted};

use super::model::{Rendered, RenderedEndpoint, SpanTags};
use crate::encode::Output;

/// A `ListOfSpans`.
pub(super) struct ProtoList<'r>(Output<'r>);

impl<'r> ProtoList<'r> {
    pub(super) fn new(room: &'r dyn Room) -> Self {
        ProtoList(Output::new(room))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    pub(super) fn span(
        &mut self,
        span: &Rendered<'_>,
        tags: &SpanTags<'_, '_>,
    ) -> Result<(), RoomExhausted> {
        self.0.message(1, |output| {
            output.bytes(1, span.trace_id)?;
            output.bytes(2, span.parent_id)?;
            output.bytes(3, span.span_id)?;
            output.varint(4, span.kind.map_or(0, |(_, number)| number))?;
            output.bytes(5, span.name.as_bytes())?;
            output.fixed64(6, span.start.saturating_add(500) / 1000)?;
            output.varint(7, span.duration / 1000)?;
            for (field, endpoint) in [(8, &span.local), (9, &span.remote)] {
                if let Some(endpoint) = endpoint {
                    output.message(field, |output| write_endpoint(endpoint, output))?;
                }
            }
            span.annotations(|time, text| {
                output.message(10, |output| {
                    output.fixed64(1, time / 1000)?;
                    output.bytes(2, text.as_bytes())
                })
            })?;
            for (key, value) in tags.iter() {
                output.message(11, |output| {
                    output.bytes(1, key.as_bytes())?;
                    output.bytes(2, value.as_bytes())
                })?;
            }
            Ok(())
        })
    }
}

fn write_endpoint(
    endpoint: &RenderedEndpoint<'_>,
    output: &mut Output<'_>,
) -> Result<(), RoomExhausted> {
    output.bytes(1, endpoint.service.as_bytes())?;
    match endpoint.address {
        Some(IpAddr::V4(address)) => output.bytes(2, &address.octets())?,
        Some(IpAddr::V6(address)) => output.bytes(3, &address.octets())?,
        None => {}
    }
    output.varint(4, endpoint.port.into())
}
