//! Redaction of requests in attributes and bodies.

use bytes::Bytes;

use super::redactor::Redactor;
use super::refusal::{Refusal, with_reason};
use crate::pipeline::output_memory::OutputMemory;
use tributary_otlp::Signal;
use tributary_otlp::room::RoomExhausted;
use tributary_otlp::strings::{RewriteError, StringLocation, rewrite};

impl<'p> Redactor<'p> {
    /// Returns an embedded request without private data; `None` if it stays unchanged.
    pub(super) fn request(
        &mut self,
        place: StringLocation,
        signal: Signal,
        request: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        if self.level >= Refusal::LEVELS {
            return Err(Refusal::Nested);
        }
        let none = |reason| Refusal::NoRequest { place, reason };
        tributary_otlp::validate(signal, request).map_err(|error| none(error.to_string()))?;
        self.level += 1;
        let redacted = match signal {
            Signal::Profiles => {
                let (policy, counters) = (self.policy, self.counters);
                let request = Bytes::copy_from_slice(request);
                super::profiles::redact(policy, counters, self.budget, &request, self.level)
                    .map(|redacted| redacted.map(|redacted| redacted.request))
            }
            _ => {
                let output = OutputMemory::new(self.budget);
                rewrite(&self.policy.tables, signal, request, &output, self)
                    .map_err(|refused| with_reason(refused, &output))
            }
        };
        self.level -= 1;
        match redacted {
            Ok(redacted) => Ok(redacted.map(Vec::from)),
            Err(RewriteError::Malformed(reason)) => Err(none(reason.to_owned())),
            Err(RewriteError::RoomExhausted) => Err(none(RoomExhausted.to_string())),
            Err(RewriteError::Rewriter(refusal)) => Err(refusal),
        }
    }
}
