//! Decisions of the redactor, for the rewriter of requests.

use super::redactor::{Redactor, Set};
use super::refusal::Refusal;
use super::summary::keys;
use super::values::summed_up;
use tributary_otlp::Signal;
use tributary_otlp::strings::{
    Amendment, AttributeDecision, BodyDecision, Rewriter, SetAttribute, StringLocation,
    TextDecision,
};
use tributary_redaction::ScanOutcome;

impl Rewriter for Redactor<'_> {
    type Refusal = Refusal;

    #[inline(always)]
    fn text(&mut self, place: StringLocation, text: &[u8]) -> Result<TextDecision, Refusal> {
        let policy = self.policy;
        let change = match &policy.rules {
            None => match self.scan_bytes(place, text)? {
                ScanOutcome::Clean => return Ok(TextDecision::Keep),
                ScanOutcome::Rewritten(text) => TextDecision::Replace(text),
                ScanOutcome::Drop => TextDecision::Remove,
            },
            Some(rules) => self.ruled_text(rules, place, text)?,
        };
        Ok(match policy.report {
            true => TextDecision::Keep,
            false => change,
        })
    }

    #[inline(always)]
    fn is_clean(&self, text: &[u8]) -> bool {
        self.policy.scanner.passes(text)
    }

    fn decides_attributes(&self) -> bool {
        self.policy.rules.is_some()
    }

    fn needs_every_occurrence(&self) -> bool {
        self.policy.report
    }

    fn open(&mut self, place: StringLocation, message: &[u8]) -> Result<(), Refusal> {
        let mut set = Set {
            place: Some(place),
            ..Set::default()
        };
        if let Some(rules) = &self.policy.rules
            && !rules.sanitizers.is_empty()
        {
            set.about = rules.sanitizers.about(place, message);
        }
        self.sets.push(set);
        Ok(())
    }

    fn attribute(
        &mut self,
        place: StringLocation,
        seen: SetAttribute<'_>,
    ) -> Result<AttributeDecision, Refusal> {
        let policy = self.policy;
        let decided = self.rule(place, seen)?;
        if policy.report {
            return Ok(decided);
        }
        // The summary of an earlier processor may have to be extended. Other attributes under its keys are ordinary
        // attributes.
        if policy.sums_up()
            && policy.acts_on(place)
            && keys().any(|key| key == seen.key)
            && let Some((value, changed)) = summed_up(&seen, &decided)
        {
            if let Some(set) = self.sets.last_mut() {
                set.looking = None;
                set.summary.found(seen.key, seen.at, Some(value), changed);
            }
            return Ok(AttributeDecision::Deferred);
        }
        Ok(decided)
    }

    fn body(&mut self, place: StringLocation, value: &[u8]) -> Result<BodyDecision, Refusal> {
        let policy = self.policy;
        let Some(rules) = policy.rules.as_ref().filter(|_| policy.acts_on(place)) else {
            return Ok(BodyDecision::Inspect);
        };
        let body = super::body::redact(self, rules, place, value)?;
        Ok(match policy.report {
            true => BodyDecision::Keep,
            false => body,
        })
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
        let redacted = self.request(place, signal, request)?;
        if redacted.is_some()
            && let Some(rules) = &self.policy.rules
        {
            self.looked_at(place, rules);
        }
        Ok(redacted)
    }

    fn close(&mut self, _: StringLocation) -> Vec<Amendment> {
        let policy = self.policy;
        match (self.sets.pop(), &policy.rules) {
            (Some(set), Some(rules)) if !policy.report => set.summary.amendments(rules.verbosity),
            _ => Vec::new(),
        }
    }
}
