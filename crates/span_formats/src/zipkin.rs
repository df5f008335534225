//! Spans of Zipkin: v1 and v2, and rendering as v2.

mod address;
mod embedded;
mod render;
mod resource_tags;
mod v1;
mod v1_json;
mod v1_thrift;
mod v2;
mod v2_json;
mod v2_proto;
mod values;

pub use self::render::{RenderError, ZipkinEncoding, render};
pub(crate) use self::v1_json::v1_json;
pub(crate) use self::v1_thrift::v1_thrift;
pub(crate) use self::v2_json::v2_json;
pub(crate) use self::v2_proto::v2_proto;
