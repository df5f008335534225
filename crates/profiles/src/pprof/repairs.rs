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
    /// Entries without an id, entries with the id of an earlier entry, and a first string that is not empty. Only a
    /// lenient reader repairs them.
    pub ids: u64,
    /// References to missing strings, functions and locations, which were removed. Only a lenient reader repairs them.
    pub references: u64,
    /// Samples with a wrong number of values, which were dropped. Only a lenient reader repairs them.
    pub samples: u64,
}

impl Repairs {
    /// Adds the repairs of another file.
    pub fn add(&mut self, other: Repairs) {
        let Repairs {
            strings,
            negative,
            mappings,
            labels,
            saturated,
            ids,
            references,
            samples,
        } = other;
        self.strings += strings;
        self.negative += negative;
        self.mappings += mappings;
        self.labels += labels;
        self.saturated += saturated;
        self.ids += ids;
        self.references += references;
        self.samples += samples;
    }

    /// The kinds of repairs with their counts, named like the fields.
    pub fn counts(&self) -> [(&'static str, u64); 8] {
        let Repairs {
            strings,
            negative,
            mappings,
            labels,
            saturated,
            ids,
            references,
            samples,
        } = *self;
        [
            ("strings", strings),
            ("negative", negative),
            ("mappings", mappings),
            ("labels", labels),
            ("saturated", saturated),
            ("ids", ids),
            ("references", references),
            ("samples", samples),
        ]
    }

    /// Whether there were no repairs.
    pub fn is_empty(&self) -> bool {
        *self == Repairs::default()
    }
}
