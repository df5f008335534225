//! Checks on the wire whether a profiles request must be redacted, so that most requests are never decoded.

use std::collections::HashSet;

use super::policy::Policy;
use super::profile_request::Reworked;
use super::redactor::Redactor;
use super::refusal::Refusal;
use super::rules::{Memory, Rules, Verdict};
use tributary_otlp::Signal;
use tributary_otlp::reader::{Field, Fields, Value, WireFault};
use tributary_otlp::strings::{RewriteError, Rewriter, StringLocation, TextDecision};
use tributary_otlp::view::{AnyValue, Message, View as _};
use tributary_redaction::{Hits, ScanOutcome};

/// Scans every string of a request without changing it.
pub(super) struct Probe<'p> {
    policy: &'p Policy,
    hits: Hits,
    /// Whether there was a hit.
    pub(super) found: bool,
    /// Whether a hit is in a location that the policy covers.
    pub(super) in_place: bool,
    /// Strings of the dictionary with a hit in any location.
    pub(super) suspects: HashSet<usize>,
    /// Number of dictionary strings seen so far.
    strings: usize,
    /// Number of non-empty fields with the original file of a profile, or with the format of that file.
    pub(super) originals: usize,
    /// Redacts requests in values, and counts nothing.
    inside: Redactor<'p>,
}

impl<'p> Probe<'p> {
    /// Creates a probe. `inside` must not count findings, because the later rewrite of the request counts them.
    pub(super) fn new(inside: Redactor<'p>) -> Self {
        Probe {
            policy: inside.policy,
            hits: Hits::default(),
            found: false,
            in_place: false,
            suspects: HashSet::new(),
            strings: 0,
            originals: 0,
            inside,
        }
    }
}

impl Rewriter for Probe<'_> {
    type Refusal = Refusal;

    fn text(&mut self, place: StringLocation, text: &[u8]) -> Result<TextDecision, Refusal> {
        if !self.in_place {
            let outcome = self.policy.scanner.scan_bytes(text, &mut self.hits);
            let outcome = outcome.map_err(|error| Refusal::unscannable(place, error))?;
            self.in_place = !matches!(outcome, ScanOutcome::Clean);
            if let Some(rules) = &self.policy.rules {
                let text = std::str::from_utf8(text).map_err(|_| Refusal::NotUtf8(place))?;
                self.in_place |= rules.blocks_value(text);
            }
            self.found |= self.in_place;
        }
        Ok(TextDecision::Keep)
    }

    fn dictionary_string(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let outcome = self.policy.scanner.scan_bytes(text, &mut self.hits);
        let rules = self.policy.rules.as_ref();
        let blocked = rules.is_some_and(|rules| {
            // A string that is not UTF-8 is refused when the request is decoded.
            std::str::from_utf8(text).map_or(true, |text| rules.blocks_value(text))
        });
        // No refusal yet: the string may be used only in places that are not scanned.
        if blocked || !matches!(outcome, Ok(ScanOutcome::Clean)) {
            self.suspects.insert(self.strings);
            self.found = true;
        }
        self.strings += 1;
        Ok(())
    }

    fn has_embedded_requests(&self) -> bool {
        self.policy.has_embedded_requests()
    }

    fn embedded_signal(&self, place: StringLocation, key: Option<&[u8]>) -> Option<Signal> {
        self.policy.embedded_signal(place, key)
    }

    fn rewrite_embedded(
        &mut self,
        place: StringLocation,
        signal: Signal,
        request: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        // Embedded requests are rare, so redact each of them. Only this scan sees overridden values.
        self.found = true;
        self.in_place |= self.inside.request(place, signal, request)?.is_some();
        Ok(None)
    }

    fn original_payload(&mut self) {
        self.found = true;
        self.originals += 1;
    }
}

/// Whether the rules may change an attribute of a valid request without hits of the [`Probe`]. In doubt returns true:
/// the request is then decoded and examined exactly.
pub(super) fn rules_act(policy: &Policy, request: &[u8]) -> Reworked<bool> {
    let Some(rules) = &policy.rules else {
        return Ok(false);
    };
    let mut judge = Judge {
        policy,
        rules,
        strings: Vec::new(),
        keys: Memory::default(),
    };
    judge.request(request).map_err(RewriteError::from)
}

