//! The profile of one sample type in the making.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use tributary_profiles::dictionary::{SampleKey, ValueType};
use tributary_profiles::id::SampleId;
use tributary_profiles::model::{Header, Profile, Samples, ScopeProfiles};
use tributary_profiles::names;
use tributary_profiles::table::Records;

/// The totals of one sample type.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) header: Header,
    pub(crate) keys: Records<SampleId, SampleKey>,
    pub(crate) totals: Vec<i64>,
}

impl Column {
    pub(crate) fn new(sample_type: ValueType) -> Self {
        Column {
            header: Header {
                sample_type,
                period_type: sample_type,
                period: 1,
                ..Header::default()
            },
            keys: Records::without_zero(),
            totals: Vec::new(),
        }
    }

    /// Returns the memory of the totals, and of the samples that they become, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.bytes() + self.totals.capacity() * (size_of::<i64>() + Samples::BYTES)
    }
}

/// Returns a scope with a profile for each column. A column without values has a single sample of 0.
pub(crate) fn scope(columns: Vec<Column>, time: u64, duration: u64) -> ScopeProfiles {
    let first = columns
        .iter()
        .flat_map(|column| column.keys.entries())
        .next()
        .copied();
    let mut profiles = Vec::new();
    for column in columns {
        let mut samples = Samples::default();
        samples.reserve(column.totals.len());
        for (key, total) in column.keys.entries().iter().zip(&column.totals) {
            samples.push(*key, &[*total], &[]);
        }
        // An empty profile looks like a failure, and some readers refuse it.
        if let (true, Some(key)) = (samples.is_empty(), first) {
            samples.push(key, &[0], &[]);
        }
        profiles.push(Profile {
            header: Header {
                time,
                duration,
                ..column.header
            },
            samples,
        });
    }
    let order = (0..).take(profiles.len()).map(|at| any(Any::IntValue(at)));
    let order = ArrayValue {
        values: order.collect(),
    };
    ScopeProfiles {
        scope: Some(InstrumentationScope {
            attributes: vec![KeyValue {
                key: names::SAMPLE_TYPE_ORDER.to_owned(),
                value: Some(any(Any::ArrayValue(order))),
                key_strindex: 0,
            }],
            ..InstrumentationScope::default()
        }),
        schema_url: String::new(),
        profiles,
    }
}

pub(crate) fn any(value: Any) -> AnyValue {
    AnyValue { value: Some(value) }
}
