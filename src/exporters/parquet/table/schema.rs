//! The columns of each table.

use std::borrow::Cow;
use std::sync::Arc;

use Of::*;
use Shape::*;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

use super::kind::TableKind;
use super::options::{ProfilesLayout, Promoted, TableOptions};

/// Version of the schemas, in the metadata of every file. New columns at the end do not change the
/// version.
pub(super) const VERSION: &str = "2";

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: Cow<'static, str>,
    pub(super) shape: Shape,
    pub(super) of: Of,
}

/// Number of values of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    OneOrNull,
    List,
    /// A map from text to text.
    Map,
    ListOfMaps,
}

/// Type of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Text,
    Bytes,
    Timestamp,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Double,
    Boolean,
    Id16,
    Id8,
}

type Columns = &'static [(&'static str, Shape, Of)];

const LOGS: Columns = &[
    ("timestamp", One, Timestamp),
    ("timestamp_nanos", One, UInt32),
    ("timestamp_is_observed", One, Boolean),
    ("observed_timestamp", OneOrNull, Timestamp),
    ("observed_timestamp_nanos", OneOrNull, UInt32),
    ("service_name", OneOrNull, Text),
    ("severity_number", One, Int32),
    ("severity_text", One, Text),
    ("event_name", One, Text),
    ("body", OneOrNull, Text),
    ("body_type", One, Text),
    ("trace_id", OneOrNull, Id16),
    ("span_id", OneOrNull, Id8),
    ("flags", One, UInt32),
    ("attributes", Map, Text),
    ("attribute_types", One, Text),
    ("dropped_attributes_count", One, UInt32),
];

const TRACES: Columns = &[
    ("timestamp", One, Timestamp),
    ("timestamp_nanos", One, UInt32),
    ("duration_nano", OneOrNull, Int64),
    ("service_name", OneOrNull, Text),
    ("name", One, Text),
    ("kind", One, Text),
    ("status_code", One, Text),
    ("status_message", One, Text),
    ("trace_id", OneOrNull, Id16),
    ("span_id", OneOrNull, Id8),
    ("parent_span_id", OneOrNull, Id8),
    ("trace_state", One, Text),
    ("flags", One, UInt32),
    ("attributes", Map, Text),
    ("attribute_types", One, Text),
    ("dropped_attributes_count", One, UInt32),
    ("event_timestamp", List, Timestamp),
    ("event_timestamp_nanos", List, UInt32),
    ("event_name", List, Text),
    ("event_attributes", ListOfMaps, Text),
    ("event_attribute_types", List, Text),
    ("event_dropped_attributes_count", List, UInt32),
    ("dropped_events_count", One, UInt32),
    ("link_trace_id", List, Bytes),
    ("link_span_id", List, Bytes),
    ("link_trace_state", List, Text),
    ("link_flags", List, UInt32),
    ("link_attributes", ListOfMaps, Text),
    ("link_attribute_types", List, Text),
    ("link_dropped_attributes_count", List, UInt32),
    ("dropped_links_count", One, UInt32),
];

const METRICS: Columns = &[
    ("timestamp", One, Timestamp),
    ("timestamp_nanos", One, UInt32),
    ("start_timestamp", OneOrNull, Timestamp),
    ("start_timestamp_nanos", OneOrNull, UInt32),
    ("service_name", OneOrNull, Text),
    ("metric_name", One, Text),
    ("metric_type", One, Text),
    ("unit", One, Text),
    ("description", One, Text),
    ("aggregation_temporality", OneOrNull, Text),
    ("is_monotonic", OneOrNull, Boolean),
    ("value", OneOrNull, Double),
    ("value_int", OneOrNull, Int64),
    ("count", OneOrNull, UInt64),
    ("sum", OneOrNull, Double),
    ("min", OneOrNull, Double),
    ("max", OneOrNull, Double),
    ("bucket_counts", List, UInt64),
    ("explicit_bounds", List, Double),
    ("scale", OneOrNull, Int32),
    ("zero_count", OneOrNull, UInt64),
    ("zero_threshold", OneOrNull, Double),
    ("positive_offset", OneOrNull, Int32),
    ("positive_bucket_counts", List, UInt64),
    ("negative_offset", OneOrNull, Int32),
    ("negative_bucket_counts", List, UInt64),
    ("quantile", List, Double),
    ("quantile_value", List, Double),
    ("flags", One, UInt32),
    ("attributes", Map, Text),
    ("attribute_types", One, Text),
    ("exemplar_timestamp", List, Timestamp),
    ("exemplar_timestamp_nanos", List, UInt32),
    ("exemplar_value", List, Double),
    ("exemplar_value_int", List, Int64),
    ("exemplar_value_type", List, Text),
    ("exemplar_trace_id", List, Bytes),
    ("exemplar_span_id", List, Bytes),
    ("exemplar_attributes", ListOfMaps, Text),
    ("exemplar_attribute_types", List, Text),
    ("metric_metadata", Map, Text),
    ("metric_metadata_types", One, Text),
];

