//! Tests of shared data, which a small request may multiply over its rows.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;

use super::super::copies::{MOST_COPIED, MOST_COPIED_PER_BYTE};
use super::super::expansion::{MOST_ENTRIES, MOST_ENTRIES_PER_BYTE};
use super::*;

/// A sink that fails the test if it is asked for memory.
struct Nothing;

impl Sink for Nothing {
    fn table(&mut self, kind: TableKind, _: &Partition) -> Option<&mut Table> {
        panic!("rows of {kind:?}");
    }
}

fn attributes(count: usize) -> Vec<KeyValue> {
    (0..count).map(|at| text(&format!("{at:x}"), "")).collect()
}

fn refusal(signal: Signal, profiles: ProfilesLayout, request: &impl prost::Message) -> String {
    let layout = Layout::new(&TableOptions {
        profiles,
        ..TableOptions::default()
    });
    let request = request.encode_to_vec();
    assert!(request.len() < 1 << 20, "{}", request.len());
    let error = append(signal, &request, &layout, false, &Unbounded, &mut Nothing).unwrap_err();
    assert!(matches!(error, RowError::TooMuch(_)), "{error}");
    error.to_string()
}

fn records(count: usize) -> Vec<LogRecord> {
    vec![LogRecord::default(); count]
}

#[test]
fn excess_shared_attributes_are_refused_before_rows() {
    let mut request = logs("a", records(10_000));
    request.resource_logs[0]
        .resource
        .as_mut()
        .unwrap()
        .attributes = attributes(10_000);
    let error = refusal(Signal::Logs, ProfilesLayout::Wide, &request);
    let most = MOST_ENTRIES + MOST_ENTRIES_PER_BYTE * request.encoded_len() as u64;
    assert!(error.contains("100000000 attributes and frames"), "{error}");
    assert!(
        error.contains(&format!("more than the {most} allowed")),
        "{error}"
    );

    let scope = InstrumentationScope {
        attributes: attributes(10_000),
        ..InstrumentationScope::default()
    };
    let mut request = logs("a", records(10_000));
    request.resource_logs[0].scope_logs[0].scope = Some(scope);
    refusal(Signal::Logs, ProfilesLayout::Wide, &request);

    let metric = metrics_proto::Metric {
        metadata: attributes(10_000),
        data: Some(metrics_proto::metric::Data::Gauge(metrics_proto::Gauge {
            data_points: vec![metrics_proto::NumberDataPoint::default(); 10_000],
        })),
        ..metrics_proto::Metric::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![metrics_proto::ResourceMetrics {
            scope_metrics: vec![metrics_proto::ScopeMetrics {
                metrics: vec![metric],
                ..metrics_proto::ScopeMetrics::default()
            }],
            ..metrics_proto::ResourceMetrics::default()
        }],
    };
    refusal(Signal::Metrics, ProfilesLayout::Wide, &request);
}

/// Samples of one profile, which all have the stack with these locations, and attributes of the profile.
fn profiles(
    samples: usize,
    locations: usize,
    mut dictionary: profiles_proto::ProfilesDictionary,
    attribute_indices: Vec<i32>,
) -> ExportProfilesServiceRequest {
    let stack = profiles_proto::Stack {
        location_indices: vec![1; locations],
    };
    dictionary.stack_table = vec![profiles_proto::Stack::default(), stack];
    let sample = profiles_proto::Sample {
        stack_index: 1,
        values: vec![1],
        ..profiles_proto::Sample::default()
    };
    let profile = profiles_proto::Profile {
        samples: vec![sample; samples],
        attribute_indices,
        ..profiles_proto::Profile::default()
    };
    ExportProfilesServiceRequest {
        dictionary: Some(dictionary),
        resource_profiles: vec![profiles_proto::ResourceProfiles {
            scope_profiles: vec![profiles_proto::ScopeProfiles {
                profiles: vec![profile],
                ..profiles_proto::ScopeProfiles::default()
            }],
            ..profiles_proto::ResourceProfiles::default()
        }],
    }
}

/// A location with that many lines, of a function with a name of `name` bytes, in a mapping with an attribute of
/// `attribute` bytes.
fn dictionary(lines: usize, name: usize, attribute: usize) -> profiles_proto::ProfilesDictionary {
    let line = profiles_proto::Line {
        function_index: 1,
        ..profiles_proto::Line::default()
    };
    let location = profiles_proto::Location {
        mapping_index: 1,
        lines: vec![line; lines],
        ..profiles_proto::Location::default()
    };
    profiles_proto::ProfilesDictionary {
        string_table: vec![String::new(), "n".repeat(name), "k".to_owned()],
        function_table: vec![
            profiles_proto::Function::default(),
            profiles_proto::Function {
                name_strindex: 1,
                ..profiles_proto::Function::default()
            },
        ],
        location_table: vec![profiles_proto::Location::default(), location],
        mapping_table: vec![
            profiles_proto::Mapping::default(),
            profiles_proto::Mapping {
                attribute_indices: vec![1],
                ..profiles_proto::Mapping::default()
            },
        ],
        attribute_table: vec![
            profiles_proto::KeyValueAndUnit::default(),
            profiles_proto::KeyValueAndUnit {
                key_strindex: 2,
                value: Some(any(Value::StringValue("v".repeat(attribute)))),
                ..profiles_proto::KeyValueAndUnit::default()
            },
        ],
        ..profiles_proto::ProfilesDictionary::default()
    }
}

