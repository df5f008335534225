//! Conversion of requests of `/ingest`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::convert::{File, Request, malformed};
use super::jfr;
use super::sender::Sender;
use crate::receivers::profile_intake::{
    Converted, Origin, ReceivedBytes, Refused, Rules, inflated,
};
use tributary_profile_formats as formats;
use tributary_profiles::names::by_sample_types;
use tributary_profiles::pprof::Repairs;
use tributary_pyroscope::ingest::{Ingest, IngestFormat};
use tributary_pyroscope::kinds::{SampleTypes, StackKind, of_service};
use tributary_pyroscope::labels::{self, SeriesLabel, find};
use tributary_pyroscope::multipart::{self, Part};
use tributary_pyroscope::snapshot::{Snapshot, SnapshotError};
use tributary_pyroscope::stacks::{StackError, Stacks, groups, lines};
use tributary_pyroscope::{tree, trie};

/// Label with the name of the service in the query, if the labels have another one.
const APP_NAME: &str = "app_name";

/// Converts a request.
pub(super) fn convert(
    held: ReceivedBytes,
    ingest: &Ingest,
    content_type: &str,
    sender: &Sender,
    rules: &Rules,
) -> Result<(Converted, Repairs), Refused> {
    let essence = multipart::essence(content_type);
    let format = ingest.format(&essence.to_ascii_lowercase());
    let format = format.map_err(|error| Refused::Malformed(error.to_string()))?;
    let target = Target { ingest, sender };
    match format {
        IngestFormat::Pprof => target.pprof(held, content_type, rules),
        IngestFormat::Jfr => target.jfr(held, content_type, rules),
        IngestFormat::Speedscope => target.speedscope(held, rules),
        IngestFormat::Groups | IngestFormat::Lines | IngestFormat::Trie | IngestFormat::Tree => {
            target.stacks(held, format, rules)
        }
    }
}

/// Description of the profiles in a request.
struct Target<'i> {
    ingest: &'i Ingest,
    sender: &'i Sender,
}

