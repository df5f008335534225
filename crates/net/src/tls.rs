//! TLS of clients and servers: the Collector's `tls` sections, their rustls configurations, and explanations of errors.
//!
//! ring is the only crypto provider. Every configuration gets it explicitly, so no process-wide default matters.

pub mod accept;
mod building;
pub mod certificate;
mod config;
pub mod connect;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod material;
mod metrics;
mod names;
mod notes;
mod parameters;
pub mod reason;
pub mod rotation;
mod source;
mod tickets;
mod trust;
mod verifier;

pub use building::system_roots;
pub use config::{ClientTls, ServerTls, TlsError, TlsVersion};
pub use source::TlsSource;

#[cfg(test)]
mod tests;
