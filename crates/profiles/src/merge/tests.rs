use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};

use super::*;
use crate::id::StackId;
use crate::names;

/// Returns a profile over the merger's dictionary.
fn resources(header: Header, samples: &[(StackId, i64)]) -> Vec<ResourceProfiles> {
    let mut profile = Profile {
        header,
        samples: Samples::default(),
    };
    for (stack, value) in samples {
        let key = SampleKey {
            stack: *stack,
            ..SampleKey::default()
        };
        profile.samples.push(key, &[*value], &[]);
    }
    vec![ResourceProfiles {
        scopes: vec![ScopeProfiles {
            profiles: vec![profile],
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }]
}

fn header(time: u64, duration: u64, period: i64) -> Header {
    Header {
        time,
        duration,
        period,
        profile_id: Some([1; 16]),
        original: Some(("pprof".to_owned(), vec![1])),
        ..Header::default()
    }
}

fn only(profiles: &Profiles) -> &Profile {
    let all: Vec<_> = profiles.iter().collect();
    assert_eq!(all.len(), 1);
    all[0]
}

#[test]
fn equal_samples_are_added_and_zero_sums_dropped() {
    let mut merger = Merger::new(MergeOptions::default());
    let (dictionary, _) = merger.dictionary();
    let [a, b, c] = [1, 2, 3].map(|address| {
        let location = dictionary.location(crate::dictionary::Location {
            address,
            ..Default::default()
        });
        dictionary.stack(&[location])
    });
    merger.add_profiles(&resources(header(5, 1, 1), &[(a, 1), (b, 2), (a, 3)]));
    merger.add_profiles(&resources(header(5, 1, 1), &[(b, -2), (c, 7)]));
    let expected = MergeCounts {
        profiles: 2,
        samples: 5,
        saturated: 0,
    };
    assert_eq!(merger.counts(), expected);
    let merged = merger.finish();
    let samples = only(&merged).samples.iter();
    let totals: Vec<_> = samples.map(|s| (s.key.stack, s.total().0)).collect();
    assert_eq!(totals, [(a, 4), (c, 7)]);
}

#[test]
fn merged_header_spans_all_and_has_no_id() {
    let merged = |duration| {
        let mut merger = Merger::new(MergeOptions {
            duration,
            ..MergeOptions::default()
        });
        for header in [header(0, 7, 1), header(200, 30, 3), header(100, 50, 2)] {
            merger.add_profiles(&resources(header, &[]));
        }
        only(&merger.finish()).header.clone()
    };
    let sum = merged(DurationRule::Sum);
    assert_eq!((sum.time, sum.duration, sum.period), (100, 87, 3));
    assert_eq!((sum.profile_id, sum.original), (None, None));
    assert_eq!(merged(DurationRule::Span).duration, 130);
}

#[test]
fn periods_stay_apart_on_request() {
    let mut merger = Merger::new(MergeOptions {
        separate_periods: true,
        ..MergeOptions::default()
    });
    for period in [1, 2, 1] {
        merger.add_profiles(&resources(header(1, 1, period), &[]));
    }
    assert_eq!(merger.finish().iter().count(), 2);
}

#[test]
fn many_kinds_of_few_samples_take_little_memory() {
    const KINDS: i64 = 3000;
    let mut merger = Merger::new(MergeOptions {
        separate_periods: true,
        ..MergeOptions::default()
    });
    for period in 0..KINDS {
        let (dictionary, _) = merger.dictionary();
        let location = dictionary.location(crate::dictionary::Location {
            address: period.unsigned_abs(),
            ..Default::default()
        });
        let stack = dictionary.stack(&[location]);
        merger.add_profiles(&resources(header(1, 1, period), &[(stack, 1)]));
    }
    // Storing all samples in all kinds would take 36 MB.
    assert!(merger.bytes() < 4 << 20, "{}", merger.bytes());
    let merged = merger.finish();
    assert_eq!(merged.iter().count(), KINDS as usize);
    assert_eq!(merged.samples(), KINDS as usize);
}

#[test]
fn overflowing_sums_saturate_and_are_counted() {
    let mut merger = Merger::new(MergeOptions::default());
    let stack = StackId::default();
    merger.add_profiles(&resources(header(1, u64::MAX, 1), &[(stack, i64::MAX - 1)]));
    merger.add_profiles(&resources(header(1, 1, 1), &[(stack, 5)]));
    assert_eq!(merger.counts().saturated, 2, "a sum and a duration");
    let merged = merger.finish();
    let sample = only(&merged).samples.iter().next();
    assert_eq!(sample.map(|sample| sample.total().0), Some(i64::MAX));
    assert_eq!(only(&merged).header.duration, u64::MAX);
}

#[test]
fn merge_keeps_all_comments_and_first_other_attributes() {
    let mut merger = Merger::new(MergeOptions::default());
    let list = |words: &[&str]| AnyValue {
        value: Some(Value::ArrayValue(ArrayValue {
            values: words
                .iter()
                .map(|word| AnyValue {
                    value: Some(Value::StringValue((*word).to_owned())),
                })
                .collect(),
        })),
    };
    for (comments, url) in [(&["a", "b"][..], "first"), (&["b", "c"], "second")] {
        let (dictionary, _) = merger.dictionary();
        let comments = dictionary.any_attribute(names::COMMENT, &list(comments));
        let url = dictionary.string_attribute(names::DOC_URL, url);
        let attributes = dictionary.attribute_set(&[comments, url]);
        let header = Header {
            attributes,
            ..header(1, 1, 1)
        };
        merger.add_profiles(&resources(header, &[]));
    }
    let merged = merger.finish();
    let attributes = only(&merged).header.attributes;
    let value = |key| {
        let found = merged.dictionary.find(attributes, key).unwrap();
        merged.dictionary.any_value(found.value)
    };
    assert_eq!(value(names::COMMENT), list(&["a", "b", "c"]));
    let first = Value::StringValue("first".to_owned());
    assert_eq!(value(names::DOC_URL).value, Some(first));
}
