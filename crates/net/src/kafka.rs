//! Code shared by the Kafka exporter and receiver. The configuration is part of every build, so that every build
//! validates it alike. The client, librdkafka, needs the feature `kafka`.

#[cfg(feature = "kafka")]
pub mod client;
mod config;
#[cfg(feature = "kafka")]
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::config::{
    ClusterMetadata, Connection, KafkaAuth, Mechanism, RecordEncoding, Sasl, Tls, default_brokers,
    default_topic, milliseconds,
};
