//! What the wire path promises, checked against prost on random requests in every legal encoding.

mod attributes;
mod generator;
mod split;
mod validate;
mod view;

use std::sync::LazyLock;

use generator::{Entropy, Generator};
use proptest::prelude::*;
use tributary::batch::{Decoded, Signal};

static TAME: LazyLock<Generator> = LazyLock::new(|| Generator::new(false));
static WILD: LazyLock<Generator> = LazyLock::new(|| Generator::new(true));

/// A valid request of any signal, in any legal encoding.
fn request() -> impl Strategy<Value = (Signal, Vec<u8>)> {
    let entropy = prop::collection::vec(any::<u8>(), 0..3000);
    (0..4_usize, any::<bool>(), entropy).prop_map(|(signal, wild, entropy)| {
        let signal = Signal::ALL[signal];
        let generator = if wild { &WILD } else { &TAME };
        (signal, generator.request(signal, &mut Entropy(&entropy)))
    })
}

/// Spans, data points, log records or samples, as prost sees them.
fn items(decoded: &Decoded) -> usize {
    lines(decoded)
        .iter()
        .filter(|line| line.starts_with("item"))
        .count()
}

/// Every item with all that is around it, one line each, and a line for whatever has no items. Lines can be compared
/// where structs cannot: NaN is equal to itself.
fn lines(decoded: &Decoded) -> Vec<String> {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let mut lines = Vec::new();
    macro_rules! walk {
        ($request:expr, $resources:ident, $scopes:ident, $entries:ident, $add:expr) => {
            for resource in &$request.$resources {
                let mut header = resource.clone();
                header.$scopes.clear();
                if resource.$scopes.is_empty() {
                    lines.push(format!("empty {header:?}"));
                }
                for scope in &resource.$scopes {
                    let mut inner = scope.clone();
                    inner.$entries.clear();
                    let header = format!("{header:?} {inner:?}");
                    if scope.$entries.is_empty() {
                        lines.push(format!("empty {header}"));
                    }
                    for entry in &scope.$entries {
                        $add(&mut lines, &header, entry);
                    }
                }
            }
        };
    }
    match decoded {
        Decoded::Traces(request) => walk!(
            request,
            resource_spans,
            scope_spans,
            spans,
            |lines: &mut Vec<_>, header: &str, span| lines.push(format!("item {span:?} {header}"))
        ),
        Decoded::Logs(request) => walk!(
            request,
            resource_logs,
            scope_logs,
            log_records,
            |lines: &mut Vec<_>, header: &str, log| lines.push(format!("item {log:?} {header}"))
        ),
        Decoded::Metrics(request) => walk!(
            request,
            resource_metrics,
            scope_metrics,
            metrics,
            |lines: &mut Vec<_>,
             header: &str,
             metric: &opentelemetry_proto::tonic::metrics::v1::Metric| {
                let mut inner = metric.clone();
                let mut points: Vec<String> = Vec::new();
                macro_rules! take {
                    ($data:expr) => {
                        points.extend(
                            $data
                                .data_points
                                .drain(..)
                                .map(|point| format!("{point:?}")),
                        )
                    };
                }
                match &mut inner.data {
                    Some(Data::Gauge(data)) => take!(data),
                    Some(Data::Sum(data)) => take!(data),
                    Some(Data::Histogram(data)) => take!(data),
                    Some(Data::ExponentialHistogram(data)) => take!(data),
                    Some(Data::Summary(data)) => take!(data),
                    None => {}
                }
                if points.is_empty() {
                    lines.push(format!("empty {inner:?} {header}"));
                }
                lines.extend(
                    points
                        .into_iter()
                        .map(|point| format!("item {point} {inner:?} {header}")),
                );
            }
        ),
        Decoded::Profiles(request) => walk!(
            request,
            resource_profiles,
            scope_profiles,
            profiles,
            |lines: &mut Vec<_>,
             header: &str,
             profile: &opentelemetry_proto::tonic::profiles::v1development::Profile| {
                let mut inner = profile.clone();
                inner.samples.clear();
                lines.push(format!("profile {inner:?} {header}"));
                lines.extend(
                    profile
                        .samples
                        .iter()
                        .map(|sample| format!("item {sample:?} {inner:?} {header}")),
                );
            }
        ),
    }
    lines
}
