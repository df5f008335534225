//! Kafka: what the exporter and the receiver have in common. The configuration is there in every build, so that one is
//! checked alike everywhere; the client, which is librdkafka, only with the feature `kafka`.

#[cfg(feature = "kafka")]
pub mod client;
mod config;
#[cfg(feature = "kafka")]
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::config::{
    Auth, ClusterMetadata, Connection, Encoding, Mechanism, Sasl, Tls, default_brokers,
    default_topic, milliseconds,
};
