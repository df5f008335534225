//! Types of configuration values that several components share.

mod byte_size;
mod duration;
mod endpoint;
mod headers;
mod secret;
mod section;

pub use byte_size::ByteSize;
pub use duration::Duration;
pub use endpoint::Endpoint;
pub use headers::Headers;
pub use secret::Secret;
pub use section::Section;
