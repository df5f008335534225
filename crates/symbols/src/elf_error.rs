//! Errors of ELF files.

/// The reason why a file cannot be read as ELF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    #[error("ELF file for an unsupported machine; x86-64 and arm64 are supported")]
    Unsupported,
    #[error("inconsistent ELF headers")]
    Malformed,
    #[error("the decompressed sections exceed the limit")]
    TooLarge,
}

impl From<gimli::Error> for ElfError {
    fn from(_: gimli::Error) -> Self {
        ElfError::Malformed
    }
}
