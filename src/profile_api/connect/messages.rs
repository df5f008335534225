//! Messages of Pyroscope's query API, with the field numbers and JSON names of its public proto files.
//!
//! Names are those of the proto files. In JSON, 64-bit integers are texts, and are accepted as numbers, too.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::json::{int64, int64s, optional_int64, words};

/// Formats of a merged profile; a flame graph is the default.
pub(super) const FORMAT_TREE: i32 = 2;
/// Aggregation of a series by its mean; the sum is the default.
pub(super) const AGGREGATION_AVERAGE: i32 = 1;

const FORMATS: [&str; 3] = [
    "PROFILE_FORMAT_UNSPECIFIED",
    "PROFILE_FORMAT_FLAMEGRAPH",
    "PROFILE_FORMAT_TREE",
];
const AGGREGATIONS: [&str; 2] = [
    "TIME_SERIES_AGGREGATION_TYPE_SUM",
    "TIME_SERIES_AGGREGATION_TYPE_AVERAGE",
];

words!(formats, FORMATS);
words!(aggregations, AGGREGATIONS);

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ProfileTypesRequest {
    #[prost(int64, tag = "1")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub(super) end: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ProfileTypesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) profile_types: Vec<ProfileType>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ProfileType {
    #[prost(string, tag = "1")]
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) sample_type: String,
    #[prost(string, tag = "5")]
    pub(super) sample_unit: String,
    #[prost(string, tag = "6")]
    pub(super) period_type: String,
    #[prost(string, tag = "7")]
    pub(super) period_unit: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelValuesRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) matchers: Vec<String>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) end: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelNamesRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) matchers: Vec<String>,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) end: i64,
}

/// The response to both label requests.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NamesResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SeriesRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) matchers: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(alias = "label_names")]
    pub(super) label_names: Vec<String>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) end: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SeriesResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) labels_set: Vec<LabelSet>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MergeStacktracesRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub(super) label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) end: i64,
    #[prost(int64, optional, tag = "5")]
    #[serde(with = "optional_int64", alias = "max_nodes")]
    pub(super) max_nodes: Option<i64>,
    #[prost(int32, tag = "6")]
    #[serde(with = "formats")]
    pub(super) format: i32,
    #[prost(message, optional, tag = "7")]
    #[serde(alias = "stack_trace_selector")]
    pub(super) stack_trace_selector: Option<StackTraceSelector>,
    #[prost(string, repeated, tag = "8")]
    #[serde(alias = "profile_id_selector")]
    pub(super) profile_id_selector: Vec<String>,
}

/// A request of the merged stacks of some spans.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MergeSpanProfileRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub(super) label_selector: String,
    /// Ids of the spans, each of 16 hexadecimal digits.
    #[prost(string, repeated, tag = "3")]
    #[serde(alias = "span_selector")]
    pub(super) span_selector: Vec<String>,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "int64")]
    pub(super) end: i64,
    #[prost(int64, optional, tag = "6")]
    #[serde(with = "optional_int64", alias = "max_nodes")]
    pub(super) max_nodes: Option<i64>,
    #[prost(int32, tag = "7")]
    #[serde(with = "formats")]
    pub(super) format: i32,
}

/// Selection of stacks. The store does not support it, so a selection is only detected to refuse it.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StackTraceSelector {
    #[prost(message, repeated, tag = "1")]
    #[serde(alias = "call_site")]
    pub(super) call_site: Vec<CallSite>,
    #[prost(message, optional, tag = "2")]
    #[serde(alias = "go_pgo")]
    pub(super) go_pgo: Option<GoPgo>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CallSite {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GoPgo {
    #[prost(uint32, tag = "1")]
    #[serde(alias = "keep_locations")]
    pub(super) keep_locations: u32,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MergeStacktracesResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) flamegraph: Option<FlameGraph>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FlameGraph {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) total: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) max_self: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Level {
    #[prost(int64, repeated, tag = "1")]
    #[serde(with = "int64s")]
    pub(super) values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DiffRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) left: Option<MergeStacktracesRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) right: Option<MergeStacktracesRequest>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DiffResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) flamegraph: Option<FlameGraphDiff>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FlameGraphDiff {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) total: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) max_self: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "int64")]
    pub(super) left_ticks: i64,
    #[prost(int64, tag = "6")]
    #[serde(with = "int64")]
    pub(super) right_ticks: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MergeProfileRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub(super) label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) end: i64,
    #[prost(message, optional, tag = "6")]
    #[serde(alias = "stack_trace_selector")]
    pub(super) stack_trace_selector: Option<StackTraceSelector>,
    #[prost(string, repeated, tag = "7")]
    #[serde(alias = "profile_id_selector")]
    pub(super) profile_id_selector: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectSeriesRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub(super) label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub(super) end: i64,
    #[prost(string, repeated, tag = "5")]
    #[serde(alias = "group_by")]
    pub(super) group_by: Vec<String>,
    /// Seconds.
    #[prost(double, tag = "6")]
    pub(super) step: f64,
    #[prost(int32, tag = "7")]
    #[serde(with = "aggregations")]
    pub(super) aggregation: i32,
    #[prost(message, optional, tag = "8")]
    #[serde(alias = "stack_trace_selector")]
    pub(super) stack_trace_selector: Option<StackTraceSelector>,
    #[prost(int64, optional, tag = "9")]
    #[serde(with = "optional_int64")]
    pub(super) limit: Option<i64>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectSeriesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<SeriesPoints>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SeriesPoints {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub(super) points: Vec<SeriesPoint>,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SeriesPoint {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub(super) timestamp: i64,
}

/// The request for the extent of the store, without content.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ProfileStatsRequest {}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ProfileStatsResponse {
    #[prost(bool, tag = "1")]
    pub(super) data_ingested: bool,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub(super) oldest_profile_time: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub(super) newest_profile_time: i64,
}
