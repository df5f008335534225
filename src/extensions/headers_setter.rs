//! `headers_setter`: sets headers of the requests of clients, to constants or to headers of the request that brought the
//! data.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::credentials::header_name;
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::pipeline::Idle;
use tributary_config::units::Secret;
use tributary_config::{Capability, Problems, Validate};
use tributary_net::auth::ClientAuthenticator;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "headers_setter",
    aliases: &[],
    "Sets headers of requests to constants, or to headers of the request that brought the data.",
    &[],
    collector: Origin::Contrib,
    metrics: &[]
);

/// Headers to set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Headers to set or to delete, in this order; at least one. Required.
    #[serde(default)]
    pub headers: Vec<HeaderSetting>,
}

/// One header.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderSetting {
    /// Name of the header. Required.
    pub key: String,
    /// `insert` sets a missing header, `update` sets an existing one, `upsert` does both, `delete` removes the header.
    /// Default: `upsert`.
    pub action: HeaderAction,
    /// Value of the header. This or `from_context` is required, except for `delete`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Secret>,
    /// Header of the request that brought the data, whose first value is copied. The receiver must have
    /// `include_metadata: true`, and a processor `batch` must have the header in `metadata_keys`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_context: Option<String>,
    /// Value to use if the header of `from_context` is missing. Without it, nothing happens. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_value: Option<Secret>,
}

/// Kind of change to a header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeaderAction {
    /// Sets a missing header.
    Insert,
    /// Sets an existing header.
    Update,
    /// Sets the header.
    #[default]
    Upsert,
    /// Removes the header.
    Delete,
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.headers.is_empty() {
            let message = "is required: list at least one header, such as {key: X-Scope-OrgID, from_context: tenant}";
            problems.error(&["headers"], message);
        }
        for (at, setting) in self.headers.iter().enumerate() {
            let at = at.to_string();
            setting.validate(&mut |key, message| problems.error(&["headers", &at, key], message));
        }
    }
}

impl HeaderSetting {
    fn validate(&self, error: &mut dyn FnMut(&str, String)) {
        if self.key.is_empty() {
            error("key", "is required: the name of the header".to_owned());
        } else if let Err(reason) = header_name(&self.key) {
            error("key", reason);
        }
        let deletes = self.action == HeaderAction::Delete;
        match (&self.value, &self.from_context) {
            (None, None) if !deletes => {
                let message = "is required: set `value` or `from_context`";
                error("value", message.to_owned());
            }
            (Some(_), Some(_)) => {
                let message = "cannot be combined with `value`: remove one of the two";
                error("from_context", message.to_owned());
            }
            (_, Some(name)) if name.parse::<HeaderName>().is_err() => {
                error("from_context", format!("`{name}` is not a header name"));
            }
            _ => {}
        }
        if deletes && (self.value.is_some() || self.from_context.is_some()) {
            let message = "has no effect, because the action `delete` needs no value: remove it";
            let key = self.value.as_ref().map_or("from_context", |_| "value");
            error(key, message.to_owned());
        }
        if self.default_value.is_some() && self.from_context.is_none() {
            let message = "has no effect without `from_context`: use `value`";
            error("default_value", message.to_owned());
        }
        for (key, text) in [
            ("value", &self.value),
            ("default_value", &self.default_value),
        ] {
            if text
                .as_ref()
                .is_some_and(|text| HeaderValue::try_from(text.reveal()).is_err())
            {
                let message = "has characters that are not allowed in a header";
                error(key, message.to_owned());
            }
        }
    }

    /// Returns the change; `None` for invalid settings.
    fn change(&self) -> Option<HeaderChange> {
        let constant = |text: &Option<Secret>| sensitive(text.as_ref()?.reveal());
        Some(HeaderChange {
            name: header_name(&self.key).ok()?,
            action: self.action,
            context: self.from_context.as_deref().map(str::to_ascii_lowercase),
            constant: constant(&self.value).or_else(|| constant(&self.default_value)),
        })
    }
}

/// Returns a header value that logs mask; `None` if the text is not allowed in a header.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl ExtensionConfig for Config {
    fn provides(&self) -> Vec<Capability> {
        vec![Capability::ClientAuth]
    }

    fn build(&self, _: &BuildContext) -> Result<Extension, BuildError> {
        let changes = self.headers.iter().filter_map(HeaderSetting::change);
        let changes: Vec<HeaderChange> = changes.collect();
        let context = changes.iter().filter_map(|change| change.context.clone());
        Ok(Extension {
            component: Box::new(Idle),
            services: Services {
                client_auth: Some(Arc::new(HeadersSetter {
                    context: context.collect(),
                    changes,
                })),
                ..Services::default()
            },
        })
    }
}

/// The changes to each request.
struct HeadersSetter {
    changes: Vec<HeaderChange>,
    /// Headers of clients that the changes use, in lower case.
    context: Vec<String>,
}

struct HeaderChange {
    name: HeaderName,
    action: HeaderAction,
    /// Header of the client to copy, in lower case.
    context: Option<String>,
    /// Value without a header to copy.
    constant: Option<HeaderValue>,
}

impl HeaderChange {
    fn value(&self, context: &BTreeMap<String, Vec<String>>) -> Option<HeaderValue> {
        let copied = self
            .context
            .as_ref()
            .and_then(|name| context.get(name)?.first());
        let copied = copied.and_then(|value| sensitive(value));
        copied.or_else(|| self.constant.clone())
    }
}

impl ClientAuthenticator for HeadersSetter {
    fn add(&self, headers: &mut HeaderMap) {
        self.add_for(&BTreeMap::new(), headers);
    }

    fn add_for(&self, context: &BTreeMap<String, Vec<String>>, headers: &mut HeaderMap) {
        for change in &self.changes {
            let applies = match change.action {
                HeaderAction::Delete => {
                    headers.remove(&change.name);
                    false
                }
                HeaderAction::Insert => !headers.contains_key(&change.name),
                HeaderAction::Update => headers.contains_key(&change.name),
                HeaderAction::Upsert => true,
            };
            if let Some(value) = change.value(context).filter(|_| applies) {
                headers.insert(&change.name, value);
            }
        }
    }

    fn context_headers(&self) -> &[String] {
        &self.context
    }

    fn version(&self) -> u64 {
        0
    }

    fn refresh(&self) {}
}
