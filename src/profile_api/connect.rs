//! A part of Pyroscope's query API (`querier.v1.QuerierService`) over the Connect protocol, so that Grafana can use a
//! store as its data source.
//!
//! A request is a POST with `application/json` or `application/proto`, and the response has the same type. Methods work
//! on the first store.

mod call;
mod graph;
mod json;
mod labels;
mod messages;
mod pprof;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use prost::Message as _;

pub(super) use self::call::error_response;
use self::call::{Call, Encoding, PROTO};
use self::messages::{
    AGGREGATION_AVERAGE, DiffRequest, DiffResponse, FORMAT_TREE, MergeProfileRequest,
    MergeSpanProfileRequest, MergeStacktracesRequest, MergeStacktracesResponse,
    ProfileStatsRequest, SelectSeriesRequest, SelectSeriesResponse, SeriesPoint, SeriesPoints,
    StackTraceSelector,
};
use super::error::ApiError;
use super::flame::{MOST_FRAMES, merged};
use super::params::{hex, millis};
use super::{Asked, response};
use tributary_profile_store::query::SpanSelection;
use tributary_profile_store::series::{PROFILE_TYPE, label_name};
use tributary_profile_store::{Query, Selector, Zoom};

/// Default number of frames of a flame graph, as in Pyroscope.
const FRAMES: usize = 8192;
const NANOS_PER_MILLI: u64 = 1_000_000;
/// Memory of a profile as JSON, as a multiple of its size: each number becomes a text with a name.
const JSON_PER_BYTE: usize = 16;

type Answer = Result<Response<Bytes>, ApiError>;

pub(super) fn answer(asked: &Asked, method: &str, headers: &HeaderMap, body: &Bytes) -> Answer {
    let call = Call::of(asked, headers, body)?;
    match method {
        "ProfileTypes" => call.answer(|request| labels::profile_types(asked, &request)),
        "LabelNames" => call.answer(|request| labels::label_names(asked, &request)),
        "LabelValues" => call.answer(|request| labels::label_values(asked, &request)),
        "Series" => call.answer(|request| labels::series(asked, &request)),
        "SelectMergeStacktraces" => call.answer(|request| merge_stacktraces(asked, &request)),
        "SelectMergeSpanProfile" => call.answer(|request| merge_spans(asked, &request)),
        "SelectSeries" => call.answer(|request| select_series(asked, &request)),
        "SelectMergeProfile" => merge_profile(asked, &call),
        "Diff" => call.answer(|request| diff(asked, &request)),
        "GetProfileStats" => call.answer(|_: ProfileStatsRequest| labels::profile_stats(asked)),
        _ => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            format!(
                "unknown method `{method}`; available: ProfileTypes, LabelNames, LabelValues, Series, \
                 SelectMergeStacktraces, SelectMergeSpanProfile, SelectSeries, SelectMergeProfile, Diff, GetProfileStats"
            ),
        )),
    }
}

/// Returns a query of a range in milliseconds since 1970, where 0 is no bound.
fn query(
    asked: &Asked,
    profile_type: &str,
    selector: &str,
    (start, end): (i64, i64),
) -> Result<Query, ApiError> {
    let nanos =
        |millis: i64| u64::try_from(millis).map(|time| time.saturating_mul(NANOS_PER_MILLI));
    let wrong = |_| ApiError::bad("times must be milliseconds since 1970");
    let end = match end {
        0 => u64::MAX,
        end => nanos(end).map_err(wrong)?,
    };
    let range = nanos(start).map_err(wrong)?..end;
    if range.is_empty() {
        return Err(ApiError::bad("`start` must be before `end`"));
    }
    let mut selector: Selector = selector.parse()?;
    if !profile_type.is_empty() {
        selector = selector.and_equal(PROFILE_TYPE, profile_type);
    }
    Ok(Query {
        selector,
        range,
        spans: None,
        limits: asked.limits(),
    })
}

/// Refuses selections that the store does not have.
fn refuse_stacks(
    selector: Option<&StackTraceSelector>,
    profile_ids: &[String],
) -> Result<(), ApiError> {
    let selects = selector
        .is_some_and(|selector| !selector.call_site.is_empty() || selector.go_pgo.is_some());
    let what = match (selects, profile_ids.is_empty()) {
        (true, _) => "stacks",
        (_, false) => "single profiles",
        _ => return Ok(()),
    };
    Err(ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        format!("this store does not support selecting {what}: remove the selector"),
    ))
}

impl MergeStacktracesRequest {
    fn query(&self, asked: &Asked) -> Result<Query, ApiError> {
        refuse_stacks(
            self.stack_trace_selector.as_ref(),
            &self.profile_id_selector,
        )?;
        refuse_tree(self.format)?;
        let range = (self.start, self.end);
        query(asked, &self.profile_type_id, &self.label_selector, range)
    }

    fn frames(&self) -> usize {
        frames(self.max_nodes)
    }
}

impl MergeSpanProfileRequest {
    fn query(&self, asked: &Asked) -> Result<Query, ApiError> {
        refuse_tree(self.format)?;
        let ids = self.span_selector.iter().map(|id| {
            hex(id).ok_or_else(|| {
                ApiError::bad(format!(
                    "`spanSelector` must have ids of 16 hexadecimal digits, not {id:?}"
                ))
            })
        });
        let ids = ids.collect::<Result<_, _>>()?;
        let range = (self.start, self.end);
        let query = query(asked, &self.profile_type_id, &self.label_selector, range)?;
        Ok(Query {
            spans: Some(SpanSelection::Ids(ids)),
            ..query
        })
    }
}

