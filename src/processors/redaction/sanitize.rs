//! Selection of the texts for the sanitizers, which remove variable parts from URLs and database queries.

use std::borrow::Cow;

use super::config::Config;
use super::sanitizer_config::UrlSanitizerConfig;
use tributary_otlp::reader::{Field, Fields, Value};
use tributary_otlp::strings::StringLocation;
use tributary_redaction::sanitize;
use tributary_redaction::sanitize::Database;

#[derive(Debug)]
pub(super) struct Sanitizers {
    url: Option<UrlSanitizerConfig>,
    databases: Vec<(Database, Vec<String>)>,
    database_names: bool,
    fallback: bool,
}

impl Sanitizers {
    pub(super) fn new(config: &Config) -> Self {
        let url = &config.url_sanitizer;
        let db = &config.db_sanitizer;
        let systems = [
            (Database::Sql, &db.sql),
            (Database::Redis, &db.redis),
            (Database::Valkey, &db.valkey),
            (Database::Memcached, &db.memcached),
            (Database::Mongo, &db.mongo),
            (Database::OpenSearch, &db.opensearch),
            (Database::Elasticsearch, &db.es),
        ];
        let enabled = systems.into_iter().filter(|(_, system)| system.enabled);
        Sanitizers {
            url: url.enabled.then(|| url.clone()),
            databases: enabled
                .map(|(database, system)| (database, system.attributes.clone()))
                .collect(),
            database_names: db.sanitize_span_name,
            fallback: db.allow_fallback_without_system,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.url.is_none() && self.databases.is_empty()
    }

    /// Returns an attribute's value without its variable parts; `None` if the value stays unchanged.
    pub(super) fn attribute(&self, key: &str, text: &str, about: &About) -> Option<String> {
        let listed = |keys: &[String]| keys.iter().any(|listed| listed == key);
        let mut output = Cow::Borrowed(text);
        if self.url.as_ref().is_some_and(|url| listed(&url.attributes)) {
            replace(&mut output, sanitize::url);
        }
        let chosen = self.databases.iter().filter(|(_, keys)| listed(keys));
        if about.db_system.is_empty() {
            for (database, _) in chosen.filter(|_| self.fallback) {
                replace(&mut output, |text| database.sanitize(text));
            }
        } else if let Some(system) = Database::of_system(&about.db_system) {
            for (database, _) in chosen.filter(|(database, _)| *database == system) {
                replace(&mut output, |text| database.sanitize(text));
            }
        }
        changed(output)
    }

    /// Returns a string of a body without its variable parts; `None` if it stays unchanged.
    pub(super) fn body(&self, text: &str) -> Option<String> {
        let mut output = Cow::Borrowed(text);
        if self.url.is_some() {
            replace(&mut output, sanitize::url);
        }
        for (database, _) in &self.databases {
            replace(&mut output, |text| database.sanitize(text));
        }
        changed(output)
    }

    /// Returns the name of a span without its variable parts; `None` if it stays unchanged.
    pub(super) fn span_name(&self, name: &str, about: &About) -> Option<String> {
        const INTERNAL: u64 = 1;
        const SERVER: u64 = 2;
        const CLIENT: u64 = 3;
        if self.url.as_ref().is_some_and(|url| url.sanitize_span_name)
            && matches!(about.kind, SERVER | CLIENT)
            && (about.http || name.contains('/'))
            && let Some(name) = sanitize::span_name(name)
        {
            return Some(name);
        }
        if !self.database_names || !matches!(about.kind, INTERNAL | SERVER | CLIENT) {
            return None;
        }
        let system = Database::of_system(&about.db_system)?;
        let (database, _) = self.databases.iter().find(|(known, _)| *known == system)?;
        // A name without any information is worse than the original name.
        changed(database.sanitize(name)).filter(|name| !matches!(name.as_str(), "" | "..."))
    }

    /// Reads the facts about a message that the sanitizers need before they process its strings.
    pub(super) fn about(&self, place: StringLocation, message: &[u8]) -> About {
        const KIND: u32 = 6;
        let (mut name, mut older) = (String::new(), String::new());
        let mut about = About::default();
        for field in Fields::new(message).map_while(Result::ok) {
            match field.value {
                Value::Varint(kind)
                    if field.number == KIND && place == StringLocation::SpanAttributes =>
                {
                    about.kind = kind;
                }
                // The field number does not matter, because no other field begins with such a string.
                Value::Bytes(_) => match key_of(&field) {
                    Some("db.system.name") if name.is_empty() => name = text_of(&field),
                    Some("db.system") if older.is_empty() => older = text_of(&field),
                    Some(key) => about.http |= HTTP.contains(&key),
                    None => {}
                },
                _ => {}
            }
        }
        about.db_system = if name.is_empty() { older } else { name };
        about
    }
}

/// Attributes of HTTP spans, by the semantic conventions 1.25 and 1.40.
const HTTP: [&str; 9] = [
    "http.route",
    "http.request.method",
    "http.request.method_original",
    "http.response.status_code",
    "url.full",
    "http.scheme",
    "http.target",
    "http.method",
    "http.url",
];

fn key_of<'a>(attribute: &Field<'a>) -> Option<&'a str> {
    let mut fields = attribute.fields().map_while(Result::ok);
    let key = fields.find(|field| field.number == 1)?;
    std::str::from_utf8(key.value.bytes()?).ok()
}

/// Returns an attribute's string value in lower case; empty for other values.
fn text_of(attribute: &Field<'_>) -> String {
    let text = attribute
        .fields()
        .map_while(Result::ok)
        .filter(|field| field.number == 2)
        .flat_map(|value| value.fields().map_while(Result::ok))
        .filter(|field| field.number == 1)
        .find_map(|field| std::str::from_utf8(field.value.bytes()?).ok());
    text.unwrap_or_default().to_ascii_lowercase()
}

fn replace(text: &mut Cow<'_, str>, sanitize: impl FnOnce(&str) -> Cow<'_, str>) {
    let sanitized = match sanitize(text) {
        Cow::Owned(sanitized) => sanitized,
        Cow::Borrowed(_) => return,
    };
    *text = Cow::Owned(sanitized);
}

fn changed(text: Cow<'_, str>) -> Option<String> {
    match text {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

/// Facts about the operation that a message describes.
#[derive(Default)]
pub(super) struct About {
    /// Returns `db.system.name` or `db.system` in lower case; empty if neither is present.
    db_system: String,
    kind: u64,
    /// Whether the span has HTTP attributes.
    http: bool,
}