const PROFILES: Columns = &[
    ("timestamp", One, Timestamp),
    ("timestamp_nanos", One, UInt32),
    ("duration_nano", One, Int64),
    ("service_name", OneOrNull, Text),
    ("sample_type", One, Text),
    ("sample_unit", One, Text),
    ("period_type", One, Text),
    ("period_unit", One, Text),
    ("period", One, Int64),
    ("value", One, Int64),
    ("sample_count", One, Int64),
    ("observation_timestamps", List, Timestamp),
    ("observation_nanos", List, UInt32),
    ("observation_values", List, Int64),
    ("profile_id", OneOrNull, Id16),
    ("trace_id", OneOrNull, Id16),
    ("span_id", OneOrNull, Id8),
    ("attributes", Map, Text),
    ("attribute_types", One, Text),
    ("profile_attributes", Map, Text),
    ("profile_attribute_types", One, Text),
    ("dropped_attributes_count", One, UInt32),
    ("original_payload_format", One, Text),
    ("original_payload", OneOrNull, Bytes),
    ("stack_hash", One, UInt64),
];

const FRAMES: Columns = &[
    ("frame_function", List, Text),
    ("frame_system_name", List, Text),
    ("frame_file", List, Text),
    ("frame_line", List, Int64),
    ("frame_column", List, Int64),
    ("frame_start_line", List, Int64),
    ("frame_inlined", List, Boolean),
    ("frame_address", List, UInt64),
    ("frame_type", List, Text),
    ("frame_mapping", List, Text),
    ("frame_build_id", List, Text),
    ("frame_mapping_details", List, Text),
    ("frame_attributes", List, Text),
];

const STACKS: Columns = &[
    ("timestamp", One, Timestamp),
    ("timestamp_nanos", One, UInt32),
    ("stack_hash", One, UInt64),
    ("leaf_function", OneOrNull, Text),
    ("frame", List, Text),
];

/// Columns of the rows' origin, in all tables except the table of stacks.
const CONTEXT: Columns = &[
    ("scope_name", One, Text),
    ("scope_version", One, Text),
    ("scope_attributes", Map, Text),
    ("scope_attribute_types", One, Text),
    ("scope_dropped_attributes_count", One, UInt32),
    ("scope_schema_url", One, Text),
    ("resource_attributes", Map, Text),
    ("resource_attribute_types", One, Text),
    ("resource_dropped_attributes_count", One, UInt32),
    ("resource_schema_url", One, Text),
    ("resource_entities", OneOrNull, Text),
];

/// Returns the columns of a table, in order.
pub(super) fn columns(kind: TableKind, options: &TableOptions) -> Vec<Column> {
    let wide = options.profiles == ProfilesLayout::Wide;
    let parts: &[Columns] = match kind {
        TableKind::Logs => &[LOGS, CONTEXT],
        TableKind::Traces => &[TRACES, CONTEXT],
        TableKind::Metrics => &[METRICS, CONTEXT],
        TableKind::Profiles if wide => &[PROFILES, FRAMES, CONTEXT],
        TableKind::Profiles => &[PROFILES, CONTEXT],
        TableKind::Stacks => return parts_of(&[STACKS]).collect(),
    };
    let promoted = options.promoted.iter().map(|promoted| Column {
        name: promoted.column().into(),
        shape: OneOrNull,
        of: Text,
    });
    parts_of(parts).chain(promoted).collect()
}

