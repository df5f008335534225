//! Distributes the items of a request over tables.

use super::context::{Known, Origin};
use super::read::{head, messages};
use super::rows::{OncePerTable, RowDestination, service};
use super::{Sink, logs, metrics, traces};
use tributary_otlp::{Malformed, Signal};

/// Distributes the items of a request of traces, metrics or logs, until `sink` admits no further
/// rows.
pub(super) fn append(
    signal: Signal,
    request: &[u8],
    by_service: bool,
    sink: &mut dyn Sink,
) -> Result<(), Malformed> {
    for entry in messages(request, 1) {
        let entry = entry?;
        let mut origin = Origin::default();
        let mut known = Known::default();
        (origin.resource, origin.resource_schema_url) = head(entry)?;
        let service = by_service.then(|| service(origin.resource));
        for scope in messages(entry, 2) {
            let scope = scope?;
            (origin.scope, origin.scope_schema_url) = head(scope)?;
            known.next_scope();
            let mut place = RowDestination {
                sink: &mut *sink,
                origin: &origin,
                known: &mut known,
                service: service.clone(),
                once: OncePerTable::default(),
            };
            let flow = match signal {
                Signal::Logs => logs::append(scope, &mut place)?,
                Signal::Traces => traces::append(scope, &mut place)?,
                _ => metrics::append(scope, &mut place)?,
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}
