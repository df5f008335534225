//! Writes the metrics of a scrape as an encoded OTLP request.

mod points;
mod wire;

use self::wire::{bytes, key_value, message, text};
use super::family::Family;
use super::point::PointKind;
use super::series::Scope;
use super::transaction::{OfResource, OfScope, Transaction};
use super::unit::{trimmed, ucum};
use tributary_memory::{NoRoom, Permit};

/// Name of the scope of metrics without scope labels, as in the Collector.
const SCOPE_NAME: &str =
    "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/prometheusreceiver";

/// Values of `AggregationTemporality`.
const CUMULATIVE: u8 = 2;

/// Flag of points without a value.
const NO_RECORDED_VALUE: u8 = 1;

/// An encoded request.
pub(super) struct Encoded {
    pub(super) request: Vec<u8>,
    /// Number of data points.
    pub(super) points: usize,
}

/// Metrics that were not encoded.
#[derive(Debug)]
pub(super) struct Unencoded {
    /// Number of data points.
    pub(super) points: usize,
    pub(super) no_room: NoRoom,
}

/// Encodes the metrics. The permit grows with the request.
///
/// # Errors
/// The memory budget has no room for the request.
pub(super) fn encode(
    transaction: Transaction,
    trims_suffixes: bool,
    permit: &mut Permit,
) -> Result<Encoded, NoRoom> {
    let mut encoded = Encoded {
        request: Vec::new(),
        points: 0,
    };
    let (mut of_resource, mut of_scope, mut metric) = (Vec::new(), Vec::new(), Vec::new());
    for OfResource {
        attributes, scopes, ..
    } in transaction.resources
    {
        of_resource.clear();
        message(1, &mut of_resource, |resource| {
            for (name, value) in &attributes {
                key_value(1, name, value, resource);
            }
        });
        let before = encoded.points;
        for OfScope {
            scope, families, ..
        } in scopes
        {
            of_scope.clear();
            message(1, &mut of_scope, |output| {
                scope_fields(scope.as_ref(), output)
            });
            for mut family in families {
                metric.clear();
                let points = metric_fields(&mut family, trims_suffixes, &mut metric);
                if points > 0 {
                    permit.grow(metric.len())?;
                    bytes(2, &metric, &mut of_scope);
                    encoded.points += points;
                }
            }
            if let Some(scope) = scope.filter(|scope| !scope.schema_url.is_empty()) {
                text(3, &scope.schema_url, &mut of_scope);
            }
            permit.grow(of_scope.len())?;
            bytes(2, &of_scope, &mut of_resource);
        }
        if encoded.points > before {
            permit.grow(of_resource.len())?;
            bytes(1, &of_resource, &mut encoded.request);
        }
    }
    Ok(encoded)
}

fn scope_fields(scope: Option<&Scope>, output: &mut Vec<u8>) {
    match scope {
        None => {
            text(1, SCOPE_NAME, output);
            text(2, env!("CARGO_PKG_VERSION"), output);
        }
        Some(scope) => {
            text(1, &scope.name, output);
            text(2, &scope.version, output);
            for (name, value) in &scope.attributes {
                key_value(3, name, value, output);
            }
        }
    }
}

/// Writes the fields of a metric. Returns the number of its points.
fn metric_fields(family: &mut Family, trims_suffixes: bool, output: &mut Vec<u8>) -> usize {
    let description = &family.description;
    let name = match trims_suffixes {
        true => trimmed(&family.name, family.kind, &description.unit),
        false => family.name.as_str().into(),
    };
    text(1, &name, output);
    text(2, &description.help, output);
    text(3, &ucum(&description.unit), output);
    let field = match family.kind {
        PointKind::Gauge | PointKind::Other => 5,
        PointKind::Sum { .. } => 7,
        PointKind::Histogram => 9,
        PointKind::Exponential => 10,
        PointKind::Summary => 11,
    };
    let mut count = 0;
    let (kind, points) = (family.kind, &mut family.points);
    message(field, output, |data| {
        for point in points {
            count += usize::from(points::write(kind, point, data));
        }
        match kind {
            PointKind::Sum { is_monotonic } => {
                data.extend([0x10, CUMULATIVE]);
                if is_monotonic {
                    data.extend([0x18, 1]);
                }
            }
            PointKind::Histogram | PointKind::Exponential => data.extend([0x10, CUMULATIVE]),
            _ => {}
        }
    });
    key_value(12, "prometheus.type", description.kind.name(), output);
    count
}
