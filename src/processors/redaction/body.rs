//! Log bodies under the Collector's rules: values in nested maps and lists have paths such as `user.[0].name`.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

use super::hits::Rule;
use super::redactor::Redactor;
use super::refusal::Refusal;
use super::rules::{Rules, Verdict};
use super::summary::Deed;
use super::values::only_string;
use tributary_otlp::Signal;
use tributary_otlp::strings::{BodyDecision, Rewriter as _, StringLocation, TextDecision};
use tributary_otlp::view::text_of;
use tributary_redaction::ScanOutcome;

/// Redacts an encoded body. A body with bytes that its reader ignores is encoded again, which removes those bytes.
pub(super) fn redact(
    redactor: &mut Redactor<'_>,
    rules: &Rules,
    place: StringLocation,
    value: &[u8],
) -> Result<BodyDecision, Refusal> {
    let mut walk = Walk {
        rules,
        place,
        path: String::new(),
        claim: redactor.policy.embedded_signal(place, None),
        redactor,
    };
    if let Some(text) = only_string(value) {
        return Ok(match walk.text(text)? {
            TextDecision::Keep => BodyDecision::Keep,
            TextDecision::Replace(text) => BodyDecision::Replace(string(text).encode_to_vec()),
            TextDecision::Remove => BodyDecision::Remove,
        });
    }
    let mut body = AnyValue::decode(value).map_err(|_| Refusal::Unreadable(place))?;
    if walk.value(&mut body)? == Fate::Goes {
        return Ok(BodyDecision::Remove);
    }
    let body = body.encode_to_vec();
    Ok(match body == value {
        true => BodyDecision::Keep,
        false => BodyDecision::Replace(body),
    })
}

struct Walk<'w, 'p> {
    redactor: &'w mut Redactor<'p>,
    rules: &'w Rules,
    place: StringLocation,
    /// Path of the current value; empty for the body itself. One buffer serves the whole body, so that a long key is
    /// not copied for each value below it.
    path: String,
    /// Signal of the request that a bytes value at this place is configured to be.
    claim: Option<Signal>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

impl Walk<'_, '_> {
    /// Redacts a value. The decoder limits the nesting of values.
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
                .embedded_signal(self.place, Some(entry.key.as_bytes()));
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
        let verdict = self.redactor.keys.verdict(self.rules, &entry.key);
        match verdict {
            Verdict::Ignored => {
                self.note(Deed::BodyIgnored);
                return Ok(Fate::Stays);
            }
            Verdict::Removed => {
                self.note(Deed::BodyRedacted);
                self.count(Rule::AllowedKeys);
                return Ok(Fate::Goes);
            }
            Verdict::Blocked | Verdict::Open => {}
        }
        if !self.key(entry)? {
            return Ok(Fate::Goes);
        }
        if verdict == Verdict::Blocked {
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

    /// Appends a name to the path. Returns the previous length of the path.
    fn enter(&mut self, name: &str) -> usize {
        let above = self.path.len();
        if above > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        above
    }

    /// Redacts the key of an entry, where keys are scanned. Returns whether the entry stays.
    fn key(&mut self, entry: &mut KeyValue) -> Result<bool, Refusal> {
        if !self.redactor.policy.looks_at_keys || entry.key.is_empty() {
            return Ok(true);
        }
        match self
            .redactor
            .text(StringLocation::AttributeKeys, entry.key.as_bytes())?
        {
            TextDecision::Keep => {}
            TextDecision::Replace(key) => entry.key = key,
            TextDecision::Remove => return Ok(false),
        }
        Ok(true)
    }

    fn scalar(&mut self, value: &mut AnyValue) -> Result<Fate, Refusal> {
        let change = match &value.value {
            Some(Value::StringValue(text)) => self.text(text)?,
            _ => {
                let text = text_of(value).into_owned();
                match self.ruled(&text)? {
                    Some(change) => change,
                    None if matches!(value.value, Some(Value::BytesValue(_))) => {
                        return self.bytes(value);
                    }
                    None if self.rules.all_types => self.detected(&text)?,
                    None => TextDecision::Keep,
                }
            }
        };
        Ok(match change {
            TextDecision::Keep => Fate::Stays,
            TextDecision::Replace(text) => {
                *value = string(text);
                Fate::Stays
            }
            TextDecision::Remove => Fate::Goes,
        })
    }

    /// Redacts a text: first by the rules, then by the detectors.
    fn text(&mut self, text: &str) -> Result<TextDecision, Refusal> {
        match self.ruled(text)? {
            Some(change) => Ok(change),
            None => self.detected(text),
        }
    }

    /// Applies the rules to the text of a value; returns `None` if the rules leave the value to the detectors.
    fn ruled(&mut self, text: &str) -> Result<Option<TextDecision>, Refusal> {
        if self.rules.allows_value(text) {
            // As in the Collector, an allowed whole body is not part of the summary.
            if !self.path.is_empty() {
                self.note(Deed::BodyAllowed);
            }
            return Ok(Some(TextDecision::Keep));
        }
        let sanitizers = &self.rules.sanitizers;
        let blocked = self
            .redactor
            .block(self.rules, self.place, text, |text| sanitizers.body(text))?;
        if blocked == text {
            return Ok(None);
        }
        let change = self.detected(&blocked)?;
        Ok(Some(match change {
            TextDecision::Keep => {
                self.note(Deed::BodyMasked);
                TextDecision::Replace(blocked.into_owned())
            }
            change => change,
        }))
    }

    fn detected(&mut self, text: &str) -> Result<TextDecision, Refusal> {
        Ok(match self.redactor.scan(self.place, text)? {
            ScanOutcome::Clean => TextDecision::Keep,
            ScanOutcome::Rewritten(text) => {
                self.note(Deed::BodyMasked);
                TextDecision::Replace(text)
            }
            ScanOutcome::Drop => {
                self.note(Deed::BodyRedacted);
                TextDecision::Remove
            }
        })
    }

    /// Redacts bytes: as a request, or as text.
    fn bytes(&mut self, value: &mut AnyValue) -> Result<Fate, Refusal> {
        let Some(Value::BytesValue(bytes)) = &mut value.value else {
            return Ok(Fate::Stays);
        };
        if let Some(signal) = self.claim {
            if let Some(request) = self.redactor.request(self.place, signal, bytes)? {
                *bytes = request;
                self.note(Deed::BodyMasked);
            }
            return Ok(Fate::Stays);
        }
        let mut fresh = Vec::with_capacity(bytes.len());
        let mut changed = false;
        for chunk in bytes.utf8_chunks() {
            if chunk.valid().is_empty() {
                fresh.extend_from_slice(chunk.invalid());
                continue;
            }
            // The same treatment as for bytes in other locations.
            let place = self.place;
            match self.redactor.text(place, chunk.valid().as_bytes())? {
                TextDecision::Keep => fresh.extend_from_slice(chunk.valid().as_bytes()),
                TextDecision::Replace(text) => {
                    fresh.extend_from_slice(text.as_bytes());
                    changed = true;
                }
                TextDecision::Remove => {
                    self.note(Deed::BodyRedacted);
                    return Ok(Fate::Goes);
                }
            }
            fresh.extend_from_slice(chunk.invalid());
        }
        if changed {
            *bytes = fresh;
            self.note(Deed::BodyMasked);
        }
        Ok(Fate::Stays)
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
