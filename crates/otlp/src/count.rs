//! Counting the items of valid requests without looking at the items.

use super::reader::{Field, Fields};
use crate::Signal;

/// The items of a valid request: spans, data points, log records, samples.
///
/// Receivers need not call this: [`validate`](super::validate) counts in its own walk, and the number travels with the
/// batch.
pub fn count(signal: Signal, request: &[u8]) -> usize {
    messages(request, 1)
        .map(|resource| resource_items(signal, resource))
        .sum()
}

/// The items of a resource and its scopes.
pub(super) fn resource_items(signal: Signal, resource: &[u8]) -> usize {
    messages(resource, 2)
        .map(|scope| scope_items(signal, scope))
        .sum()
}

/// The items of a scope.
pub(super) fn scope_items(signal: Signal, scope: &[u8]) -> usize {
    let entries = messages(scope, 2);
    match signal {
        Signal::Traces | Signal::Logs => entries.count(),
        Signal::Metrics => entries.map(metric).sum(),
        Signal::Profiles => entries.map(|profile| messages(profile, 2).count()).sum(),
    }
}

/// The data points of a metric. Its data is a `oneof`: when several forms are there, the last one counts; when the
/// same form occurs again, the two are merged.
pub(super) fn metric(metric: &[u8]) -> usize {
    let mut form = 0;
    let mut points = 0;
    for field in Fields::new(metric).map_while(Result::ok) {
        if let Some(data) = metric_data(&field) {
            if field.number != form {
                form = field.number;
                points = 0;
            }
            points += messages(data, 1).count();
        }
    }
    points
}

/// The data of a metric, when this field of a `Metric` is one of its forms.
pub(super) fn metric_data<'a>(field: &Field<'a>) -> Option<&'a [u8]> {
    is_metric_data(field.number)
        .then(|| field.value.bytes())
        .flatten()
}

/// Whether a field of a `Metric` is gauge, sum, histogram, exponential_histogram or summary.
pub(super) fn is_metric_data(number: u32) -> bool {
    matches!(number, 5 | 7 | 9 | 10 | 11)
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}
