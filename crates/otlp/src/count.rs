//! Counts the items of valid requests without reading the items.

use super::reader::{Field, Fields};
use crate::Signal;

/// Returns the number of items of a valid request: spans, data points, log records, samples.
///
/// Receivers need no call: [`validate`](super::validate) counts too, and a batch carries its number of items.
pub fn count(signal: Signal, request: &[u8]) -> usize {
    messages(request, 1)
        .map(|resource| resource_items(signal, resource))
        .sum()
}

pub(super) fn resource_items(signal: Signal, resource: &[u8]) -> usize {
    messages(resource, 2)
        .map(|scope| scope_items(signal, scope))
        .sum()
}

pub(super) fn scope_items(signal: Signal, scope: &[u8]) -> usize {
    let entries = messages(scope, 2);
    match signal {
        Signal::Traces | Signal::Logs => entries.count(),
        Signal::Metrics => entries.map(metric).sum(),
        Signal::Profiles => entries.map(|profile| messages(profile, 2).count()).sum(),
    }
}

/// Returns the number of data points of a metric. The data is a `oneof`: readers use the last form, and merge repeated
/// occurrences of a form.
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

/// Returns the data in a field of a `Metric`, if the field is one of the data forms.
pub(super) fn metric_data<'a>(field: &Field<'a>) -> Option<&'a [u8]> {
    is_metric_data(field.number)
        .then(|| field.value.bytes())
        .flatten()
}

pub(super) fn is_metric_data(number: u32) -> bool {
    matches!(number, 5 | 7 | 9 | 10 | 11)
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}
