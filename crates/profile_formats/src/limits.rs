//! Limits of a file.

/// Limits of one file and of the profiles that it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatLimits {
    /// Maximum size after decompression, in bytes. The default is 64 MiB.
    pub input: usize,
    /// Maximum memory of the profiles, in bytes. The default is 256 MiB.
    pub memory: usize,
    /// Maximum number of frames of a stack. The default is 65,536.
    pub stack: usize,
}

impl Default for FormatLimits {
    fn default() -> Self {
        FormatLimits {
            input: 64 << 20,
            memory: 256 << 20,
            stack: 1 << 16,
        }
    }
}
