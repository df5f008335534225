//! Redaction of profiles, in which strings are shared by their references.
//!
//! First, every string of the dictionary is scanned once. Only if a string has a hit, the request is decoded. Strings
//! referenced from a place to redact are copied, redacted, and referenced instead. Then the tables are written with
//! the referenced entries only. So the original string stays only if a place that is not redacted refers to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;

use super::Redacted;
use super::hits::Counters;
use super::policy::Policy;
use super::probe::{self, Probe};
pub(super) use super::profile_request::Reworked;
use super::profile_request::{broken, inline, leaves_out, read, strings};
use super::redactor::Redactor;
use super::refusal::{Refusal, with_reason};
use crate::pipeline::output_memory::OutputMemory;
use tributary_memory::Budget;
use tributary_otlp::Signal;
use tributary_otlp::strings::{RewriteError, Rewriter as _, StringLocation, TextDecision, rewrite};
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
    // Memory for the structs, and for the tables while the request is read and written.
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
    // In this case no strings were added.
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

pub(super) struct Rework<'p> {
    pub(super) redactor: Redactor<'p>,
    pub(super) changed: bool,
    /// Number of non-empty fields with the original file of a profile, or with its format, that the decoder sees.
    originals: usize,
    /// Indices of the strings with hits. Only these are scanned again.
    suspects: &'p HashSet<usize>,
    /// Index of the redacted string, by the index and place of the unredacted one.
    strings: HashMap<(i32, StringLocation), i32>,
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
                    let place = StringLocation::SampleTypes;
                    self.string(place, &mut kind.type_strindex, &mut tables.string_table)?;
                    self.string(place, &mut kind.unit_strindex, &mut tables.string_table)?;
                }
            }
        }
        request.dictionary = Some(tables);
        Ok(request)
    }

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

    /// Whether a text has no hit in any location.
    fn is_clean(&self, text: &[u8]) -> bool {
        let policy = self.redactor.policy;
        let outcome = policy.scanner.scan_bytes(text, &mut Hits::default());
        let blocked = policy.rules.as_ref().is_some_and(|rules| {
            std::str::from_utf8(text).map_or(true, |text| rules.blocks_value(text))
        });
        !blocked && matches!(outcome, Ok(ScanOutcome::Clean))
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
            let place = StringLocation::MappingFiles;
            self.string(place, &mut mapping.filename_strindex, string_table)?;
        }
        for function in function_table {
            let place = StringLocation::FunctionFiles;
            self.string(place, &mut function.filename_strindex, string_table)?;
            let place = StringLocation::FunctionNames;
            self.string(place, &mut function.name_strindex, string_table)?;
            self.string(place, &mut function.system_name_strindex, string_table)?;
        }
        for attribute in attribute_table {
            let place = StringLocation::AttributeKeys;
            self.string(place, &mut attribute.key_strindex, string_table)?;
            let place = StringLocation::SampleTypes;
            self.string(place, &mut attribute.unit_strindex, string_table)?;
        }
        Ok(())
    }

    /// Redacts a reference to a string. If the string has a hit, the reference then points to the redacted string.
    fn string(
        &mut self,
        place: StringLocation,
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
            // An invalid index is refused when the tables are read again.
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
