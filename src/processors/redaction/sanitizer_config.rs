//! Configuration of the sanitizers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Replacement of the variable parts of URLs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UrlSanitizerConfig {
    /// Whether the sanitizer is on. Default: false.
    pub enabled: bool,
    /// Keys of attributes that contain URLs. Default: none.
    pub attributes: Vec<String>,
    /// Whether the names of client and server spans are sanitized if they contain `/` or the span has HTTP attributes.
    /// Default: true.
    pub sanitize_span_name: bool,
}

impl Default for UrlSanitizerConfig {
    fn default() -> Self {
        UrlSanitizerConfig {
            enabled: false,
            attributes: Vec::new(),
            sanitize_span_name: true,
        }
    }
}

/// Removal of literals from database queries.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DbSanitizerConfig {
    /// Whether the names of client, server and internal spans of a database are sanitized too. Default: true.
    pub sanitize_span_name: bool,
    /// Whether attributes without `db.system.name` or `db.system` beside them are sanitized for every enabled system.
    /// Default: false.
    pub allow_fallback_without_system: bool,
    /// SQL queries.
    pub sql: SystemConfig,
    /// Redis queries.
    pub redis: SystemConfig,
    /// Valkey queries.
    pub valkey: SystemConfig,
    /// Memcached queries.
    pub memcached: SystemConfig,
    /// MongoDB queries.
    pub mongo: SystemConfig,
    /// OpenSearch queries.
    pub opensearch: SystemConfig,
    /// Elasticsearch queries.
    pub es: SystemConfig,
}

impl Default for DbSanitizerConfig {
    fn default() -> Self {
        DbSanitizerConfig {
            sanitize_span_name: true,
            allow_fallback_without_system: false,
            sql: SystemConfig::default(),
            redis: SystemConfig::default(),
            valkey: SystemConfig::default(),
            memcached: SystemConfig::default(),
            mongo: SystemConfig::default(),
            opensearch: SystemConfig::default(),
            es: SystemConfig::default(),
        }
    }
}

/// Queries of one database system.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SystemConfig {
    /// Whether queries of this system are sanitized. Default: false.
    pub enabled: bool,
    /// Keys of attributes that contain queries. Default: none.
    pub attributes: Vec<String>,
}
