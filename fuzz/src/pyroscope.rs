//! The targets for the protocols of Pyroscope's agents.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tributary_memory::Budget;
use tributary_profiles::check;
use tributary_pyroscope::ingest::Ingest;
use tributary_pyroscope::kinds::{SampleTypes, of_service};
use tributary_pyroscope::labels::{MAX_LABELS, check as check_label};
use tributary_pyroscope::multipart::parts;
use tributary_pyroscope::name::parse;
use tributary_pyroscope::push::{Series, from_json, from_protobuf, put_series};
use tributary_pyroscope::snapshot::Snapshot;
use tributary_pyroscope::stacks::{Stacks, groups, lines};
use tributary_pyroscope::{tree, trie};

/// An accepted request has labels within the limits, and is read again as it is written.
pub fn pyroscope_push(input: &[u8]) {
    let input = Bytes::copy_from_slice(input);
    let mut permit = Budget::new(1 << 20).empty_permit();
    let both = [from_protobuf(&input), from_json(&input, &mut permit)];
    for all in both.into_iter().flatten() {
        let mut request = Vec::new();
        let mut expected = Vec::new();
        for Series { labels, profiles } in all {
            assert!(labels.len() <= MAX_LABELS);
            for (name, value) in &labels {
                assert_eq!(check_label(name, value), Ok(()));
            }
            for profile in profiles {
                put_series(&labels, &profile, "id", &mut request);
                expected.push(Series {
                    labels: labels.clone(),
                    profiles: vec![profile],
                });
            }
        }
        if let Ok(again) = from_protobuf(&request.into()) {
            assert_eq!(again, expected);
        } else {
            // Series with many profiles became more series than a request may have.
            assert!(expected.len() > 1024);
        }
    }
}

/// Stacks of any format stay within the budget and become a well-formed profile.
pub fn pyroscope_stacks(input: &[u8]) {
    const LIMIT: usize = 1 << 20;
    let Some((format, body)) = input.split_first() else {
        return;
    };
    let mut permit = Budget::new(LIMIT).empty_permit();
    let mut stacks = Stacks::new(&mut permit);
    let read = match format % 4 {
        0 => trie::read(body, &mut stacks),
        1 => tree::read(body, &mut stacks),
        2 => groups(body, &mut stacks),
        _ => lines(body, &mut stacks),
    };
    if read.is_err() {
        return;
    }
    let name = if format & 4 == 0 { "a.cpu" } else { "a.alloc_space" };
    let (_, kind) = of_service(name).unwrap();
    let profiles = stacks.into_profiles(&kind, u32::from(*format));
    assert!(profiles.dictionary.bytes() <= permit.bytes() + (64 << 10));
    let request = ExportProfilesServiceRequest::decode(profiles.encode()).unwrap();
    for finding in check::check(&request).findings() {
        assert!(!finding.rule.is_structural(), "{finding}");
    }
}

/// A name that was parsed is parsed again as it is written. Parts of a form are in the body, one after the other.
pub fn pyroscope_form(input: &[u8]) {
    let mut pieces = input.splitn(2, |byte| *byte == b'\n');
    let (head, body) = (pieces.next().unwrap_or_default(), pieces.next().unwrap_or_default());
    let body = Bytes::copy_from_slice(body);
    if let Ok(text) = str::from_utf8(head) {
        if let Ok(name) = parse(text) {
            let labels = name.labels.iter().map(|(key, value)| format!("{key}={value}"));
            let labels: Vec<String> = labels.collect();
            let plain = !labels.iter().any(|label| label.contains([',', '}', '"', '{']));
            if plain && !name.service.contains('{') {
                let written = format!("{}{{{}}}", name.service, labels.join(","));
                assert_eq!(parse(&written).as_ref(), Ok(&name));
            }
        }
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        if let Ok(ingest) = Ingest::of(pairs, 1) {
            assert!(ingest.from <= ingest.until && !ingest.name.service.is_empty());
        }
        let mut at = body.as_ptr() as usize;
        for part in parts(text, &body).unwrap_or_default() {
            if !part.data.is_empty() {
                let start = part.data.as_ptr() as usize;
                assert!(start >= at && start + part.data.len() <= body.as_ptr() as usize + body.len());
                at = start + part.data.len();
            }
        }
    }
    let mut permit = Budget::new(1 << 20).empty_permit();
    if let Ok(snapshot) = Snapshot::parse(&body, &mut permit) {
        for context in snapshot.contexts() {
            assert!(snapshot.labels(context).count() <= MAX_LABELS);
        }
    }
    if let Ok(types) = SampleTypes::parse(&body) {
        types.profile(["samples", "cpu"].into_iter());
    }
}
