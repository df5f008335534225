//! Spans of Jaeger. One struct holds a span of either encoding, and one function translates it.

mod batch;
mod post_spans;
mod status;
mod translate;

pub use self::batch::agent_spans;
pub(crate) use self::batch::{agent, batch};
pub(crate) use self::post_spans::post_spans;