/// Returns the columns by which the rows of a row group are sorted, as leaf indices. Rows without a
/// value come last.
pub(super) fn sorted_by(kind: TableKind, columns: &[Column]) -> Vec<usize> {
    let names: &[&str] = match kind {
        TableKind::Logs | TableKind::Traces => &["service_name", "timestamp"],
        TableKind::Metrics => &["service_name", "metric_name", "timestamp"],
        TableKind::Profiles => &["service_name", "sample_type", "timestamp"],
        TableKind::Stacks => &[],
    };
    let leaf = |name: &&str| {
        let at = columns.iter().position(|column| column.name == **name)?;
        Some(columns.iter().take(at).map(Column::leaves).sum())
    };
    names.iter().filter_map(leaf).collect()
}

impl Promoted {
    /// Whether every row already has a column of that name.
    pub fn is_taken(&self) -> bool {
        is_fixed(&self.column())
    }
}

/// Whether a table has a column of that name, regardless of promoted attributes.
fn is_fixed(name: &str) -> bool {
    let all = [LOGS, TRACES, METRICS, PROFILES, FRAMES, CONTEXT];
    all.iter()
        .any(|part| part.iter().any(|(of, ..)| *of == name))
}

fn parts_of(parts: &[Columns]) -> impl Iterator<Item = Column> {
    parts
        .iter()
        .flat_map(|part| part.iter())
        .map(|(name, shape, of)| Column {
            name: (*name).into(),
            shape: *shape,
            of: *of,
        })
}

pub(super) fn file_schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields: Result<Vec<TypePtr>, _> = columns.iter().map(Column::field).collect();
    let root = Type::group_type_builder("tributary").with_fields(fields?);
    Ok(Arc::new(root.build()?))
}

impl Column {
    /// Returns the number of leaf columns.
    fn leaves(&self) -> usize {
        match self.shape {
            One | OneOrNull | List => 1,
            Map | ListOfMaps => 2,
        }
    }

    fn field(&self) -> Result<TypePtr, ParquetError> {
        let name = &*self.name;
        match self.shape {
            One => self.of.leaf(name, Repetition::REQUIRED),
            OneOrNull => self.of.leaf(name, Repetition::OPTIONAL),
            List => list(name, self.of.leaf("element", Repetition::REQUIRED)?),
            Map => map(name),
            ListOfMaps => list(name, map("element")?),
        }
    }
}

impl Of {
    fn leaf(self, name: &str, repetition: Repetition) -> Result<TypePtr, ParquetError> {
        let (physical, logical, length) = match self {
            Text => (Physical::BYTE_ARRAY, Some(LogicalType::String), -1),
            Bytes => (Physical::BYTE_ARRAY, None, -1),
            Timestamp => {
                // Spark does not support nanoseconds.
                let microseconds = LogicalType::timestamp(true, TimeUnit::MICROS);
                (Physical::INT64, Some(microseconds), -1)
            }
            Int32 => (Physical::INT32, None, -1),
            UInt32 => (Physical::INT32, Some(LogicalType::integer(32, false)), -1),
            Int64 => (Physical::INT64, None, -1),
            UInt64 => (Physical::INT64, Some(LogicalType::integer(64, false)), -1),
            Double => (Physical::DOUBLE, None, -1),
            Boolean => (Physical::BOOLEAN, None, -1),
            Id16 => (Physical::FIXED_LEN_BYTE_ARRAY, None, 16),
            Id8 => (Physical::FIXED_LEN_BYTE_ARRAY, None, 8),
        };
        let leaf = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_length(length);
        Ok(Arc::new(leaf.build()?))
    }
}

fn list(name: &str, element: TypePtr) -> Result<TypePtr, ParquetError> {
    let entries = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    annotated(name, LogicalType::List, entries)
}

fn map(name: &str) -> Result<TypePtr, ParquetError> {
    let entries = Type::group_type_builder("key_value")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![
            Text.leaf("key", Repetition::REQUIRED)?,
            Text.leaf("value", Repetition::REQUIRED)?,
        ])
        .build()?;
    annotated(name, LogicalType::Map, entries)
}

fn annotated(name: &str, logical: LogicalType, of: Type) -> Result<TypePtr, ParquetError> {
    let group = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(logical))
        .with_fields(vec![Arc::new(of)]);
    Ok(Arc::new(group.build()?))
}
