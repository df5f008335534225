//! The extensions. A new component is one file and one line in [`REGISTRY`].

pub mod basicauth;
pub mod bearertokenauth;
pub mod console;
mod credentials;
pub mod file_storage;
pub mod headers_setter;
pub mod health_check;
pub mod oauth2client;
pub mod symbol_upload;
mod tries;
pub mod zpages;

use crate::component::{Entry, ExtensionConfig};

/// All built-in extensions.
pub static REGISTRY: &[Entry<dyn ExtensionConfig>] = &[
    basicauth::ENTRY,
    bearertokenauth::ENTRY,
    console::ENTRY,
    file_storage::ENTRY,
    headers_setter::ENTRY,
    health_check::ENTRY,
    oauth2client::ENTRY,
    symbol_upload::ENTRY,
    zpages::ENTRY,
];
