//! Access for fuzz targets to parsers that are private to their modules. No other code should use this module.

pub use crate::connectors::fuzzing as connectors;
pub use crate::exporters::fuzzing as exporters;
pub use crate::receivers::otlp::fuzzing as receiver;
pub use crate::receivers::prometheus::fuzzing as scrapes;
pub use tributary_net::server::fuzzing as server;
pub use tributary_net::tls::fuzzing as tls;
pub use tributary_storage::fuzzing as storage;
pub use tributary_symbols::fuzzing as symbols;

/// A batch from the record of a stored queue.
pub use crate::queue::decode_record;

/// Returns the context for building a component named `name` without the rest of a collector.
pub fn context(name: &str) -> crate::component::BuildContext {
    let id = name.parse().unwrap_or_else(|_| unreachable!());
    crate::component::Host::for_tests().context(&id)
}