#[test]
fn excess_shared_frames_are_refused_before_rows() {
    for layout in [ProfilesLayout::Wide, ProfilesLayout::Stacks] {
        for (what, request) in [
            (
                "deep stacks",
                profiles(50_000, 2000, dictionary(1, 1, 1), Vec::new()),
            ),
            (
                "stacks of deep locations",
                profiles(1, 20_000, dictionary(5000, 1, 1), Vec::new()),
            ),
            (
                "attributes of profiles",
                profiles(20_000, 1, dictionary(1, 1, 1), vec![1; 5000]),
            ),
            (
                "names in many lines",
                profiles(1, 1, dictionary(10_000, 100_000, 1), Vec::new()),
            ),
        ] {
            let deep_samples = what == "deep stacks" && layout == ProfilesLayout::Stacks;
            if !deep_samples {
                let error = refusal(Signal::Profiles, layout, &request);
                assert_eq!(
                    error.contains("bytes of names"),
                    what.contains("names"),
                    "{error}"
                );
            }
        }
    }
    // The string that only the frames in the table of stacks contain.
    let request = profiles(1, 1, dictionary(10_000, 1, 100_000), Vec::new());
    refusal(Signal::Profiles, ProfilesLayout::Stacks, &request);
    let mut tables = Tables::new(&TableOptions::default());
    tables.append(Signal::Profiles, &request);
    assert_eq!(tables.tables.values().next().unwrap().entries(), 10_000);
}

#[test]
fn shared_deep_stack_is_stored_once_in_stack_table() {
    let request = profiles(50_000, 2000, dictionary(1, 1, 1), Vec::new());
    let mut tables = Tables::new(&TableOptions {
        profiles: ProfilesLayout::Stacks,
        ..TableOptions::default()
    });
    tables.append(Signal::Profiles, &request);
    let entries = tables.tables.values().map(Table::entries);
    assert_eq!(entries.sum::<usize>(), 0);
}

#[test]
fn row_group_ends_at_entry_limit() {
    let mut request = logs("a", records(1000));
    request.resource_logs[0]
        .resource
        .as_mut()
        .unwrap()
        .attributes = attributes(20_000);
    let mut tables = Tables::new(&TableOptions::default());
    tables.append(Signal::Logs, &request);
    assert_eq!(tables.tables.values().next().unwrap().entries(), 20_000_000);
    let file = tables.file(TableKind::Logs);
    let reader = SerializedFileReader::new(file).unwrap();
    let groups = reader.metadata().row_groups().iter();
    let rows: Vec<i64> = groups.map(|group| group.num_rows()).collect();
    let full = (GROUP_ENTRIES / 20_000) as i64;
    assert_eq!(rows, [full, full, 1000 - 2 * full]);
}

#[test]
fn shared_resource_data_is_held_once() {
    let mut request = logs("a", Vec::new());
    let resource = &mut request.resource_logs[0];
    let large = text("large", &"x".repeat(100_000));
    resource.resource.as_mut().unwrap().attributes.push(large);
    resource.scope_logs = (0..1000)
        .map(|at| ScopeLogs {
            scope: Some(InstrumentationScope {
                name: at.to_string(),
                ..InstrumentationScope::default()
            }),
            log_records: records(1),
            ..ScopeLogs::default()
        })
        .collect();
    let mut tables = Tables::new(&TableOptions::default());
    tables.append(Signal::Logs, &request);
    let table = tables.tables.values().next().unwrap();
    assert_eq!(table.rows(), 1000);
    assert!(table.memory() < 1_000_000, "{}", table.memory());
    let rows = tables.rows(TableKind::Logs);
    assert_eq!(rows[999]["scope_name"], "\"999\"");
}

/// Returns records of the hours 0, 1 and so on up to `hours`, repeatedly, with a resource of 100000 bytes.
fn over_hours(records: usize, hours: usize) -> ExportLogsServiceRequest {
    const HOUR: u64 = 3_600_000_000_000;
    let record = |at: usize| LogRecord {
        time_unix_nano: (at % hours) as u64 * HOUR,
        ..LogRecord::default()
    };
    let mut request = logs("a", (0..records).map(record).collect());
    let resource = request.resource_logs[0].resource.as_mut().unwrap();
    resource.attributes = vec![text("large", &"x".repeat(100_000))];
    request
}

#[test]
fn resource_shared_by_too_many_hours_is_refused() {
    let request = over_hours(5000, 5000);
    let error = refusal(Signal::Logs, ProfilesLayout::Wide, &request);
    let length = request.encoded_len() as u64;
    let most = MOST_COPIED + MOST_COPIED_PER_BYTE * length;
    // The named scope counts, too.
    assert!(
        error.contains(" 5001") || error.contains(" 5000"),
        "{error}"
    );
    assert!(
        error.contains(&format!("more than the {most} allowed")),
        "{error}"
    );
}

/// Counts opened tables, with a maximum number of open tables.
struct Few {
    most: usize,
    begun: usize,
}

impl Sink for Few {
    fn tables(&self) -> usize {
        self.most
    }

    fn table(&mut self, _: TableKind, _: &Partition) -> Option<&mut Table> {
        self.begun += 1;
        None
    }
}

#[test]
fn repeated_hours_count_again_after_their_table_ended() {
    let request = over_hours(5000, 3).encode_to_vec();
    let layout = Layout::new(&TableOptions::default());
    let append = |most: usize| {
        let mut few = Few { most, begun: 0 };
        append(Signal::Logs, &request, &layout, false, &Unbounded, &mut few).map(|()| few.begun)
    };
    assert_eq!(append(3).unwrap(), 5000);
    assert!(matches!(append(2), Err(RowError::TooMuch(_))));
}