/// `ExportProfilesServiceRequest`
const RESOURCES: u32 = 1;
const DICTIONARY: u32 = 2;
/// `ProfilesDictionary`
const STRINGS: u32 = 5;
const ATTRIBUTES: u32 = 6;

struct Judge<'p, 'a> {
    policy: &'p Policy,
    rules: &'p Rules,
    strings: Vec<&'a [u8]>,
    keys: Memory,
}

impl<'a> Judge<'_, 'a> {
    fn request(&mut self, request: &'a [u8]) -> Result<bool, WireFault> {
        // Protobuf merges a dictionary that occurs twice.
        let tables = || each(Fields::new(request), DICTIONARY);
        for tables in tables() {
            let strings = each(tables?.fields(), STRINGS);
            for string in strings {
                self.strings.push(string?.value.bytes().unwrap_or_default());
            }
        }
        for tables in tables() {
            for entry in each(tables?.fields(), ATTRIBUTES) {
                if self.attribute(StringLocation::ProfileAttributes, 1, &entry?)? {
                    return Ok(true);
                }
            }
        }
        for resource in each(Fields::new(request), RESOURCES) {
            let resource = resource?;
            if self.set(StringLocation::ResourceAttributes, &resource, 1)? {
                return Ok(true);
            }
            for scope in each(resource.fields(), 2) {
                if self.set(StringLocation::ScopeAttributes, &scope?, 3)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Checks the attributes of a resource or scope.
    fn set(
        &mut self,
        place: StringLocation,
        around: &Field<'a>,
        attributes: u32,
    ) -> Result<bool, WireFault> {
        for set in each(around.fields(), 1) {
            for attribute in each(set?.fields(), attributes) {
                if self.attribute(place, 3, &attribute?)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Checks an attribute. The field `reference` has the index of its key in the strings.
    fn attribute(
        &mut self,
        place: StringLocation,
        reference: u32,
        attribute: &Field<'a>,
    ) -> Result<bool, WireFault> {
        if !self.policy.acts_on(place) || attribute.value.bytes().unwrap_or_default().is_empty() {
            return Ok(false);
        }
        let (mut key, mut value): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        let dictionary = place == StringLocation::ProfileAttributes;
        for field in attribute.fields() {
            let field = field?;
            let twice = match (field.number, field.value) {
                (number, Value::Varint(at)) if number == reference => match self.string(at) {
                    Some(text) => key.replace(text).is_some(),
                    None => true,
                },
                (1, Value::Bytes(text)) if !dictionary => key.replace(text).is_some(),
                (2, Value::Bytes(bytes)) => value.replace(bytes).is_some(),
                // The unit of the attribute.
                (3, Value::Varint(_)) if dictionary => false,
                _ => true,
            };
            if twice {
                return Ok(true);
            }
        }
        let Ok(key) = std::str::from_utf8(key.unwrap_or_default()) else {
            return Ok(true);
        };
        // The counts are written to the sets that have a summary.
        let counted = self.policy.sums_up() && !dictionary;
        match self.keys.verdict(self.rules, key) {
            Verdict::Removed | Verdict::Blocked => return Ok(true),
            Verdict::Ignored => return Ok(counted),
            Verdict::Open => {}
        }
        let value = value.unwrap_or_default();
        if !self.rules.sanitizers.is_empty() || Fields::new(value).nth(1).is_some() {
            return Ok(true);
        }
        let text = match AnyValue::view(Message::new(value)) {
            AnyValue::String(text) => text,
            AnyValue::StringIndex(at) => {
                let text = u64::try_from(at).ok().and_then(|at| self.string(at));
                match text.map(std::str::from_utf8) {
                    Some(Ok(text)) => text,
                    _ => return Ok(true),
                }
            }
            AnyValue::Empty => "",
            _ if self.rules.all_types => return Ok(true),
            _ => "",
        };
        Ok(match self.rules.allows_value(text) {
            true => counted,
            false => self.rules.blocks_value(text),
        })
    }

    fn string(&self, at: u64) -> Option<&'a [u8]> {
        self.strings.get(usize::try_from(at).ok()?).copied()
    }
}

/// Returns the messages and strings in the fields with the number `number`.
fn each<'a>(fields: Fields<'a>, number: u32) -> impl Iterator<Item = Result<Field<'a>, WireFault>> {
    fields.filter(move |field| {
        field.as_ref().map_or(true, |field| {
            field.number == number && field.value.bytes().is_some()
        })
    })
}
