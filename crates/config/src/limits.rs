//! Limits of configuration files.

/// Maximum size of a file, in bytes. A larger file is not a configuration.
pub(crate) const MAX_FILE_SIZE: u64 = 16 << 20;
