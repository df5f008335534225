//! URL schemes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// URL scheme, with or without TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain text.
    #[default]
    Http,
    /// TLS.
    Https,
}
