use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest as Request;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValueKind;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use proptest::prelude::*;

use super::*;
use crate::compact::Compactor;
use crate::dictionary::Dictionary;
use crate::fault::DictionaryTable;
use crate::ingest::ingest;
use crate::reindex::CopiedEntries;
use crate::testing;
use crate::testing_requests::named;
use crate::testing_subjects::about;

/// Returns the content hash of each profile, in order.
fn contents(request: &[u8]) -> Result<Vec<u128>, ProfileFault> {
    let (entries, resources) = Entries::of_request(request)?;
    let mut memory = Vec::new();
    let mut identities = Identities::new(&entries, &mut memory);
    let profiles = identities.profiles(&resources, &[])?;
    let all = |profile: &EncodedProfile<'_>| 0..profile.samples.len();
    profiles
        .iter()
        .map(|profile| identities.content(profile, all(profile)))
        .collect()
}

fn deliveries(request: &[u8]) -> Result<(Vec<Option<DeliveryIdentity>>, bool), ProfileFault> {
    let (entries, resources) = Entries::of_request(request)?;
    let mut memory = Vec::new();
    let mut identities = Identities::new(&entries, &mut memory);
    let profiles = identities.profiles(&resources, &[])?;
    let known = profiles.iter().map(|profile| identities.delivery(profile));
    let known = known.collect::<Result<_, _>>()?;
    Ok((known, identities.unknown()))
}

/// Content of each profile as text, computed from decoded tables.
fn texts(request: &[u8]) -> Vec<String> {
    let mut dictionary = Dictionary::new();
    let resources = ingest(
        request,
        &mut dictionary,
        &mut CopiedEntries::default(),
        None,
    )
    .unwrap()
    .resources;
    let mut texts = Vec::new();
    for resource in &resources {
        for scope in &resource.scopes {
            for profile in &scope.profiles {
                let (mut totals, mut observed) = (BTreeMap::new(), Vec::new());
                for sample in profile.samples.iter() {
                    let about = about(&dictionary, sample.key);
                    if sample.timestamps.is_empty() {
                        *totals.entry(about).or_insert(0) += sample.values.iter().sum::<i64>();
                        continue;
                    }
                    for (at, time) in sample.timestamps.iter().enumerate() {
                        let value = sample.values.get(at).copied().unwrap_or(1);
                        observed.push((about.clone(), *time, value));
                    }
                }
                totals.retain(|_, total| *total != 0);
                observed.sort();
                let header = &profile.header;
                let types = [header.sample_type, header.period_type];
                let types = types.map(|of| [of.kind, of.unit].map(|id| dictionary.text(id)));
                let attributes = SampleAttributes(&dictionary, header.attributes).text();
                texts.push(format!(
                    "{:?} {:?} {types:?} {} {} {} {attributes} {totals:?} {observed:?}",
                    resource.resource, scope.scope, header.period, header.time, header.duration,
                ));
            }
        }
    }
    texts
}

/// Attributes formatted as those of a sample without other content.
struct SampleAttributes<'d>(&'d Dictionary, crate::id::AttributeSetId);

impl SampleAttributes<'_> {
    fn text(&self) -> String {
        let key = crate::dictionary::SampleKey {
            attributes: self.1,
            ..Default::default()
        };
        about(self.0, key)
    }
}

/// Returns requests that differ in one decision of the generator and its consequences.
fn alike() -> impl Strategy<Value = (Request, Request)> {
    let bytes = proptest::collection::vec(any::<u8>(), 1..300);
    (bytes, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, other)| {
        let one = testing::request(&bytes);
        let at = at.index(bytes.len());
        bytes[at] = other;
        (one, testing::request(&bytes))
    })
}

