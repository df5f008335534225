//! Page formats, their media types, and choices in reading them.

/// Maximum number of labels of a series on a page, and of label pairs that relabelling has to search. Prometheus has no
/// such limit; client libraries and exporters stay far below it.
pub const MAX_LABELS: usize = 1024;

/// Maximum size of the name and the labels of a series on a page, in bytes. A protobuf page names the labels of a
/// histogram once for all its buckets, so each of its bytes may be hashed once per bucket.
pub const MAX_SERIES_BYTES: usize = 128 << 10;

/// Maximum size of the name of a metric family in the protobuf format, in bytes. The name may be hashed once per metric of
/// the family.
pub(crate) const MAX_NAME: usize = 4 << 10;

/// Maximum length of the labels of an exemplar in characters, as OpenMetrics demands. Longer exemplars are dropped, as by
/// Prometheus.
pub(crate) const MAX_EXEMPLAR: usize = 128;

/// Choices in the reading of histograms of the protobuf format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistogramOptions {
    /// Whether native histograms are read. Otherwise their classic buckets are, even if there are none.
    pub native_histograms: bool,
    /// Whether the classic buckets of native histograms are read too.
    pub classic_beside_native: bool,
}

/// Format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format of Prometheus.
    Text,
    /// OpenMetrics' text format.
    OpenMetrics,
    /// Length-delimited protobuf messages.
    Protobuf,
}

impl ExpositionFormat {
    /// Returns the format that a `Content-Type` names; `None` for other and for invalid types.
    pub fn of(content_type: &str) -> Option<Self> {
        Some(match media_type(content_type).as_str() {
            "text/plain" => ExpositionFormat::Text,
            "application/openmetrics-text" => ExpositionFormat::OpenMetrics,
            "application/vnd.google.protobuf" => ExpositionFormat::Protobuf,
            _ => return None,
        })
    }
}

/// Returns the media type of a `Content-Type`, in lower case and without parameters.
pub fn media_type(content_type: &str) -> String {
    let end = content_type.find(';').unwrap_or(content_type.len());
    let media = content_type.get(..end).unwrap_or_default();
    media.trim().to_ascii_lowercase()
}
