//! Fuzz target for pprof files.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tributary_memory::Budget;
use tributary_profiles::check;
use tributary_profiles::model::ResourceProfiles;
use tributary_profiles::pprof::{LinkLabels, ReadOptions, PprofReader, write};
use tributary_profiles::{Dictionary, Profiles};

/// A readable file is well-formed as OTLP and keeps the sum of every sample type when written
/// again. The memory for decompression is always released.
pub fn pprof(input: &[u8]) {
    let Some(profiles) = read(input, 1 << 18) else {
        return;
    };
    let request = ExportProfilesServiceRequest::decode(profiles.encode()).unwrap();
    for finding in check::check(&request).findings() {
        assert!(!finding.rule.is_structural(), "{finding}");
    }
    let resource = &profiles.resources[0];
    let links = LinkLabels::default();
    let files = write::write(&profiles.dictionary, resource, &resource.scopes[0], &links);
    let [file] = files.as_slice() else {
        panic!("one file became {}", files.len());
    };
    // A larger limit, because the repair of a text that is not UTF-8 may triple its size.
    let again = read(file, 1 << 22).unwrap();
    assert_eq!(totals(&again), totals(&profiles));
}

fn read(file: &[u8], limit: usize) -> Option<Profiles> {
    const HELD: usize = 100;
    let budget = Budget::new(1 << 20);
    let options = ReadOptions {
        limit,
        ..ReadOptions::default()
    };
    let mut permit = budget.acquire(HELD).unwrap();
    let mut dictionary = Dictionary::new();
    let read = PprofReader::new().read(file, &options, &mut permit, &mut dictionary, None);
    assert_eq!(permit.bytes(), HELD);
    Some(Profiles {
        dictionary,
        resources: vec![ResourceProfiles {
            scopes: vec![read.ok()?.profiles],
            ..ResourceProfiles::default()
        }],
    })
}

fn totals(profiles: &Profiles) -> Vec<i128> {
    let total = |sample: tributary_profiles::model::Sample<'_>| i128::from(sample.total().0);
    profiles
        .iter()
        .map(|profile| profile.samples.iter().map(total).sum())
        .collect()
}
