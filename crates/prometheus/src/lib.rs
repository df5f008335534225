//! Prometheus' data model as it appears on the network: pages in the exposition formats, and the relabelling of
//! series and targets.
//!
//! # Invariants
//!
//! * A page that Prometheus accepts is read with the same series, values and metadata, apart from the exceptions below.
//!   A page that Prometheus refuses is refused, with the line and the reason.
//! * A page is read in one pass. The memory of a [`ScrapedPage`] does not depend on the number of its samples: it is
//!   proportional to the largest series, or to one native histogram of at most [`MAX_BUCKETS`] buckets.
//! * Relabelling gives the results of Prometheus' package `relabel`.
//!
//! # Exceptions
//!
//! * A page in a text format must be UTF-8 as a whole. Prometheus checks label values and help texts only.
//! * A NUL byte at the start of a line is refused. Prometheus takes it for the end of the page.
//! * A series has at most [`MAX_LABELS`] labels and [`MAX_SERIES_BYTES`] bytes.
//! * The name of a metric family in the protobuf format has at most 4 KiB.
//! * The bounds of the buckets of a classic histogram in the protobuf format must increase. A summary in that format has at
//!   most 100 quantiles.
//! * Escapes in labels of exemplars are resolved, as OpenMetrics demands.
//! * Blanks before the name of a metric are skipped. Prometheus makes them part of the name.
//!
//! # Example
//!
//! ```
//! use tributary_prometheus::{PageEntry, ExpositionFormat, HistogramOptions, ScrapedPage};
//!
//! let text = b"# TYPE requests_total counter\nrequests_total{code=\"200\"} 7\n";
//! let mut page = ScrapedPage::new(ExpositionFormat::Text, text, HistogramOptions::default())?;
//! assert!(matches!(page.next()?, Some(PageEntry::Kind { family, .. }) if family == "requests_total"));
//! let Some(PageEntry::Sample(sample)) = page.next()? else { unreachable!() };
//! assert_eq!(sample.value, 7.0);
//! assert_eq!(page.labels().get("code"), Some("200"));
//! assert!(page.next()?.is_none());
//! # Ok::<(), tributary_prometheus::PageFault>(())
//! ```
//!
//! # Where to start reading
//!
//! [`ScrapedPage`], then `text` and `openmetrics`, which share `scan`; `protobuf` for the binary format; [`relabel`].

pub mod duration;
mod entry;
mod escape;
mod fault;
mod format;
mod labels;
pub mod number;
mod openmetrics;
mod page;
mod protobuf;
pub mod relabel;
mod scan;
mod text;

pub use entry::{BucketRun, ExemplarSample, Kind, NativeHistogram, PageEntry, PageSample};
pub use fault::PageFault;
pub use format::{ExpositionFormat, HistogramOptions, MAX_LABELS, MAX_SERIES_BYTES, media_type};
pub use labels::{LabelBuilder, LabelSet, PageLabels, is_legacy_name};
pub use page::ScrapedPage;
pub use protobuf::MAX_BUCKETS;
