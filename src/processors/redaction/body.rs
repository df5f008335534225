//! Log bodies under the Collector's rules: values in nested maps and lists have paths such as `user.[0].name`.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

use super::hits::Rule;
use super::redactor::{Redactor, Refusal};
use super::rules::{Rules, Verdict};
use super::summary::Deed;
use super::text::as_text;
use crate::redaction::Outcome;
use crate::wire::strings::{Body, Place};

/// What becomes of an encoded body. One that has more in it than its reader sees is written anew.
pub(super) fn redact(
    redactor: &mut Redactor<'_>,
    rules: &Rules,
    place: Place,
    value: &[u8],
) -> Result<Body, Refusal> {
    let mut body = AnyValue::decode(value).map_err(|_| Refusal::Unreadable(place))?;
    let mut walk = Walk {
        redactor,
        rules,
        place,
    };
    if walk.value("", &mut body)? == Fate::Goes {
        return Ok(Body::Remove);
    }
    let body = body.encode_to_vec();
    Ok(match body == value {
        true => Body::Keep,
        false => Body::Replace(body),
    })
}

struct Walk<'w, 'p> {
    redactor: &'w mut Redactor<'p>,
    rules: &'w Rules,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

impl Walk<'_, '_> {
    /// A value under a path, which is empty for the body itself. The decoder limits how deep values nest.
    fn value(&mut self, path: &str, value: &mut AnyValue) -> Result<Fate, Refusal> {
        match &mut value.value {
            Some(Value::KvlistValue(map)) => {
                self.map(path, &mut map.values)?;
                Ok(Fate::Stays)
            }
            Some(Value::ArrayValue(array)) => {
                let mut kept = Vec::with_capacity(array.values.len());
                for (at, mut value) in std::mem::take(&mut array.values).into_iter().enumerate() {
                    let path = join(path, &format!("[{at}]"));
                    if self.value(&path, &mut value)? == Fate::Stays {
                        kept.push(value);
                    }
                }
                array.values = kept;
                Ok(Fate::Stays)
            }
            _ => self.scalar(path, value),
        }
    }

    fn map(&mut self, path: &str, entries: &mut Vec<KeyValue>) -> Result<(), Refusal> {
        let mut kept = Vec::with_capacity(entries.len());
        for mut entry in std::mem::take(entries) {
            let path = join(path, &entry.key);
            match self.rules.key(&entry.key) {
                Verdict::Ignored => {
                    self.note(Deed::BodyIgnored, &path);
                    kept.push(entry);
                    continue;
                }
                Verdict::Removed => {
                    self.note(Deed::BodyRedacted, &path);
                    self.count(Rule::AllowedKeys);
                    continue;
                }
                Verdict::Open => {}
            }
            if self.rules.blocks_key(&entry.key) {
                self.note(Deed::BodyMasked, &path);
                self.count(Rule::BlockedKeyPatterns);
                let text = match entry.value.as_ref().and_then(|value| value.value.as_ref()) {
                    Some(Value::StringValue(text)) => text,
                    _ => "",
                };
                entry.value = Some(string(self.rules.mask_all(text)));
                kept.push(entry);
                continue;
            }
            if !self.key(&mut entry)? {
                continue;
            }
            let stays = match &mut entry.value {
                Some(value) => self.value(&path, value)? == Fate::Stays,
                None => true,
            };
            if stays {
                kept.push(entry);
            }
        }
        *entries = kept;
        Ok(())
    }

    /// The key of an entry, where keys are looked at; whether the entry stays.
    fn key(&mut self, entry: &mut KeyValue) -> Result<bool, Refusal> {
        if !self.redactor.policy.looks_at_keys || entry.key.is_empty() {
            return Ok(true);
        }
        match self.redactor.scan(Place::AttributeKeys, &entry.key)? {
            Outcome::Clean => {}
            Outcome::Rewritten(key) => entry.key = key,
            Outcome::Drop => return Ok(false),
        }
        Ok(true)
    }

    fn scalar(&mut self, path: &str, value: &mut AnyValue) -> Result<Fate, Refusal> {
        let text = as_text(value.value.as_ref());
        if self.rules.allows_value(&text) {
            // The Collector says nothing of a whole body that is allowed.
            if !path.is_empty() {
                self.note(Deed::BodyAllowed, path);
            }
            return Ok(Fate::Stays);
        }
        let sanitizers = &self.rules.sanitizers;
        let blocked = self
            .redactor
            .block(self.rules, self.place, &text, |text| sanitizers.body(text));
        if blocked != text {
            let fresh = match self.redactor.scan(self.place, &blocked)? {
                Outcome::Clean => blocked.into_owned(),
                Outcome::Rewritten(text) => text,
                Outcome::Drop => return Ok(self.gone(path)),
            };
            *value = string(fresh);
            self.masked(path);
            return Ok(Fate::Stays);
        }
        self.detect(path, value, &text)
    }

    /// Detectors look at strings, at bytes as far as they are text, and at other values if all types are looked at.
    fn detect(&mut self, path: &str, value: &mut AnyValue, text: &str) -> Result<Fate, Refusal> {
        if let Some(Value::BytesValue(bytes)) = &mut value.value {
            let mut fresh = Vec::with_capacity(bytes.len());
            let mut changed = false;
            for chunk in bytes.utf8_chunks() {
                match self.redactor.scan(self.place, chunk.valid())? {
                    Outcome::Clean => fresh.extend_from_slice(chunk.valid().as_bytes()),
                    Outcome::Rewritten(text) => {
                        fresh.extend_from_slice(text.as_bytes());
                        changed = true;
                    }
                    Outcome::Drop => return Ok(self.gone(path)),
                }
                fresh.extend_from_slice(chunk.invalid());
            }
            if changed {
                *bytes = fresh;
                self.masked(path);
            }
            return Ok(Fate::Stays);
        }
        if !matches!(value.value, Some(Value::StringValue(_))) && !self.rules.all_types {
            return Ok(Fate::Stays);
        }
        match self.redactor.scan(self.place, text)? {
            Outcome::Clean => {}
            Outcome::Rewritten(text) => {
                *value = string(text);
                self.masked(path);
            }
            Outcome::Drop => return Ok(self.gone(path)),
        }
        Ok(Fate::Stays)
    }

    fn masked(&mut self, path: &str) {
        self.note(Deed::BodyMasked, name(path));
    }

    fn gone(&mut self, path: &str) -> Fate {
        self.note(Deed::BodyRedacted, name(path));
        Fate::Goes
    }

    fn note(&mut self, deed: Deed, path: &str) {
        self.redactor.note(deed, path, self.rules);
    }

    fn count(&self, rule: Rule) {
        self.redactor.counters.ruled(self.place, rule, 1);
    }
}

fn name(path: &str) -> &str {
    match path {
        "" => "body",
        path => path,
    }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

fn string(text: String) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text)),
    }
}
