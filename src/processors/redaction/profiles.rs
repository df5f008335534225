//! Redaction of profiles, in which strings are shared by their references.
//!
//! First, every string of the dictionary is scanned once. Only if a string has a hit, the request is decoded. Strings
//! referenced from a place to redact are copied, redacted, and referenced instead. Then the tables are written with
//! the referenced entries only. So the original string stays only if a place that is not redacted refers to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;

use super::Redacted;
use super::hits::Counters;
use super::policy::Policy;
use super::probe::{self, Probe};
use super::redactor::Redactor;
use super::refusal::{Refusal, with_reason};
use crate::pipeline::output_memory::OutputMemory;
use tributary_memory::Budget;
use tributary_otlp::Signal;
use tributary_otlp::strings::{
    AttributeDecision, RewriteError, Rewriter as _, SetAttribute, StringPlace, TextDecision,
    rewrite,
};
use tributary_profiles::compact::Compactor;
use tributary_profiles::names::BUILD_IDS;
use tributary_profiles::references::References;
use tributary_profiles::reindex::ProfileFault;
use tributary_profiles::{Dictionary, Profiles, layout, pprof};
use tributary_redaction::{Hits, ScanOutcome};

/// Returns a profiles request without private data; `None` if it stays unchanged. `level` is the depth of embedding.
pub(super) fn redact(
    policy: &Policy,
    counters: &Counters,
    budget: &Arc<Budget>,
    request: &Bytes,
    level: u32,
) -> Reworked<Option<Redacted>> {
    layout::check(request)
        .map_err(|old| RewriteError::Rewriter(Refusal::Layout(old.to_string())))?;
    let silent = Counters::silent();
    let mut probe = Probe::new(Redactor::new(policy, &silent, budget, level));
    let output = OutputMemory::new(budget);
    let stripped = rewrite(
        &policy.tables,
        Signal::Profiles,
        request,
        &output,
        &mut probe,
    )
    .map_err(|refused| with_reason(refused, &output))?;
    if !probe.found && !probe::rules_act(policy, request)? {
        return Ok(stripped.map(Redacted::same_items));
    }
    // As structs, and once more while it is read into tables and written.
    let structs = tributary_otlp::decoded_bytes(Signal::Profiles, request);
    let tables = tributary_profiles::decoded_bytes(request).saturating_mul(2);
    output
        .take(structs.saturating_add(tables))
        .map_err(|no_room| RewriteError::Rewriter(Refusal::NoRoom(no_room)))?;
    let decoded = ExportProfilesServiceRequest::decode(request.as_ref())
        .map_err(|_| RewriteError::Malformed("the request is not a profiles request"))?;
    let mut rework = Rework {
        redactor: Redactor::new(policy, counters, budget, level),
        changed: false,
        originals: 0,
        suspects: &probe.suspects,
        strings: HashMap::new(),
    };
    let reworked = rework.request(decoded)?;
    if policy.report {
        return Ok(stripped.map(Redacted::same_items));
    }
    // An overridden field in a redacted place is invisible to readers, and disappears when the request is written.
    let hidden = probe.originals > rework.originals;
    let changed = rework.changed || probe.in_place || hidden;
    // Nothing was added to its strings then.
    let suspects = match changed {
        true => Vec::new(),
        false => strings(&reworked, &probe.suspects),
    };
    if !changed && suspects.is_empty() {
        return Ok(stripped.map(Redacted::same_items));
    }
    let profiles = read(&reworked).map_err(|fault| broken(&fault))?;
    let (items, request) = (Some(profiles.samples()), profiles.encode());
    if !changed && !leaves_out(&suspects, &request) {
        return Ok(stripped.map(Redacted::same_items));
    }
    Ok(Some(Redacted { request, items }))
}

/// The strings of a dictionary at these places.
fn strings<'r>(request: &'r ExportProfilesServiceRequest, places: &HashSet<usize>) -> Vec<&'r str> {
    let strings = request.dictionary.iter().flat_map(|tables| {
        let strings = places.iter().filter_map(|at| tables.string_table.get(*at));
        strings.map(String::as_str).filter(|text| !text.is_empty())
    });
    strings.collect()
}

/// Whether one of these strings disappears when only referenced strings are written. No place refers to such a
/// string, so no setting keeps it.
fn leaves_out(suspects: &[&str], written: &[u8]) -> bool {
    let Ok(written) = ExportProfilesServiceRequest::decode(written) else {
        return true;
    };
    let tables = written.dictionary.iter();
    let kept: HashSet<&str> = tables
        .flat_map(|tables| &tables.string_table)
        .map(String::as_str)
        .collect();
    suspects.iter().any(|text| !kept.contains(text))
}

fn broken(fault: &ProfileFault) -> RewriteError<Refusal> {
    RewriteError::Rewriter(Refusal::Broken(fault.to_string()))
}

