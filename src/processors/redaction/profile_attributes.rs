//! Redaction of attributes of profiles, by the rules for their keys.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;

use super::profile_request::{Reworked, is_build_id};
use super::profiles::Rework;
use super::refusal::with_reason;
use crate::pipeline::output_memory::OutputMemory;
use tributary_otlp::Signal;
use tributary_otlp::strings::{
    AttributeDecision, RewriteError, SetAttribute, StringLocation, rewrite,
};
use tributary_profiles::names::BUILD_IDS;

impl Rework<'_> {
    /// Applies the Collector's rules to the attributes of the dictionary. Values that no detector may scan are set
    /// aside.
    pub(super) fn dictionary_rules(
        &mut self,
        request: &mut ExportProfilesServiceRequest,
    ) -> Reworked<Vec<(usize, Option<AnyValue>)>> {
        let mut kept = Vec::new();
        let Some(tables) = &mut request.dictionary else {
            return Ok(kept);
        };
        let place = StringLocation::ProfileAttributes;
        let proto::ProfilesDictionary {
            attribute_table,
            string_table,
            ..
        } = tables;
        for (at, entry) in attribute_table.iter_mut().enumerate() {
            let key = usize::try_from(entry.key_strindex).ok();
            let key = key.and_then(|key| string_table.get(key));
            let key = key.map(String::as_str).unwrap_or_default();
            if BUILD_IDS.contains(&key) && is_build_id(entry.value.as_ref()) {
                // Build ids are needed for symbols and are not private.
                kept.push((at, entry.value.take()));
                continue;
            }
            if *entry == proto::KeyValueAndUnit::default() {
                continue;
            }
            let value = entry.value.as_ref().map(prost::Message::encode_to_vec);
            let seen = SetAttribute {
                key,
                value: value.as_deref(),
                plain: true,
                at: (0, 0),
            };
            let decided = self
                .redactor
                .rule(place, seen)
                .map_err(RewriteError::Rewriter)?;
            match decided {
                AttributeDecision::Inspect => {}
                AttributeDecision::Keep
                | AttributeDecision::KeepValue
                | AttributeDecision::Deferred => {
                    kept.push((at, entry.value.take()));
                }
                AttributeDecision::Remove => {
                    *entry = proto::KeyValueAndUnit::default();
                    self.changed = true;
                }
                AttributeDecision::Replace(text) => {
                    let value = Some(Value::StringValue(text));
                    kept.push((at, Some(AnyValue { value })));
                    entry.value = None;
                    self.changed = true;
                }
            }
        }
        Ok(kept)
    }

    /// Redacts resources and scopes whose attributes do not refer to the dictionary, on the wire like the other signals.
    pub(super) fn attributes(
        &mut self,
        request: ExportProfilesServiceRequest,
    ) -> Reworked<ExportProfilesServiceRequest> {
        let policy = self.redactor.policy;
        let encoded = request.encode_to_vec();
        let output = OutputMemory::new(self.redactor.budget);
        let rewritten = rewrite(
            &policy.tables,
            Signal::Profiles,
            &encoded,
            &output,
            &mut self.redactor,
        )
        .map_err(|refused| with_reason(refused, &output))?;
        let Some(rewritten) = rewritten else {
            return Ok(request);
        };
        self.changed = true;
        let mut fresh = ExportProfilesServiceRequest::decode(rewritten)
            .map_err(|_| RewriteError::Malformed("the request is not a profiles request"))?;
        let before = request.dictionary.iter().flat_map(|d| &d.attribute_table);
        let after = fresh.dictionary.iter_mut();
        let after = after.flat_map(|d| &mut d.attribute_table);
        for (before, after) in before.zip(after) {
            // An attribute without a value is removed.
            if before.value.is_some() && after.value.is_none() {
                *after = proto::KeyValueAndUnit::default();
            }
        }
        Ok(fresh)
    }
}
