//! Detection of secrets by the names of keys and by their positions in URLs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use serde_json::Value;

/// Replacement of a secret. Its length is fixed, so that it does not reveal the length of the secret.
pub(super) const MASK: &str = "*****";

/// Words in the names of secret keys. Used for unknown keys and for parameters of URLs.
const SECRET_WORDS: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "credential",
    "api_key",
    "api-key",
    "apikey",
    "hmac",
];

/// Names in the schema of types whose value is secret.
const SECRET_TYPES: [&str; 1] = ["Secret"];
const SECRET_MAP_TYPES: [&str; 1] = ["Headers"];

/// Jaro-Winkler similarity (0 to 1) above which a key counts as a misspelled secret: `pasword`, `tokne`.
const MISSPELLED_SECRET: f64 = 0.9;
/// The same for a map of secrets. Stricter, because `readers` resembles `headers`.
const MISSPELLED_MAP: f64 = 0.95;

/// The JSON Schema of a configuration with all components.
static SCHEMA: OnceLock<fn() -> Value> = OnceLock::new();

/// Registers a JSON Schema whose keys of secret types are never shown. Before the first call, only words such as
/// `password` and `token` identify secrets. Later calls have no effect.
pub fn hide_values_of(schema: fn() -> Value) {
    let _ = SCHEMA.set(schema);
}

/// Keys with secret values, according to the types of all components in this build.
struct Keys {
    /// Keys whose value is a secret.
    scalars: BTreeSet<String>,
    /// Keys whose value maps names to secrets. The names are shown.
    maps: BTreeSet<String>,
}

/// Returns the keys, which are computed for the first message instead of at every start.
fn keys() -> &'static Keys {
    static NONE: Keys = Keys {
        scalars: BTreeSet::new(),
        maps: BTreeSet::new(),
    };
    static KEYS: OnceLock<Keys> = OnceLock::new();
    match SCHEMA.get() {
        Some(schema) => KEYS.get_or_init(|| Keys::of(&schema())),
        None => &NONE,
    }
}

impl Keys {
    fn of(schema: &Value) -> Self {
        let collect = |has_type: &dyn Fn(&Value) -> bool| {
            let mut keys = BTreeSet::new();
            collect_keys(schema, has_type, &mut keys);
            keys
        };
        let is_scalar = |property: &Value| has_type(property, &SECRET_TYPES);
        let is_map = |property: &Value| has_type(property, &SECRET_MAP_TYPES);
        let mut scalars = collect(&is_scalar);
        // A name such as `key` is a secret in one component and harmless in others. Values of secret types that were read
        // are masked by their position.
        let harmless = collect(&|property| !is_scalar(property) && !is_map(property));
        scalars.retain(|name| !harmless.contains(name));
        Keys {
            scalars,
            maps: collect(&is_map),
        }
    }
}

/// Adds the names of properties that `fits` accepts.
fn collect_keys(schema: &Value, fits: &dyn Fn(&Value) -> bool, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            let properties = object.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                if fits(property) {
                    keys.insert(name.to_lowercase());
                }
            }
            for part in object.values() {
                collect_keys(part, fits, keys);
            }
        }
        Value::Array(parts) => {
            for part in parts {
                collect_keys(part, fits, keys);
            }
        }
        _ => {}
    }
}

/// Whether a property has one of the types, directly or in a list or choice.
fn has_type(property: &Value, types: &[&str]) -> bool {
    match property {
        Value::Object(object) => object.iter().any(|(key, value)| match key.as_str() {
            "$ref" => value
                .as_str()
                .and_then(|reference| reference.rsplit('/').next())
                .is_some_and(|name| types.contains(&name)),
            "properties" => false,
            _ => has_type(value, types),
        }),
        Value::Array(parts) => parts.iter().any(|part| has_type(part, types)),
        _ => false,
    }
}

/// Secret part of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sensitivity {
    /// The whole value is secret.
    Value,
    /// The values inside are secret.
    Map,
}

/// Returns the secret part of a key's value. Misspelled names match too, because an unknown key is often a misspelled
/// one.
pub(super) fn of_key(key: &str) -> Option<Sensitivity> {
    let key = key.trim().trim_start_matches("- ").trim();
    let key = key.trim_matches(['"', '\'']).to_lowercase();
    // In `--set a.b.pasword=x`, the last part of the key decides.
    let last = key.rsplit(['.', ':']).next().unwrap_or_default();
    let like = |word: &str| last == word || strsim::jaro_winkler(last, word) > MISSPELLED_SECRET;
    if SECRET_WORDS
        .iter()
        .any(|word| key.contains(word) || like(word))
        || keys().scalars.iter().any(|name| like(name))
    {
        return Some(Sensitivity::Value);
    }
    // In `--set a.headers.x-tenant=x`, an earlier part of the key decides.
    let inside = key.split('.').any(|part| keys().maps.contains(part));
    let mistyped = |name: &String| strsim::jaro_winkler(last, name) > MISSPELLED_MAP;
    (inside || keys().maps.iter().any(mistyped)).then_some(Sensitivity::Map)
}

/// Returns the secret part of the lines below a key. The key must be spelled correctly and must not be a component id:
/// the lines below `bearertokenauth/token` contain more than a secret.
pub(super) fn below_key(key: &str) -> Option<Sensitivity> {
    let key = key.trim().trim_start_matches("- ").trim();
    let key = key.trim_matches(['"', '\'']).to_lowercase();
    let ends = SECRET_WORDS.iter().any(|word| key.ends_with(word));
    if keys().maps.contains(&key) {
        return Some(Sensitivity::Map);
    }
    (keys().scalars.contains(&key) || ends && !key.contains('/')).then_some(Sensitivity::Value)
}

fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || ["key", "auth", "sig", "signature", "pwd", "pass", "sas"]
            .iter()
            .any(|end| {
                name == *end
                    || name.ends_with(&format!("_{end}"))
                    || name.ends_with(&format!("-{end}"))
            })
        || name.ends_with("key")
}

/// Returns the ranges of secrets in the URLs of a text: passwords, tokens instead of a user, and values of secret
/// parameters.
pub(super) fn in_urls(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let rest = text.get(start..).unwrap_or_default();
        let ends =
            |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | '<' | '>');
        let url = rest.split(ends).next().unwrap_or_default();
        let authority = url.split(['/', '?', '#']).next().unwrap_or_default();
        // A password may contain a slash; a port cannot.
        let port = authority
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let user = match authority.rfind('@') {
            Some(at) => authority.get(..at),
            None if !port && !authority.contains(['[', '$']) => {
                url.rfind('@').and_then(|at| url.get(..at))
            }
            None => None,
        };
        let Some(user) = user else {
            continue;
        };
        let password = user.find(':').map_or(0, |colon| colon + 1);
        if password < user.len() {
            found.push(start + password..start + user.len());
        }
    }
    for (at, _) in text.match_indices(['?', '&', ';']) {
        let rest = text.get(at + 1..).unwrap_or_default();
        let name = rest
            .split(|letter: char| {
                !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.'))
            })
            .next()
            .unwrap_or_default();
        let Some(value) = rest
            .get(name.len()..)
            .and_then(|rest| rest.strip_prefix('='))
        else {
            continue;
        };
        let ends = |letter: char| {
            letter.is_whitespace() || matches!(letter, '&' | '"' | '\'' | '`' | '#' | '<' | '>')
        };
        let value = value.split(ends).next().unwrap_or_default();
        if !value.is_empty() && is_secret_parameter(name) {
            let start = at + 1 + name.len() + 1;
            found.push(start..start + value.len());
        }
    }
    found.retain(|range| {
        let value = text.get(range.clone()).unwrap_or_default();
        // `${env:NAME}` names a secret without revealing it.
        let reference = value.starts_with("${") && value.ends_with('}') && !value.contains(":-");
        !reference && value != MASK
    });
    found.sort_unstable_by_key(|range| (range.start, range.end));
    found
}

/// Masks the secrets in the URLs of a text, for logs, errors and other output.
pub fn without_url_secrets(text: &str) -> Cow<'_, str> {
    let secrets = in_urls(text);
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut copied = 0;
    for secret in secrets {
        if secret.start < copied {
            continue;
        }
        shown.push_str(text.get(copied..secret.start).unwrap_or_default());
        shown.push_str(MASK);
        copied = secret.end;
    }
    shown.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(shown)
}

/// Registers a schema with a key of each kind.
#[cfg(test)]
pub(crate) fn hide_values_of_test_schema() {
    hide_values_of(|| {
        serde_json::json!({"properties": {
            "key_pem": {"$ref": "#/$defs/Secret"},
            "hmac_key": {"$ref": "#/$defs/Secret"},
            "headers": {"anyOf": [{"$ref": "#/$defs/Headers"}]},
            "name": {"type": "string"},
            "tls": {"properties": {"key": {"$ref": "#/$defs/Secret"}}},
            "actions": {"properties": {"key": {"type": "string"}}},
        }})
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_type_makes_its_keys_sensitive() {
        hide_values_of_test_schema();
        for key in [
            "hmac_key", "key_pem", "password", "token", "hmac-key", "HMAC_KEY", "hmac_kee",
        ] {
            assert_eq!(of_key(key), Some(Sensitivity::Value), "{key}");
        }
        for key in [
            "headers",
            "\"headers\"",
            "exporters.otlp_http.headers.x-tenant",
        ] {
            assert_eq!(of_key(key), Some(Sensitivity::Map), "{key}");
        }
        assert_eq!(below_key("hmac_key"), Some(Sensitivity::Value));
        assert_eq!(below_key("headers"), Some(Sensitivity::Map));
        for id in [
            "bearertokenauth/both",
            "bearertokenauth",
            "basicauth/token",
            "redaction",
        ] {
            assert_eq!(below_key(id), None, "{id}");
        }
        for key in [
            "readers",
            "endpoint",
            "timeout",
            "cert_file",
            "name",
            "key",
            "action",
            "receivers",
        ] {
            assert_eq!(of_key(key), None, "{key}");
        }
    }

    #[test]
    fn only_secrets_of_urls_are_masked() {
        for (text, expected) in [
            (
                "http://jane:hunter2@host:4318/v1",
                "http://jane:*****@host:4318/v1",
            ),
            (
                "http://jane:hun/ter2@host:4318/v1",
                "http://jane:*****@host:4318/v1",
            ),
            ("\"https://hunter2@host\" is", "\"https://*****@host\" is"),
            (
                "https://h/v1?api_key=hunter2&a=b",
                "https://h/v1?api_key=*****&a=b",
            ),
            (
                "/v1?a=b&x-token=hunter2 failed",
                "/v1?a=b&x-token=***** failed",
            ),
            ("https://h/?sig=a%2Bb", "https://h/?sig=*****"),
            ("http://u:${env:P}@h", "http://u:${env:P}@h"),
            ("http://u:${env:P:-hunter2}@h", "http://u:*****@h"),
        ] {
            assert_eq!(without_url_secrets(text), expected);
            assert_eq!(without_url_secrets(expected), expected);
        }
        for text in [
            "http://host:4318/a@b",
            "http://[::1]:80/@x",
            "a?b=c&d=e",
            "user@host",
        ] {
            assert_eq!(without_url_secrets(text), text);
        }
    }
}