/// Reads a request with only the dictionary entries in use, and merges equal attributes, resources, scopes and samples.
fn read(request: &ExportProfilesServiceRequest) -> Result<Profiles, ProfileFault> {
    let compacted = |mut compactor: Compactor| compactor.add(request).map(|()| compactor);
    let merged = compacted(Compactor::new())?;
    if merged.saturated() == 0 {
        return Ok(merged.finish());
    }
    // Their sums do not fit: rather two samples that are equal than a wrong one.
    Ok(compacted(Compactor::keeping_samples())?.finish())
}

pub(super) type Reworked<T> = Result<T, RewriteError<Refusal>>;

struct Rework<'p> {
    redactor: Redactor<'p>,
    changed: bool,
    /// Number of non-empty fields with the original file of a profile, or with its format, that the decoder sees.
    originals: usize,
    /// Indices of the strings with hits. Only these are scanned again.
    suspects: &'p HashSet<usize>,
    /// Index of the redacted string, by the index and place of the unredacted one.
    strings: HashMap<(i32, StringPlace), i32>,
}

impl Rework<'_> {
    fn request(
        &mut self,
        mut request: ExportProfilesServiceRequest,
    ) -> Reworked<ExportProfilesServiceRequest> {
        self.originals(&mut request)?;
        inline(&mut request).map_err(|fault| broken(&fault))?;
        let kept = self.dictionary_rules(&mut request)?;
        request = self.attributes(request)?;
        let mut tables = request.dictionary.take().unwrap_or_default();
        for (at, value) in kept {
            if let Some(entry) = tables.attribute_table.get_mut(at) {
                entry.value = value;
            }
        }
        self.tables(&mut tables)?;
        for scope in request
            .resource_profiles
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_profiles)
        {
            for profile in &mut scope.profiles {
                for kind in [&mut profile.sample_type, &mut profile.period_type] {
                    let Some(kind) = kind else { continue };
                    let place = StringPlace::SampleTypes;
                    self.string(place, &mut kind.type_strindex, &mut tables.string_table)?;
                    self.string(place, &mut kind.unit_strindex, &mut tables.string_table)?;
                }
            }
        }
        request.dictionary = Some(tables);
        Ok(request)
    }

    /// The files that profiles were made of.
    fn originals(&mut self, request: &mut ExportProfilesServiceRequest) -> Reworked<()> {
        let profiles = request
            .resource_profiles
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_profiles)
            .flat_map(|scope| &mut scope.profiles);
        for profile in profiles {
            let (file, format) = (&profile.original_payload, &profile.original_payload_format);
            self.originals += usize::from(!file.is_empty()) + usize::from(!format.is_empty());
            if file.is_empty() && format.is_empty() {
                continue;
            }
            let redacted = match self.redactor.policy.redacts_originals && format == "pprof" {
                true => self.file(file),
                false => None,
            };
            // Rewriting a file of this processor returns the same bytes.
            if redacted.as_ref() == Some(file) {
                continue;
            }
            self.changed = true;
            match redacted {
                Some(redacted) => profile.original_payload = redacted,
                None => {
                    if !file.is_empty() {
                        self.redactor.counters.dropped_original();
                    }
                    profile.original_payload.clear();
                    profile.original_payload_format.clear();
                }
            }
        }
        Ok(())
    }

    /// Returns a pprof file without private data; `None` if the file cannot be parsed. The file is rewritten unless
    /// neither its visible nor its overridden data has a hit.
    fn file(&self, file: &[u8]) -> Option<Vec<u8>> {
        let mut permit = self.redactor.budget.acquire(file.len()).ok()?;
        let mut dictionary = Dictionary::new();
        let converted = pprof::PprofReader::new()
            .read(
                file,
                &pprof::ReadOptions::default(),
                &mut permit,
                &mut dictionary,
                None,
            )
            .ok()?;
        let resource = tributary_profiles::model::ResourceProfiles {
            scopes: vec![converted.profiles],
            ..Default::default()
        };
        let encoded = Profiles {
            dictionary,
            resources: vec![resource],
        }
        .encode();
        let Redactor {
            policy,
            counters,
            budget,
            level,
            ..
        } = &self.redactor;
        let redacted = redact(policy, counters, budget, &encoded, *level).ok()?;
        let encoded = match redacted {
            Some(redacted) => redacted.request,
            None if pprof::all_texts(file, &mut permit, |text| self.is_clean(text)) => {
                return Some(file.to_vec());
            }
            None => encoded,
        };
        let request = ExportProfilesServiceRequest::decode(encoded).ok()?;
        let profiles = read(&request).ok()?;
        let resource = profiles.resources.first()?;
        let scope = resource.scopes.first()?;
        let links = pprof::LinkLabels::default();
        let mut files = pprof::write::write(&profiles.dictionary, resource, scope, &links);
        // One file becomes one scope, which becomes one file again. Any other number is an error.
        match files.len() {
            1 => files.pop(),
            _ => None,
        }
    }

    /// Whether nothing is in a text, wherever it may stand.
    fn is_clean(&self, text: &[u8]) -> bool {
        let policy = self.redactor.policy;
        let outcome = policy.scanner.scan_bytes(text, &mut Hits::default());
        let blocked = policy.rules.as_ref().is_some_and(|rules| {
            std::str::from_utf8(text).map_or(true, |text| rules.blocks_value(text))
        });
        !blocked && matches!(outcome, Ok(ScanOutcome::Clean))
    }

    /// Applies the Collector's rules to the attributes of the dictionary. Values that no detector may scan are set
    /// aside.
    fn dictionary_rules(
        &mut self,
        request: &mut ExportProfilesServiceRequest,
    ) -> Reworked<Vec<(usize, Option<AnyValue>)>> {
        let mut kept = Vec::new();
        let Some(tables) = &mut request.dictionary else {
            return Ok(kept);
        };
        let place = StringPlace::ProfileAttributes;
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

    /// All that is written out, once nothing in it refers to the dictionary: on the wire, like the other signals.
    fn attributes(
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
            // The value went, and the attribute goes with it.
            if before.value.is_some() && after.value.is_none() {
                *after = proto::KeyValueAndUnit::default();
            }
        }
        Ok(fresh)
    }

    /// Redacts the dictionary tables that refer to strings by index.
    fn tables(&mut self, tables: &mut proto::ProfilesDictionary) -> Reworked<()> {
        let proto::ProfilesDictionary {
            mapping_table,
            function_table,
            attribute_table,
            string_table,
            ..
        } = tables;
        for mapping in mapping_table {
            let place = StringPlace::MappingFiles;
            self.string(place, &mut mapping.filename_strindex, string_table)?;
        }
        for function in function_table {
            let place = StringPlace::FunctionFiles;
            self.string(place, &mut function.filename_strindex, string_table)?;
            let place = StringPlace::FunctionNames;
            self.string(place, &mut function.name_strindex, string_table)?;
            self.string(place, &mut function.system_name_strindex, string_table)?;
        }
        for attribute in attribute_table {
            let place = StringPlace::AttributeKeys;
            self.string(place, &mut attribute.key_strindex, string_table)?;
            let place = StringPlace::SampleTypes;
            self.string(place, &mut attribute.unit_strindex, string_table)?;
        }
        Ok(())
    }

    /// A reference to a string, which leads to another one afterwards if there is something in it.
    fn string(
        &mut self,
        place: StringPlace,
        reference: &mut i32,
        strings: &mut Vec<String>,
    ) -> Reworked<()> {
        if !self.redactor.policy.places.has(place) || *reference == 0 {
            return Ok(());
        }
        if let Some(known) = self.strings.get(&(*reference, place)) {
            *reference = *known;
            return Ok(());
        }
        let at = usize::try_from(*reference).ok();
        if !at.is_some_and(|at| self.suspects.contains(&at)) {
            return Ok(());
        }
        let Some(text) = at.and_then(|at| strings.get(at)) else {
            // Refused when the tables are read again.
            return Ok(());
        };
        let change = self
            .redactor
            .text(place, text.as_bytes())
            .map_err(RewriteError::Rewriter)?;
        let fresh = match change {
            TextDecision::Keep => *reference,
            TextDecision::Remove => 0,
            TextDecision::Replace(text) => {
                strings.push(text);
                let last = i32::try_from(strings.len() - 1);
                last.map_err(|_| RewriteError::Malformed("the dictionary has too many strings"))?
            }
        };
        self.changed |= fresh != *reference;
        self.strings.insert((*reference, place), fresh);
        *reference = fresh;
        Ok(())
    }
}

