//! Code shared by the receivers that listen: reading of bodies, access control and refusals.

pub(crate) mod body;
mod component;
pub(crate) mod connect;
pub(crate) mod cors;
pub(crate) mod encoding;
pub(crate) mod front;
pub(crate) mod grpc;
pub(crate) mod grpc_keys;
pub(crate) mod keys;
pub(crate) mod metadata;
pub(crate) mod query;
pub(crate) mod refusal;

pub(crate) use component::Serving;

use tributary_config::{Endpoint, Problems};

/// Checks the configuration of a listening socket. `example` is a valid endpoint for the error message.
pub(crate) fn validate_socket(
    endpoint: &Endpoint,
    transport: &str,
    example: &str,
    problems: &mut Problems,
) {
    if endpoint.0.is_empty() {
        problems.error(
            &["endpoint"],
            format!("must not be empty; for example `{example}`"),
        );
    }
    if transport != TCP {
        problems.error(
            &["transport"],
            format!("`{transport}` is not supported; the only transport is `tcp`"),
        );
    }
}

/// Checks the accepted encodings of bodies over HTTP.
pub(crate) fn validate_encodings(names: &[String], problems: &mut Problems) {
    for (at, name) in names.iter().enumerate() {
        if !encoding::HTTP_NAMES.contains(&name.as_str()) {
            problems.error(
                &["compression_algorithms", &at.to_string()],
                format!(
                    "unsupported compression algorithm `{name}`; supported are {}",
                    encoding::list(encoding::HTTP_NAMES)
                ),
            );
        }
    }
}

/// Returns `value`, or `default` if it is 0, which means unset as in the Collector.
pub(crate) fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// Returns the value of `max_items_per_request`, whose 0 means the default.
pub(crate) fn max_items(configured: usize) -> usize {
    match configured {
        0 => DEFAULT_ITEMS,
        items => items,
    }
}

/// Default of `max_items_per_request`. Usual requests, with items of at least 20 bytes, reach the
/// size limit first.
pub(crate) const DEFAULT_ITEMS: usize = 1_000_000;
/// The only kind of socket.
pub(crate) const TCP: &str = "tcp";
/// The default of `max_request_body_size`, as in the Collector.
pub(crate) const DEFAULT_BODY: usize = 20 << 20;
/// The default of `max_concurrent_streams`.
pub(crate) const DEFAULT_STREAMS: u32 = 1000;
