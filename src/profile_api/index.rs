//! Queries that the indices of a store answer: stores, types, labels, series, totals and heat maps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::json as value;

use super::error::ApiError;
use super::params::{Params, Side, duration, millis};
use super::{Asked, json};
use tributary_profile_store::series::{Labels, NAME, PROFILE_TYPE, TYPE, UNIT, label_name};

/// Number of steps of a time line without a step.
const STEPS: u32 = 240;
/// Shortest step without a step, in seconds: the finest resolution of a store.
const SHORTEST_STEP: u64 = 10;

type Answer = Result<Response<Bytes>, ApiError>;

pub(super) fn stores(asked: &Asked) -> Answer {
    let stores = asked.stores.all().into_iter().map(|(id, store)| {
        let stats = store.stats();
        let extent = store.extent();
        value!({
            "id": id,
            "bytes": stats.disk,
            "max_disk_bytes": store.options().max_disk,
            "memory_bytes": stats.memory,
            "blocks": stats.blocks.iter().sum::<usize>(),
            "series": stats.series,
            "oldest": extent.as_ref().map(|extent| millis(extent.start)),
            "newest": extent.as_ref().map(|extent| millis(extent.end)),
            "dropped": {
                "too_old": stats.too_old,
                "no_room": stats.dropped_samples,
            },
            "damaged": stats.damaged,
        })
    });
    json(&value!({"stores": stores.collect::<Vec<_>>()}))
}

/// A profile type, as the page lists it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Kind {
    pub(super) id: String,
    /// Sample type.
    pub(super) name: String,
    pub(super) unit: String,
    /// Name of the profile at its source.
    pub(super) profile: String,
}

pub(super) fn types(asked: &Asked, params: &Params) -> Answer {
    let series = asked
        .store(params)?
        .series(&asked.query(params, Side::Selected)?);
    let types: BTreeSet<Kind> = series.iter().map(kind_of).collect();
    json(&value!({"types": types}))
}

fn kind_of(labels: &Labels) -> Kind {
    let text = |label: &str| labels.get(label).to_owned();
    Kind {
        id: text(PROFILE_TYPE),
        name: text(TYPE),
        unit: text(UNIT),
        profile: text(NAME),
    }
}

pub(super) fn labels(asked: &Asked, params: &Params) -> Answer {
    let query = asked.query(params, Side::Selected)?;
    let mut labels = asked.store(params)?.label_names(&query);
    // Labels of the store's own are the parts of a type.
    labels.retain(|label| !label.starts_with("__"));
    json(&value!({"labels": labels}))
}

pub(super) fn values(asked: &Asked, params: &Params, label: &str) -> Answer {
    let query = asked.query(params, Side::Selected)?;
    let values = asked
        .store(params)?
        .label_values(&label_name(label), &query);
    json(&value!({"values": values}))
}

fn object(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

pub(super) fn series(asked: &Asked, params: &Params) -> Answer {
    let query = asked.query(params, Side::Selected)?;
    let series = asked.store(params)?.series(&query);
    let series = series
        .iter()
        .map(|labels| value!({"labels": object(labels)}));
    json(&value!({"series": series.collect::<Vec<_>>()}))
}

pub(super) fn totals(asked: &Asked, params: &Params) -> Answer {
    let query = asked.query(params, Side::Selected)?;
    let length = Duration::from_nanos(query.range.end - query.range.start);
    let step = match params.get("step") {
        None => {
            let seconds = (length / STEPS).as_secs() + 1;
            Duration::from_secs(seconds.next_multiple_of(SHORTEST_STEP))
        }
        Some(text) => duration(text)
            .filter(|step| !step.is_zero())
            .ok_or_else(|| {
                ApiError::bad(format!(
                    "`step` must be a duration such as `15s`, and is `{text}`"
                ))
            })?,
    };
    let by: Option<Vec<String>> = params.given("by").map(|by| {
        let labels = by.split(',').filter(|label| !label.is_empty());
        labels.map(label_name).collect()
    });
    let totals = asked.store(params)?.totals(&query, step, by.as_deref())?;
    let series = totals.iter().map(|series| {
        let points = series.points.iter();
        let points = points.map(|(time, total)| value!([millis(*time), total]));
        value!({
            "labels": object(&series.labels),
            "points": points.collect::<Vec<_>>(),
        })
    });
    json(&value!({
        "step": u64::try_from(step.as_millis()).unwrap_or(u64::MAX),
        "series": series.collect::<Vec<_>>(),
    }))
}

pub(super) fn heat_map(asked: &Asked, params: &Params) -> Answer {
    let query = asked.query(params, Side::Selected)?;
    if query.spans.is_some() {
        return Err(ApiError::bad(
            "a heat map does not support spans: remove `trace_id` and `span_id`",
        ));
    }
    json(&asked.store(params)?.heat_map(&query)?)
}