fn refuse_tree(format: i32) -> Result<(), ApiError> {
    if format == FORMAT_TREE {
        return Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "tree formats are not supported: use the format PROFILE_FORMAT_FLAMEGRAPH",
        ));
    }
    Ok(())
}

/// Returns the number of frames of a flame graph.
fn frames(max_nodes: Option<i64>) -> usize {
    let most = max_nodes.and_then(|most| usize::try_from(most).ok());
    most.filter(|most| *most > 0)
        .unwrap_or(FRAMES)
        .min(MOST_FRAMES)
}

fn merge_stacktraces(
    asked: &Asked,
    request: &MergeStacktracesRequest,
) -> Result<MergeStacktracesResponse, ApiError> {
    flame_graph(asked, &request.query(asked)?, request.frames())
}

fn merge_spans(
    asked: &Asked,
    request: &MergeSpanProfileRequest,
) -> Result<MergeStacktracesResponse, ApiError> {
    flame_graph(asked, &request.query(asked)?, frames(request.max_nodes))
}

fn flame_graph(
    asked: &Asked,
    query: &Query,
    frames: usize,
) -> Result<MergeStacktracesResponse, ApiError> {
    let (tree, _answers) = merged(&*asked.first_store()?, None, query)?;
    let view = tree.view(&Zoom::default(), frames, [1.0; 2]);
    Ok(MergeStacktracesResponse {
        flamegraph: Some(graph::single(&view.unwrap_or_default())),
    })
}

fn diff(asked: &Asked, request: &DiffRequest) -> Result<DiffResponse, ApiError> {
    let (Some(left), Some(right)) = (&request.left, &request.right) else {
        return Err(ApiError::bad("both `left` and `right` must be given"));
    };
    let (before, after) = (left.query(asked)?, right.query(asked)?);
    let (tree, _answers) = merged(&*asked.first_store()?, Some(&before), &after)?;
    let most = left.frames().max(right.frames());
    let view = tree.view(&Zoom::default(), most, [1.0; 2]);
    Ok(DiffResponse {
        flamegraph: Some(graph::comparison(&view.unwrap_or_default())),
    })
}

fn merge_profile(asked: &Asked, call: &Call<'_>) -> Answer {
    let request: MergeProfileRequest = call.request()?;
    refuse_stacks(
        request.stack_trace_selector.as_ref(),
        &request.profile_id_selector,
    )?;
    let range = (request.start, request.end);
    let query = query(
        asked,
        &request.profile_type_id,
        &request.label_selector,
        range,
    )?;
    let mut answer = asked.first_store()?.merge(&query)?;
    let file = answer.as_ref().map(|answer| answer.pprof());
    let file = file.unwrap_or_default();
    match call.encoding {
        // A pprof file is the message.
        Encoding::Proto => Ok(response(StatusCode::OK, PROTO, file.into())),
        Encoding::Json => {
            if let Some(answer) = &mut answer {
                answer.meter()(file.len().saturating_mul(JSON_PER_BYTE))?;
            }
            let message = pprof::PprofMessage::decode(&*file).map_err(|error| {
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            })?;
            super::json(&message)
        }
    }
}

fn select_series(
    asked: &Asked,
    request: &SelectSeriesRequest,
) -> Result<SelectSeriesResponse, ApiError> {
    refuse_stacks(request.stack_trace_selector.as_ref(), &[])?;
    if request.aggregation == AGGREGATION_AVERAGE {
        return Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "the aggregation is not supported: use TIME_SERIES_AGGREGATION_TYPE_SUM",
        ));
    }
    let range = (request.start, request.end);
    let query = query(
        asked,
        &request.profile_type_id,
        &request.label_selector,
        range,
    )?;
    let step = Duration::try_from_secs_f64(request.step).ok();
    let step = step.filter(|step| !step.is_zero());
    let step = step.ok_or_else(|| ApiError::bad("`step` must be above 0, in seconds"))?;
    let by: Vec<String> = request
        .group_by
        .iter()
        .map(|name| label_name(name))
        .collect();
    let mut totals = asked.first_store()?.totals(&query, step, Some(&by))?;
    let limit = request.limit.and_then(|limit| usize::try_from(limit).ok());
    if let Some(limit) = limit.filter(|limit| *limit > 0) {
        totals.sort_by_cached_key(|series| {
            let values = series.points.iter().map(|(_, value)| i128::from(*value));
            std::cmp::Reverse(values.sum::<i128>())
        });
        totals.truncate(limit);
    }
    let series = totals.iter().map(|series| {
        let point = |(time, value): &(u64, i64)| SeriesPoint {
            value: *value as f64,
            timestamp: i64::try_from(millis(*time)).unwrap_or(i64::MAX),
        };
        SeriesPoints {
            labels: labels::pairs(&series.labels),
            points: series.points.iter().map(point).collect(),
        }
    });
    Ok(SelectSeriesResponse {
        series: series.collect(),
    })
}
