//! Fuzz target for merging, splitting and summarizing profiles.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tributary_otlp::Signal;
use tributary_profiles::aggregate::SummaryOptions;
use tributary_profiles::check::check;
use tributary_profiles::{Aggregator, join, layout, split, is_readable};
use tributary_otlp::Limit;

use crate::generator::Entropy;
use crate::profiles::{damaged, sums};
use crate::samples;

/// Joining, splitting and summing any two requests preserves the number of samples and the sums,
/// for encoded and for decoded requests alike.
pub fn join_profiles(input: &[u8]) {
    let (decisions, material) = input.split_at(input.len().min(16));
    let mut entropy = Entropy(decisions);
    let (a, b) = material.split_at(material.len() / 2);
    let parts: Vec<Bytes> = [a, b]
        .into_iter()
        .map(|material| match entropy.below(4) {
            0 => material.to_vec(),
            how => damaged(
                samples::request(material).encode_to_vec(),
                how - 1,
                &mut entropy,
            ),
        })
        // Only valid requests reach this code.
        .filter(|part| tributary_otlp::validate(Signal::Profiles, part).is_ok())
        .map(Bytes::from)
        .collect();
    for part in &parts {
        let request = decoded(part);
        let observed = samples_of(&request)
            .all(|sample| !(sample.values.is_empty() && sample.timestamps_unix_nano.is_empty()));
        assert_eq!(
            is_readable(part),
            observed && layout::check(part).is_ok()
        );
    }

    let joined = join(&parts, usize::MAX);
    let mut seen: Vec<usize> = joined
        .iter()
        .flat_map(|joined| joined.parts.clone())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..parts.len()).collect::<Vec<_>>(), "each part once");
    for joined in &joined {
        let of = || joined.parts.iter().map(|at| &parts[*at]);
        let items: usize = of().map(|part| tributary_otlp::count(Signal::Profiles, part)).sum();
        assert_eq!(tributary_otlp::count(Signal::Profiles, &joined.request), items);
        if let [at] = joined.parts[..] {
            assert_eq!(joined.request, parts[at], "alone it stays as it is");
            continue;
        }
        structure_is_sound(&joined.request);
        assert_eq!(sums(&decoded(&joined.request)), sums_of(of()));
        let limit = Limit {
            items: 1 + usize::from(entropy.below(10)),
            bytes: usize::MAX,
        };
        let pieces = split(&joined.request, limit);
        assert_eq!(
            pieces.iter().map(|(items, _)| items).sum::<usize>(),
            tributary_otlp::count(Signal::Profiles, &joined.request)
        );
        let pieces: Vec<Bytes> = pieces.into_iter().map(|(_, piece)| piece).collect();
        assert_eq!(sums_of(pieces.iter()), sums_of(of()));
    }

    let mut aggregator = Aggregator::new(SummaryOptions {
        group_by: vec!["service.name".to_owned()],
        exemplars: entropy.below(3).into(),
        max_nodes: entropy.below(20).into(),
        ..SummaryOptions::default()
    });
    let taken: Vec<&Bytes> = parts
        .iter()
        .filter(|part| aggregator.add_encoded(part).is_ok())
        .collect();
    let finished = aggregator.finish();
    let summary = finished.request;
    assert_eq!(tributary_otlp::count(Signal::Profiles, &summary), finished.samples);
    structure_is_sound(&summary);
    if taken.iter().all(|part| is_small(&decoded(part))) {
        assert_eq!(sums(&decoded(&summary)), sums_of(taken.into_iter()));
    }
}

fn decoded(request: &[u8]) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest::decode(request).unwrap()
}

fn samples_of(
    request: &ExportProfilesServiceRequest,
) -> impl Iterator<Item = &opentelemetry_proto::tonic::profiles::v1development::Sample> {
    let resources = request.resource_profiles.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_profiles);
    let profiles = scopes.flat_map(|scope| &scope.profiles);
    profiles.flat_map(|profile| &profile.samples)
}

/// Whether no sum can overflow.
fn is_small(request: &ExportProfilesServiceRequest) -> bool {
    let mut values = samples_of(request).flat_map(|sample| &sample.values);
    values.all(|value| value.unsigned_abs() < 1 << 40)
}

fn sums_of<'r>(
    parts: impl Iterator<Item = &'r Bytes>,
) -> std::collections::BTreeMap<(String, String), i128> {
    let mut all = std::collections::BTreeMap::new();
    for part in parts {
        for (kind, sum) in sums(&decoded(part)) {
            *all.entry(kind).or_insert(0) += sum;
        }
    }
    all.retain(|_, sum| *sum != 0);
    all
}

fn structure_is_sound(request: &[u8]) {
    let report = check(&decoded(request));
    let mut rules = report.counts().keys();
    assert!(
        rules.all(|rule| !rule.is_structural()),
        "{:?}",
        report.findings()
    );
}
