//! Decides about every string of a request.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::config::SummaryDetail;
use super::hits::{Counters, Rule};
use super::policy::Policy;
use super::refusal::Refusal;
use super::rules::{Memory, Rules, Verdict};
use super::sanitize::About;
use super::summary::{Deed, Summary};
use super::values::{Only, hides, text_of};
use tributary_memory::Budget;
use tributary_otlp::strings::{AttributeDecision, SetAttribute, StringLocation, TextDecision};
use tributary_redaction::{Hits, ScanOutcome, Unscannable};

/// Maximum length of a key, or of a path in a body, in a summary, in bytes. A path repeats the keys above it, so without
/// a limit a summary could be many times as long as the body.
const LONGEST_NAME: usize = 256;

pub(super) struct Redactor<'p> {
    pub(super) policy: &'p Policy,
    pub(super) counters: &'p Counters,
    pub(super) budget: &'p Arc<Budget>,
    /// Number of requests around this request; 0 for a request that is not nested in a value.
    pub(super) level: u32,
    hits: Hits,
    pub(super) keys: Memory,
    /// The enclosing sets of attributes, the innermost last.
    pub(super) sets: SmallVec<[Set; 2]>,
}

#[derive(Default)]
pub(super) struct Set {
    pub(super) summary: Summary,
    pub(super) about: About,
    pub(super) place: Option<StringLocation>,
    /// The attribute whose strings are being scanned.
    pub(super) looking: Option<String>,
    /// Whether the attribute contains data that its reader ignores, and that the rules thus have not checked.
    pub(super) hidden: bool,
}

impl<'p> Redactor<'p> {
    pub(super) fn new(
        policy: &'p Policy,
        counters: &'p Counters,
        budget: &'p Arc<Budget>,
        level: u32,
    ) -> Self {
        Redactor {
            policy,
            counters,
            budget,
            level,
            hits: Hits::default(),
            keys: Memory::default(),
            sets: SmallVec::new(),
        }
    }

    /// Applies the detectors to a text.
    pub(super) fn scan(
        &mut self,
        place: StringLocation,
        text: &str,
    ) -> Result<ScanOutcome, Refusal> {
        let outcome = self.policy.scanner.scan(text, &mut self.hits);
        self.scanned(place, outcome)
    }

    /// Applies the detectors to bytes that should be a text.
    #[inline(always)]
    pub(super) fn scan_bytes(
        &mut self,
        place: StringLocation,
        text: &[u8],
    ) -> Result<ScanOutcome, Refusal> {
        let outcome = self.policy.scanner.scan_bytes(text, &mut self.hits);
        self.scanned(place, outcome)
    }

    #[inline(always)]
    fn scanned(
        &mut self,
        place: StringLocation,
        outcome: Result<ScanOutcome, Unscannable>,
    ) -> Result<ScanOutcome, Refusal> {
        let outcome = outcome.map_err(|error| Refusal::unscannable(place, error))?;
        if !matches!(outcome, ScanOutcome::Clean) {
            self.counters.found(place, &mut self.hits);
        }
        Ok(outcome)
    }

