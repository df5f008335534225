//! Log bodies under the Collector's rules: values in nested maps and lists have paths such as `user.[0].name`.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

use super::hits::Rule;
use super::redactor::Redactor;
use super::refusal::Refusal;
use super::rules::{Rules, Verdict};
use super::summary::Deed;
use super::text::as_text;
use crate::batch::Signal;
use crate::redaction::Outcome;
use crate::wire::strings::{Body, Change, Place, Rewriter as _};

/// What becomes of an encoded body. One that has more in it than its reader sees is written anew.
pub(super) fn redact(
    redactor: &mut Redactor<'_>,
    rules: &Rules,
    place: Place,
    value: &[u8],
) -> Result<Body, Refusal> {
    let mut body = AnyValue::decode(value).map_err(|_| Refusal::Unreadable(place))?;
    let mut walk = Walk {
        rules,
        place,
        path: String::new(),
        claim: redactor.policy.claims(place, None),
        redactor,
    };
    if walk.value(&mut body)? == Fate::Goes {
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
    /// Where it is: empty for the body itself. One buffer for all of a body, so that a long key does not cost its length
    /// again for each value below it.
    path: String,
    /// What bytes claim to be there.
    claim: Option<Signal>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

impl Walk<'_, '_> {
    /// A value. The decoder limits how deep values nest.
    fn value(&mut self, value: &mut AnyValue) -> Result<Fate, Refusal> {
        match &mut value.value {
            Some(Value::KvlistValue(map)) => {
                self.map(&mut map.values)?;
                Ok(Fate::Stays)
            }
            Some(Value::ArrayValue(array)) => {
                let mut kept = Vec::with_capacity(array.values.len());
                for (at, mut value) in std::mem::take(&mut array.values).into_iter().enumerate() {
                    let above = self.enter(&format!("[{at}]"));
                    if self.value(&mut value)? == Fate::Stays {
                        kept.push(value);
                    }
                    self.path.truncate(above);
                }
                array.values = kept;
                Ok(Fate::Stays)
            }
            _ => self.scalar(value),
        }
    }

    fn map(&mut self, entries: &mut Vec<KeyValue>) -> Result<(), Refusal> {
        let mut kept = Vec::with_capacity(entries.len());
        for mut entry in std::mem::take(entries) {
            let above = self.enter(&entry.key);
            let claims = self
                .redactor
                .policy
                .claims(self.place, Some(entry.key.as_bytes()));
            let claim = std::mem::replace(&mut self.claim, claims);
            if self.entry(&mut entry)? == Fate::Stays {
                kept.push(entry);
            }
            self.claim = claim;
            self.path.truncate(above);
        }
        *entries = kept;
        Ok(())
    }

    fn entry(&mut self, entry: &mut KeyValue) -> Result<Fate, Refusal> {
        match self.rules.key(&entry.key) {
            Verdict::Ignored => {
                self.note(Deed::BodyIgnored);
                return Ok(Fate::Stays);
            }
            Verdict::Removed => {
                self.note(Deed::BodyRedacted);
                self.count(Rule::AllowedKeys);
                return Ok(Fate::Goes);
            }
            Verdict::Open => {}
        }
        let blocked = self.rules.blocks_key(&entry.key);
        if !self.key(entry)? {
            return Ok(Fate::Goes);
        }
        if blocked {
            self.note(Deed::BodyMasked);
            self.count(Rule::BlockedKeyPatterns);
            let text = match entry.value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(Value::StringValue(text)) => text,
                _ => "",
            };
            entry.value = Some(string(self.rules.mask_all(text)));
            return Ok(Fate::Stays);
        }
        match &mut entry.value {
            Some(value) => self.value(value),
            None => Ok(Fate::Stays),
        }
    }

    /// Appends a name to the path. Returns how long it was.
    fn enter(&mut self, name: &str) -> usize {
        let above = self.path.len();
        if above > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        above
    }

    /// The key of an entry, where keys are looked at; whether the entry stays.
    fn key(&mut self, entry: &mut KeyValue) -> Result<bool, Refusal> {
        if !self.redactor.policy.looks_at_keys || entry.key.is_empty() {
            return Ok(true);
        }
        match self
            .redactor
            .text(Place::AttributeKeys, entry.key.as_bytes())?
        {
            Change::Keep => {}
            Change::Replace(key) => entry.key = key,
            Change::Remove => return Ok(false),
        }
        Ok(true)
    }

    fn scalar(&mut self, value: &mut AnyValue) -> Result<Fate, Refusal> {
        let text = as_text(value.value.as_ref());
        if self.rules.allows_value(&text) {
            // The Collector says nothing of a whole body that is allowed.
            if !self.path.is_empty() {
                self.note(Deed::BodyAllowed);
            }
            return Ok(Fate::Stays);
        }
        let sanitizers = &self.rules.sanitizers;
        let blocked = self
            .redactor
            .block(self.rules, self.place, &text, |text| sanitizers.body(text))?;
        if blocked != text {
            let fresh = match self.redactor.scan(self.place, blocked.as_bytes())? {
                Outcome::Clean => blocked.into_owned(),
                Outcome::Rewritten(text) => text,
                Outcome::Drop => return Ok(self.gone()),
            };
            *value = string(fresh);
            self.masked();
            return Ok(Fate::Stays);
        }
        self.detect(value, &text)
    }

    /// Detectors look at strings, at bytes as far as they are text, and at other values if all types are looked at.
    fn detect(&mut self, value: &mut AnyValue, text: &str) -> Result<Fate, Refusal> {
        if let Some(Value::BytesValue(bytes)) = &mut value.value {
            if let Some(signal) = self.claim {
                if let Some(request) = self.redactor.request(self.place, signal, bytes)? {
                    *bytes = request;
                    self.masked();
                }
                return Ok(Fate::Stays);
            }
            let mut fresh = Vec::with_capacity(bytes.len());
            let mut changed = false;
            for chunk in bytes.utf8_chunks() {
                match self.redactor.scan(self.place, chunk.valid().as_bytes())? {
                    Outcome::Clean => fresh.extend_from_slice(chunk.valid().as_bytes()),
                    Outcome::Rewritten(text) => {
                        fresh.extend_from_slice(text.as_bytes());
                        changed = true;
                    }
                    Outcome::Drop => return Ok(self.gone()),
                }
                fresh.extend_from_slice(chunk.invalid());
            }
            if changed {
                *bytes = fresh;
                self.masked();
            }
            return Ok(Fate::Stays);
        }
        if !matches!(value.value, Some(Value::StringValue(_))) && !self.rules.all_types {
            return Ok(Fate::Stays);
        }
        match self.redactor.scan(self.place, text.as_bytes())? {
            Outcome::Clean => {}
            Outcome::Rewritten(text) => {
                *value = string(text);
                self.masked();
            }
            Outcome::Drop => return Ok(self.gone()),
        }
        Ok(Fate::Stays)
    }

    fn masked(&mut self) {
        self.note(Deed::BodyMasked);
    }

    fn gone(&mut self) -> Fate {
        self.note(Deed::BodyRedacted);
        Fate::Goes
    }

    fn note(&mut self, deed: Deed) {
        let path = match self.path.as_str() {
            "" => "body",
            path => path,
        };
        self.redactor.note(deed, path, self.rules);
    }

    fn count(&self, rule: Rule) {
        self.redactor.counters.ruled(self.place, rule, 1);
    }
}

fn string(text: String) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text)),
    }
}
