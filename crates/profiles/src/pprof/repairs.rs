//! Repairs of invalid files.

/// Repairs of content that OTLP cannot represent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Strings that are not UTF-8; invalid bytes became U+FFFD.
    pub strings: u64,
    /// Negative lines, columns, periods and times, which became 0.
    pub negative: u64,
    /// Mappings with an end before their start, which were set to one byte; and references to missing mappings,
    /// counted per location.
    pub mappings: u64,
    /// Labels without a key, which were dropped.
    pub labels: u64,
    /// Sums of equal samples that were saturated.
    pub saturated: u64,
}

impl Repairs {
    /// Adds the repairs of another file.
    pub fn add(&mut self, other: Repairs) {
        self.strings += other.strings;
        self.negative += other.negative;
        self.mappings += other.mappings;
        self.labels += other.labels;
        self.saturated += other.saturated;
    }

    /// Whether there were no repairs.
    pub fn is_empty(&self) -> bool {
        *self == Repairs::default()
    }
}