proptest! {
    #[test]
    fn content_hashes_are_equal_for_equal_content_only((one, other) in alike()) {
        let mut compactor = Compactor::new();
        compactor.add(&one).unwrap();
        let compact = compactor.finish().encode().to_vec();
        let (mut known, mut said) = (Vec::new(), Vec::new());
        for request in [one.encode_to_vec(), other.encode_to_vec(), compact] {
            known.extend(contents(&request).unwrap());
            said.extend(texts(&request));
        }
        prop_assert_eq!(known.len(), said.len());
        for (hash, text) in known.iter().zip(&said) {
            for (other_hash, other_text) in known.iter().zip(&said) {
                prop_assert_eq!(hash == other_hash, text == other_text, "{}\n{}", text, other_text);
            }
        }
    }

    #[test]
    fn damage_is_detected_like_in_decoding(
        request in crate::testing_requests::requests(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut request = request.encode_to_vec();
        let at = at.index(request.len());
        request[at] ^= 1 << bit;
        let mut dictionary = Dictionary::new();
        let decoded = ingest(&request, &mut dictionary, &mut CopiedEntries::default(), None);
        if let Ok(decoded) = decoded {
            let (known, unknown) = deliveries(&request).unwrap();
            let profiles = decoded.resources.iter().flat_map(|resource| &resource.scopes);
            prop_assert_eq!(known.len(), profiles.map(|scope| scope.profiles.len()).sum::<usize>());
            // A profile with an id is identified by the id, without reading the rest.
            let all_read = known.iter().all(Option::is_some)
                && profile_ids(&request).iter().all(Option::is_none);
            if all_read {
                prop_assert_eq!(unknown, decoded.unknown);
            }
        }
    }
}

fn profile_ids(request: &[u8]) -> Vec<Option<[u8; 16]>> {
    let (entries, resources) = Entries::of_request(request).unwrap();
    let mut memory = Vec::new();
    let mut identities = Identities::new(&entries, &mut memory);
    let profiles = identities.profiles(&resources, &[]).unwrap();
    profiles.iter().map(|profile| profile.profile_id).collect()
}

fn changed(change: impl FnOnce(&mut proto::Profile, &mut proto::ProfilesDictionary)) -> Vec<u8> {
    let mut request = named("a", 5, ["one", "two"]);
    let tables = request.dictionary.as_mut().unwrap();
    change(
        &mut request.resource_profiles[0].scope_profiles[0].profiles[0],
        tables,
    );
    request.encode_to_vec()
}

fn delivery(request: &[u8]) -> Option<DeliveryIdentity> {
    deliveries(request).unwrap().0[0]
}

#[test]
fn delivery_uses_id_or_dated_content() {
    let plain = delivery(&changed(|_, _| {})).unwrap();
    let again = delivery(&changed(|profile, _| profile.samples.reverse())).unwrap();
    assert_eq!(plain, again);
    let given = changed(|profile, _| profile.profile_id = plain.profile_id.to_vec());
    assert_eq!(delivery(&given).unwrap(), plain);
    let of_another_type = changed(|profile, _| {
        profile.profile_id = plain.profile_id.to_vec();
        profile.sample_type = None;
    });
    assert_ne!(delivery(&of_another_type).unwrap().key, plain.key);
    assert_eq!(
        plain.key,
        delivery_key(&plain.profile_id, b"cpu", b"nanoseconds")
    );
    let undated = |profile: &mut proto::Profile| profile.time_unix_nano = 0;
    assert_eq!(delivery(&changed(|profile, _| undated(profile))), None);
    let timed = changed(|profile, _| {
        undated(profile);
        for sample in &mut profile.samples {
            sample.timestamps_unix_nano = vec![5];
        }
    });
    assert!(delivery(&timed).is_some());
    let only_one_timed = changed(|profile, _| {
        undated(profile);
        profile.samples[0].timestamps_unix_nano = vec![5];
    });
    assert_eq!(delivery(&only_one_timed), None);
    let nothing_in_it = changed(|profile, _| {
        undated(profile);
        profile.samples.clear();
    });
    assert_eq!(delivery(&nothing_in_it), None);
    let nothing_observed = |more: bool| {
        changed(|profile, _| {
            undated(profile);
            profile.samples[0].values.clear();
            profile.samples[1].timestamps_unix_nano = vec![5];
            profile.samples.truncate(1 + usize::from(more));
        })
    };
    assert_eq!(delivery(&nothing_observed(false)), None);
    assert!(delivery(&nothing_observed(true)).is_some());
}

#[test]
fn short_stacks_in_any_order_have_different_hashes() {
    // All stacks of up to ten frames of two functions that call each other.
    let mut hashes = std::collections::HashSet::new();
    for depth in 0..=10 {
        for order in 0..1 << depth {
            let stack = (0..depth).map(|frame| 1 + (order >> frame & 1));
            let request = changed(|profile, tables| {
                profile.samples.truncate(1);
                tables.stack_table[1].location_indices = stack.collect();
            });
            assert!(
                hashes.insert(contents(&request).unwrap()),
                "{depth} {order:b}"
            );
        }
    }
}

#[test]
fn merged_and_separate_equal_samples_have_one_hash() {
    let one = contents(&changed(|profile, _| profile.samples[0].values = vec![5])).unwrap();
    let several = contents(&changed(|profile, _| {
        profile.samples[0].values = vec![7];
        let mut more = profile.samples[0].clone();
        more.values = vec![-2];
        profile.samples.push(more);
    }));
    assert_eq!(several.unwrap(), one);
}

#[test]
fn equal_values_have_equal_hashes_in_any_encoding() {
    let with = |value: AnyValueKind, raw: Option<&[u8]>| {
        let request = changed(|profile, tables| {
            tables.string_table.push("key".to_owned());
            let key = tables.string_table.len() as i32 - 1;
            tables.string_table.push("value".to_owned());
            tables.attribute_table.push(proto::KeyValueAndUnit {
                key_strindex: key,
                value: Some(opentelemetry_proto::tonic::common::v1::AnyValue {
                    value: Some(value),
                }),
                unit_strindex: 0,
            });
            profile.attribute_indices = vec![1];
        });
        // The same message with a value in other bytes of the same length.
        let Some(raw) = raw else { return request };
        let mut request = request;
        let at = request
            .windows(raw.len())
            .rposition(|bytes| bytes == [0x0a, 5, b'v', b'a', b'l', b'u', b'e']);
        let at = at.unwrap();
        request[at..at + raw.len()].copy_from_slice(raw);
        request
    };
    let text = |text: &str| AnyValueKind::StringValue(text.to_owned());
    let plain = with(text("value"), None);
    let by_reference = with(AnyValueKind::StringValueStrindex(6), None);
    let known = contents(&plain).unwrap();
    assert_eq!(contents(&by_reference).unwrap(), known);
    assert_ne!(contents(&with(text("other"), None)).unwrap(), known);
    // A length in two bytes instead of one.
    let wordy = with(
        text("value"),
        Some(&[0x0a, 0x84, 0, b'v', b'a', b'l', b'u']),
    );
    let short = with(text("valu"), None);
    assert_eq!(contents(&wordy).unwrap(), contents(&short).unwrap());
    assert!(deliveries(&wordy).unwrap().1 && !deliveries(&short).unwrap().1);
    for number in [0, 1, 127, 128, 300, i64::MAX, -1, i64::MIN] {
        let request = with(AnyValueKind::IntValue(number), None);
        assert!(!deliveries(&request).unwrap().1, "{number}");
    }
}

#[test]
fn dangling_index_is_an_error_in_every_table() {
    let dangling = |request: &[u8], table: DictionaryTable| {
        let fault = contents(request).unwrap_err();
        assert_eq!(fault, ProfileFault::Dangling { table, index: 99 });
    };
    type Change = fn(&mut proto::Profile, &mut proto::ProfilesDictionary);
    let cases: [(DictionaryTable, Change); 8] = [
        (DictionaryTable::Stack, |profile, _| {
            profile.samples[0].stack_index = 99
        }),
        (DictionaryTable::Link, |profile, _| {
            profile.samples[0].link_index = 99
        }),
        (DictionaryTable::Attribute, |profile, _| {
            profile.attribute_indices = vec![99]
        }),
        (DictionaryTable::Location, |_, tables| {
            tables.stack_table[1].location_indices = vec![99]
        }),
        (DictionaryTable::Mapping, |_, tables| {
            tables.location_table[1].mapping_index = 99
        }),
        (DictionaryTable::Function, |_, tables| {
            tables.location_table[1].lines[0].function_index = 99
        }),
        (DictionaryTable::String, |_, tables| {
            tables.function_table[1].filename_strindex = 99
        }),
        (DictionaryTable::String, |profile, _| {
            profile.sample_type.as_mut().unwrap().unit_strindex = 99
        }),
    ];
    for (table, change) in cases {
        dangling(&changed(change), table);
    }
    let unequal = changed(|profile, _| {
        profile.samples[0].values = vec![1, 2];
        profile.samples[0].timestamps_unix_nano = vec![1];
    });
    let (values, timestamps) = (2, 1);
    assert_eq!(
        contents(&unequal),
        Err(ProfileFault::Unequal { values, timestamps })
    );
}

#[test]
fn ignored_resource_attributes_do_not_change_identity() {
    let of = |service: &str, ignored: &[String]| {
        let request = named(service, 5, ["one"]).encode_to_vec();
        let (entries, resources) = Entries::of_request(&request).unwrap();
        let mut memory = Vec::new();
        let mut identities = Identities::new(&entries, &mut memory);
        let profiles = identities.profiles(&resources, ignored).unwrap();
        identities.content(&profiles[0], 0..1).unwrap()
    };
    assert_ne!(of("a", &[]), of("b", &[]));
    let name = ["service.name".to_owned()];
    assert_eq!(of("a", &name), of("b", &name));
}
