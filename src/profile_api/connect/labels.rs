//! Types, labels and series.

use std::collections::BTreeSet;

use super::super::Asked;
use super::super::error::ApiError;
use super::super::params::millis;
use super::messages::{
    LabelNamesRequest, LabelPair, LabelSet, LabelValuesRequest, NamesResponse,
    ProfileStatsResponse, ProfileType, ProfileTypesRequest, ProfileTypesResponse, SeriesRequest,
    SeriesResponse,
};
use super::query;
use tributary_profile_store::Query;
use tributary_profile_store::series::{
    Labels, NAME, PERIOD_TYPE, PERIOD_UNIT, PROFILE_TYPE, TYPE, UNIT, label_name,
};

/// Returns a query for each selector, of which one must match.
fn queries(asked: &Asked, matchers: &[String], range: (i64, i64)) -> Result<Vec<Query>, ApiError> {
    let all = [String::new()];
    let matchers = if matchers.is_empty() { &all } else { matchers };
    let queries = matchers.iter();
    queries.map(|text| query(asked, "", text, range)).collect()
}

pub(super) fn profile_types(
    asked: &Asked,
    request: &ProfileTypesRequest,
) -> Result<ProfileTypesResponse, ApiError> {
    let query = query(asked, "", "", (request.start, request.end))?;
    let series = asked.first_store()?.series(&query);
    let types: BTreeSet<ProfileType> = series.iter().map(profile_type).collect();
    Ok(ProfileTypesResponse {
        profile_types: types.into_iter().collect(),
    })
}

fn profile_type(labels: &Labels) -> ProfileType {
    let text = |label: &str| labels.get(label).to_owned();
    ProfileType {
        id: text(PROFILE_TYPE),
        name: text(NAME),
        sample_type: text(TYPE),
        sample_unit: text(UNIT),
        period_type: text(PERIOD_TYPE),
        period_unit: text(PERIOD_UNIT),
    }
}

pub(super) fn label_names(
    asked: &Asked,
    request: &LabelNamesRequest,
) -> Result<NamesResponse, ApiError> {
    let store = asked.first_store()?;
    let queries = queries(asked, &request.matchers, (request.start, request.end))?;
    let names: BTreeSet<String> = queries
        .iter()
        .flat_map(|query| store.label_names(query))
        .collect();
    Ok(NamesResponse {
        names: names.into_iter().collect(),
    })
}

pub(super) fn label_values(
    asked: &Asked,
    request: &LabelValuesRequest,
) -> Result<NamesResponse, ApiError> {
    if request.name.is_empty() {
        return Err(ApiError::bad("`name` must name a label"));
    }
    let store = asked.first_store()?;
    let queries = queries(asked, &request.matchers, (request.start, request.end))?;
    let label = label_name(&request.name);
    let values: BTreeSet<String> = queries
        .iter()
        .flat_map(|query| store.label_values(&label, query))
        .collect();
    Ok(NamesResponse {
        names: values.into_iter().collect(),
    })
}

pub(super) fn pairs(labels: &Labels) -> Vec<LabelPair> {
    let pair = |(name, value): (&str, &str)| LabelPair {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    labels.iter().map(pair).collect()
}

pub(super) fn series(asked: &Asked, request: &SeriesRequest) -> Result<SeriesResponse, ApiError> {
    let store = asked.first_store()?;
    let queries = queries(asked, &request.matchers, (request.start, request.end))?;
    let kept = |name: &str| {
        request.label_names.is_empty() || request.label_names.iter().any(|kept| kept == name)
    };
    let chosen = |labels: Labels| {
        let pairs = labels.iter().filter(|(name, _)| kept(name));
        Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    };
    let all: BTreeSet<Labels> = queries
        .iter()
        .flat_map(|query| store.series(query))
        .map(chosen)
        .collect();
    let sets = all.iter().map(|labels| LabelSet {
        labels: pairs(labels),
    });
    Ok(SeriesResponse {
        labels_set: sets.filter(|set| !set.labels.is_empty()).collect(),
    })
}

pub(super) fn profile_stats(asked: &Asked) -> Result<ProfileStatsResponse, ApiError> {
    let extent = asked.first_store()?.extent();
    let time = |nanos: u64| i64::try_from(millis(nanos)).unwrap_or(i64::MAX);
    Ok(match extent {
        None => ProfileStatsResponse::default(),
        Some(extent) => ProfileStatsResponse {
            data_ingested: true,
            oldest_profile_time: time(extent.start),
            newest_profile_time: time(extent.end),
        },
    })
}
