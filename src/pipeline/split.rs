//! Splitting of requests of any signal.

use bytes::Bytes;
use tributary_otlp::{Limit, Signal};

/// Splits a valid request into parts within `limit`, each with its number of items. See [`tributary_otlp::split`] and,
/// for profiles, [`tributary_profiles::split`].
pub fn split(signal: Signal, request: &Bytes, limit: Limit) -> Vec<(usize, Bytes)> {
    match signal {
        Signal::Profiles => tributary_profiles::split(request, limit),
        _ => tributary_otlp::split(signal, request, limit),
    }
}
