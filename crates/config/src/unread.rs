//! Keys of the Collector that are known but not supported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value that is ignored, because its key is refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Unread)
    }
}

impl JsonSchema for Unread {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Unread".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!(false)
    }
}
