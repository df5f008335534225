//! The messages of pprof's proto file, for their JSON form.

use prost::Message;
use serde::Serialize;

use super::json::{int64, int64s};

/// A profile, as in `proto/profile.proto` of github.com/google/pprof.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PprofMessage {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueTypeMessage>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<SampleMessage>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<MappingMessage>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<LocationMessage>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<FunctionMessage>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    #[serde(with = "int64")]
    drop_frames: i64,
    #[prost(int64, tag = "8")]
    #[serde(with = "int64")]
    keep_frames: i64,
    #[prost(int64, tag = "9")]
    #[serde(with = "int64")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    #[serde(with = "int64")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    period_type: Option<ValueTypeMessage>,
    #[prost(int64, tag = "12")]
    #[serde(with = "int64")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    #[serde(with = "int64s")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    #[serde(with = "int64")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ValueTypeMessage {
    #[prost(int64, tag = "1")]
    #[serde(rename = "type", with = "int64")]
    kind: i64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleMessage {
    #[prost(uint64, repeated, tag = "1")]
    #[serde(serialize_with = "uint64s")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    #[serde(with = "int64s")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<LabelMessage>,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct LabelMessage {
    #[prost(int64, tag = "1")]
    #[serde(with = "int64")]
    key: i64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    str: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    num: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    num_unit: i64,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct MappingMessage {
    #[prost(uint64, tag = "1")]
    #[serde(serialize_with = "uint64")]
    id: u64,
    #[prost(uint64, tag = "2")]
    #[serde(serialize_with = "uint64")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    #[serde(serialize_with = "uint64")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    #[serde(serialize_with = "uint64")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    #[serde(with = "int64")]
    filename: i64,
    #[prost(int64, tag = "6")]
    #[serde(with = "int64")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct LocationMessage {
    #[prost(uint64, tag = "1")]
    #[serde(serialize_with = "uint64")]
    id: u64,
    #[prost(uint64, tag = "2")]
    #[serde(serialize_with = "uint64")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    #[serde(serialize_with = "uint64")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<LineMessage>,
    #[prost(bool, tag = "5")]
    is_folded: bool,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct LineMessage {
    #[prost(uint64, tag = "1")]
    #[serde(serialize_with = "uint64")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    line: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    column: i64,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionMessage {
    #[prost(uint64, tag = "1")]
    #[serde(serialize_with = "uint64")]
    id: u64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    name: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    filename: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "int64")]
    start_line: i64,
}

fn uint64<S: serde::Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn uint64s<S: serde::Serializer>(values: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(u64::to_string))
}