/// Whether a value has the form of a build id: hexadecimal digits, or the base64url and slashes of Go. Other values
/// under the key are scanned like any attribute.
fn is_build_id(value: Option<&AnyValue>) -> bool {
    let Some(Value::StringValue(text)) = value.and_then(|value| value.value.as_ref()) else {
        return false;
    };
    let hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let go = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    // The shortest in use is a CRC of 8 digits; Go's are four hashes of 20 characters.
    (hexadecimal && text.len() >= 8)
        || (text.split('/').count() >= 2
            && text
                .split('/')
                .all(|part| part.len() >= 20 && part.bytes().all(go)))
}

/// Puts strings where attributes refer to them, so that all of an attribute is in one place.
fn inline(request: &mut ExportProfilesServiceRequest) -> Result<(), ProfileFault> {
    let Some(tables) = &mut request.dictionary else {
        return Ok(());
    };
    let mut references = References::new(&tables.string_table);
    for resource in &mut request.resource_profiles {
        if let Some(resource) = &mut resource.resource {
            references.resolve(&mut resource.attributes)?;
        }
        for scope in &mut resource.scope_profiles {
            if let Some(scope) = &mut scope.scope {
                references.resolve(&mut scope.attributes)?;
            }
        }
    }
    for entry in &mut tables.attribute_table {
        if let Some(value) = &entry.value {
            let resolved = references.resolved(value)?.into_owned();
            entry.value = Some(resolved);
        }
    }
    Ok(())
}