    /// Masks the blocked values in a text and applies the sanitizers to it.
    pub(super) fn block<'t>(
        &self,
        rules: &Rules,
        place: StringLocation,
        text: &'t str,
        sanitize: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Cow<'t, str>, Refusal> {
        let mut count = 0;
        let blocked = rules
            .block(text, &mut count)
            .map_err(|error| Refusal::Unscannable { place, error })?;
        self.counters.ruled(place, Rule::BlockedValues, count);
        Ok(match sanitize(&blocked) {
            Some(sanitized) => {
                self.counters.ruled(place, Rule::Sanitizers, 1);
                Cow::Owned(sanitized)
            }
            None => blocked,
        })
    }

    /// Applies the rules, then the detectors.
    #[cold]
    pub(super) fn ruled_text(
        &mut self,
        rules: &Rules,
        place: StringLocation,
        text: &[u8],
    ) -> Result<TextDecision, Refusal> {
        let text = std::str::from_utf8(text).map_err(|_| Refusal::NotUtf8(place))?;
        if self.policy.acts_on(place) && rules.allows_value(text) {
            return Ok(TextDecision::Keep);
        }
        let empty = About::default();
        let set = self.sets.last();
        let about = set.map_or(&empty, |set| &set.about);
        let hidden = set.is_some_and(|set| set.hidden && set.place == Some(place));
        let blocked = match place {
            // Only sanitizers treat a span name as a value, unless all places are configured.
            StringLocation::SpanNames if !self.policy.everywhere => rules
                .sanitizers
                .span_name(text, about)
                .map_or(Cow::Borrowed(text), |name| {
                    self.counters.ruled(place, Rule::Sanitizers, 1);
                    Cow::Owned(name)
                }),
            StringLocation::SpanNames => self.block(rules, place, text, |text| {
                rules.sanitizers.span_name(text, about)
            })?,
            _ if self.policy.everywhere || hidden => self.block(rules, place, text, |_| None)?,
            _ => Cow::Borrowed(text),
        };
        let change = match (self.scan(place, &blocked)?, blocked) {
            (ScanOutcome::Drop, _) => TextDecision::Remove,
            (ScanOutcome::Rewritten(text), _) | (ScanOutcome::Clean, Cow::Owned(text)) => {
                TextDecision::Replace(text)
            }
            (ScanOutcome::Clean, Cow::Borrowed(_)) => TextDecision::Keep,
        };
        if !matches!(change, TextDecision::Keep) {
            self.looked_at(place, rules);
        }
        Ok(change)
    }

    /// Records that the current attribute has changed.
    pub(super) fn looked_at(&mut self, place: StringLocation, rules: &Rules) {
        if let Some(set) = self.sets.last_mut()
            && set.place == Some(place)
            && let Some(key) = set.looking.take()
        {
            self.note(Deed::Masked, &key, rules);
        }
    }

    /// Redacts an attribute by the Collector's rules, in their order: ignored and removed keys, allowed values, blocked
    /// keys, blocked values, sanitizers. Then applies the detectors.
    fn ruled_attribute(
        &mut self,
        rules: &Rules,
        place: StringLocation,
        seen: &SetAttribute<'_>,
    ) -> Result<AttributeDecision, Refusal> {
        let key = seen.key;
        let verdict = self.keys.verdict(rules, key);
        match verdict {
            Verdict::Ignored => {
                self.note(Deed::Ignored, key, rules);
                return Ok(AttributeDecision::Keep);
            }
            Verdict::Removed => {
                self.note(Deed::Redacted, key, rules);
                self.counters.ruled(place, Rule::AllowedKeys, 1);
                return Ok(AttributeDecision::Remove);
            }
            Verdict::Blocked | Verdict::Open => {}
        }
        let (text, only) = text_of(rules, place, seen)?;
        if rules.allows_value(&text) {
            self.note(Deed::Allowed, key, rules);
            return Ok(match only {
                Only::String => AttributeDecision::KeepValue,
                // Overridden data in the attribute was not checked by the rule, and is removed.
                Only::Seen(true) => AttributeDecision::Replace(text.into_owned()),
                _ if hides(seen) => self.inspect(key, true),
                _ => AttributeDecision::KeepValue,
            });
        }
        if verdict == Verdict::Blocked {
            self.note(Deed::Masked, key, rules);
            self.counters.ruled(place, Rule::BlockedKeyPatterns, 1);
            return Ok(AttributeDecision::Replace(rules.mask_all(&text)));
        }
        let empty = About::default();
        let about = self.sets.last().map_or(&empty, |set| &set.about);
        let blocked = self.block(rules, place, &text, |text| {
            rules.sanitizers.attribute(key, text, about)
        })?;
        let changed = blocked != text;
        let scanned = match changed || only != Only::Nothing {
            true => self.scan(place, &blocked)?,
            false => ScanOutcome::Clean,
        };
        let fresh = match (scanned, blocked) {
            (ScanOutcome::Drop, _) => {
                self.note(Deed::Redacted, key, rules);
                return Ok(AttributeDecision::Remove);
            }
            (ScanOutcome::Rewritten(text), _) => text,
            (ScanOutcome::Clean, Cow::Owned(text)) if changed => text,
            (ScanOutcome::Clean, _) => {
                if only == Only::String && !self.policy.looks_at_keys {
                    return Ok(AttributeDecision::Keep);
                }
                if let Only::Seen(true) = only {
                    // No rule has checked overridden data, so it is removed.
                    return Ok(AttributeDecision::Replace(text.into_owned()));
                }
                return Ok(self.inspect(key, hides(seen)));
            }
        };
        self.note(Deed::Masked, key, rules);
        Ok(AttributeDecision::Replace(fresh))
    }

    /// Makes the current attribute known for the scan of its strings.
    fn inspect(&mut self, key: &str, hidden: bool) -> AttributeDecision {
        if let Some(set) = self.sets.last_mut() {
            set.looking = Some(key.to_owned());
            set.hidden = hidden;
        }
        AttributeDecision::Inspect
    }

    /// Applies the rules to an attribute. In mode `report`, the result only tells whether the detectors must scan it.
    pub(super) fn rule(
        &mut self,
        place: StringLocation,
        seen: SetAttribute<'_>,
    ) -> Result<AttributeDecision, Refusal> {
        let policy = self.policy;
        let Some(rules) = policy.rules.as_ref().filter(|_| policy.acts_on(place)) else {
            return Ok(AttributeDecision::Inspect);
        };
        let decided = self.ruled_attribute(rules, place, &seen)?;
        Ok(match decided {
            AttributeDecision::Inspect | AttributeDecision::KeepValue => decided,
            _ if policy.report => AttributeDecision::Keep,
            decided => decided,
        })
    }

    /// Records an action for the summary. The summary is a value, so it must not contain a key with private data,
    /// such as a removed key.
    pub(super) fn note(&mut self, deed: Deed, key: &str, rules: &Rules) {
        let Some(set) = self.sets.last_mut() else {
            return;
        };
        if rules.verbosity != SummaryDetail::Debug {
            set.summary.add(deed, "", rules.verbosity);
            return;
        }
        if key.len() > LONGEST_NAME {
            set.summary.add(deed, "****", rules.verbosity);
            return;
        }
        let mut name = Cow::Borrowed(key);
        if self.policy.looks_at_keys {
            // In this case a key is scanned like any string, and blocked parts are masked.
            name = rules.block(key, &mut 0).unwrap_or(Cow::Borrowed("****"));
        }
        match self.policy.scanner.scan(&name, &mut Hits::default()) {
            Ok(ScanOutcome::Clean) => set.summary.add(deed, &name, rules.verbosity),
            Ok(ScanOutcome::Rewritten(key)) => set.summary.add(deed, &key, rules.verbosity),
            Ok(ScanOutcome::Drop) | Err(_) => set.summary.add(deed, "****", rules.verbosity),
        }
    }
}