impl Target<'_> {
    /// Returns the origin of profiles of this service with this name.
    fn origin(&self, service: &str, profile: Option<&str>) -> Origin {
        let Ingest {
            name,
            from,
            until,
            spy,
            ..
        } = self.ingest;
        let mut all: Vec<SeriesLabel> = name.labels.clone();
        let label = match find(&all, labels::SERVICE_NAME) {
            None => labels::SERVICE_NAME,
            Some(_) => APP_NAME,
        };
        for (name, value) in [(label, service), (labels::SPY, spy)] {
            if find(&all, name).is_none() {
                all.push((name.to_owned(), value.to_owned()));
            }
        }
        Origin {
            subject: Arc::new(self.sender.subject(&all)),
            profile: profile.filter(|name| !name.is_empty()).map(Arc::from),
            start: *from,
            // Without a duration, `alloc_space` and others would count from the start of the process.
            duration: Duration::from_nanos((until - from).max(1)),
            is_interval: true,
        }
    }

    fn pprof(
        &self,
        held: ReceivedBytes,
        content_type: &str,
        rules: &Rules,
    ) -> Result<(Converted, Repairs), Refused> {
        let ReceivedBytes { bytes, permit } = held;
        let mut request = Request::new(rules, permit);
        let mut config = SampleTypes::default();
        let profile = match multipart::is_form(content_type) {
            false => bytes,
            true => {
                let parts = form(content_type, &bytes)?;
                if !part(&parts, "prev_profile").is_empty() {
                    return Err(Refused::Malformed(
                        "the form has a `prev_profile`, which only agents before 2023 send; update the agent".into(),
                    ));
                }
                let json = part(&parts, "sample_type_config");
                if !json.is_empty() {
                    config = SampleTypes::parse(&json).map_err(|error| {
                        Refused::Malformed(format!("`sample_type_config` is not usable: {error}"))
                    })?;
                }
                part(&parts, "profile")
            }
        };
        // Agents send empty profiles when nothing happened; Pyroscope accepts them.
        if !profile.is_empty() {
            let file = request.read(profile, None)?;
            let types = request.sample_types(&file.profiles);
            let name = config.profile(types.into_iter()).to_owned();
            let origin = self.origin(&self.ingest.name.service, Some(&name));
            request.add(file, &origin);
        }
        request.finish()
    }

    fn jfr(
        &self,
        held: ReceivedBytes,
        content_type: &str,
        rules: &Rules,
    ) -> Result<(Converted, Repairs), Refused> {
        let ReceivedBytes { bytes, permit } = held;
        let mut request = Request::new(rules, permit);
        let mut recording = bytes;
        let mut snapshot = Snapshot::default();
        if multipart::is_form(content_type) {
            let parts = form(content_type, &recording)?;
            let labels = ReceivedBytes {
                bytes: part(&parts, "labels"),
                permit: request.permit().budget().empty_permit(),
            };
            let labels = inflated(labels, rules)?;
            let parsed = Snapshot::parse(&labels.bytes, request.permit());
            snapshot = parsed.map_err(malformed(|error: &SnapshotError| match error {
                SnapshotError::NoRoom(no_room) => Some(*no_room),
                SnapshotError::Wire(_) | SnapshotError::Long => None,
            }))?;
            recording = part(&parts, "jfr");
            if recording.is_empty() {
                return Err(Refused::Malformed(
                    "the form has no field `jfr` with a recording".into(),
                ));
            }
        }
        let mut file = request.read(recording, Some(formats::Format::Jfr))?;
        let (dictionary, permit) = request.tables();
        let relabelled = jfr::relabel(&mut file.profiles, &snapshot, dictionary, permit);
        relabelled.map_err(Refused::NoRoom)?;
        for (name, profiles) in jfr::divide(file.profiles, self.ingest.rate, dictionary) {
            let origin = self.origin(&self.ingest.name.service, Some(&name));
            let File { main, id, .. } = file;
            request.add(File { profiles, main, id }, &origin);
        }
        request.finish()
    }

    fn speedscope(
        &self,
        held: ReceivedBytes,
        rules: &Rules,
    ) -> Result<(Converted, Repairs), Refused> {
        let ReceivedBytes { bytes, permit } = held;
        let mut request = Request::new(rules, permit);
        let (service, kind) = self.service();
        let mut file = request.read(bytes, Some(formats::Format::Speedscope))?;
        let (dictionary, _) = request.tables();
        // speedscope has units, but no sample types: the name of the service states the type.
        if let (Some(kind), [profile]) = (kind, file.profiles.profiles.as_mut_slice())
            && dictionary.text(profile.header.sample_type.unit) == kind.unit
        {
            profile.header.sample_type.kind = dictionary.string(kind.sample_type);
        }
        let profile = match kind {
            Some(kind) => kind.profile,
            None => by_sample_types(request.sample_types(&file.profiles).into_iter()),
        };
        let origin = self.origin(service, Some(profile));
        request.add(file, &origin);
        request.finish()
    }

    fn stacks(
        &self,
        held: ReceivedBytes,
        format: IngestFormat,
        rules: &Rules,
    ) -> Result<(Converted, Repairs), Refused> {
        let (service, Some(kind)) = self.service() else {
            let name = &self.ingest.name.service;
            return Err(Refused::Malformed(format!(
                "the parameter `name` must end with the type of the stacks, as in `{name}.cpu`: one of cpu, wall, \
                 itimer, alloc_objects, alloc_space, inuse_objects, inuse_space, goroutines, mutex_count, \
                 mutex_duration, block_count, block_duration, lock_count, lock_duration, exceptions, live"
            )));
        };
        let ReceivedBytes { bytes, permit } = inflated(held, rules)?;
        let mut request = Request::new(rules, permit);
        let mut stacks = Stacks::new(request.permit());
        let read = match format {
            IngestFormat::Lines => lines(&bytes, &mut stacks),
            IngestFormat::Trie => trie::read(&bytes, &mut stacks),
            IngestFormat::Tree => tree::read(&bytes, &mut stacks),
            _ => groups(&bytes, &mut stacks),
        };
        read.map_err(malformed(|error: &StackError| match error {
            StackError::NoRoom(no_room) => Some(*no_room),
            _ => None,
        }))?;
        let profiles = stacks.into_profiles(&kind, self.ingest.rate);
        let origin = self.origin(service, Some(kind.profile));
        request.whole(profiles, &bytes, &origin);
        drop(bytes);
        request.finish()
    }

    /// Returns the name of the service without the suffix of a type, and the type.
    fn service(&self) -> (&str, Option<StackKind>) {
        let name = self.ingest.name.service.as_str();
        of_service(name).map_or((name, None), |(service, kind)| (service, Some(kind)))
    }
}

fn form(content_type: &str, body: &Bytes) -> Result<Vec<Part>, Refused> {
    let parts = multipart::parts(content_type, body);
    parts.map_err(|error| Refused::Malformed(format!("the body is not usable: {error}")))
}

/// Returns the content of a field; empty if the field is missing.
fn part(parts: &[Part], name: &str) -> Bytes {
    let found = parts.iter().find(|part| part.name == name);
    found.map(|part| part.data.clone()).unwrap_or_default()
}
