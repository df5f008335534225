//! The receivers. A new one is one file and one line in [`REGISTRY`].

use crate::component::{Entry, ReceiverConfig};

/// Every receiver that is built in.
pub static REGISTRY: &[Entry<dyn ReceiverConfig>] = &[];
