//! Pages of all formats.

use crate::entry::{ExemplarSample, Kind, PageEntry};
use crate::fault::PageFault;
use crate::format::{ExpositionFormat, HistogramOptions};
use crate::labels::PageLabels;
use crate::protobuf::ProtobufPage;
use crate::scan::TextPage;
use crate::{openmetrics, text};

/// Reader of one page.
pub struct ScrapedPage<'p> {
    inner: Inner<'p>,
    /// Type of the latest family.
    kind: Kind,
}

enum Inner<'p> {
    Text(TextPage<'p>),
    OpenMetrics(TextPage<'p>),
    Protobuf(Box<ProtobufPage<'p>>),
}

impl<'p> ScrapedPage<'p> {
    /// Creates a reader of a page.
    ///
    /// # Errors
    /// A page in a text format is not UTF-8.
    pub fn new(
        format: ExpositionFormat,
        page: &'p [u8],
        options: HistogramOptions,
    ) -> Result<Self, PageFault> {
        let text = || {
            let text = std::str::from_utf8(page);
            let text = text.map_err(|error| {
                PageFault::in_text(page, error.valid_up_to(), "the text is not UTF-8")
            });
            text.map(TextPage::new)
        };
        let inner = match format {
            ExpositionFormat::Text => Inner::Text(text()?),
            ExpositionFormat::OpenMetrics => Inner::OpenMetrics(text()?),
            ExpositionFormat::Protobuf => {
                Inner::Protobuf(Box::new(ProtobufPage::new(page, options)))
            }
        };
        Ok(ScrapedPage {
            inner,
            kind: Kind::Unknown,
        })
    }

    /// Raises the maximum number of labels of a series from [`MAX_LABELS`](crate::MAX_LABELS) to `labels`, if that is
    /// more.
    pub fn with_label_limit(mut self, labels: usize) -> Self {
        let limit = match &mut self.inner {
            Inner::Text(page) | Inner::OpenMetrics(page) => &mut page.scan.label_limit,
            Inner::Protobuf(page) => &mut page.label_limit,
        };
        *limit = labels.max(*limit);
        self
    }

    /// Reads the next entry; `None` at the end of the page.
    ///
    /// # Errors
    /// The page has a mistake. What follows cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "a failed page must not be read further"
    )]
    pub fn next(&mut self) -> Result<Option<PageEntry<'p>>, PageFault> {
        let entry = match &mut self.inner {
            Inner::Text(page) => text::next(page),
            Inner::OpenMetrics(page) => openmetrics::next(page),
            Inner::Protobuf(page) => page.next(),
        }?;
        if let Some(PageEntry::Kind { kind, .. }) = &entry {
            self.kind = *kind;
        }
        Ok(entry)
    }

    /// Returns bytes that identify the series of the last sample or histogram on pages of this format. The same series
    /// may have several identifications, if its labels are written in another way.
    pub fn series(&self) -> &[u8] {
        match &self.inner {
            Inner::Text(page) | Inner::OpenMetrics(page) => page.series.whole,
            Inner::Protobuf(page) => &page.series,
        }
    }

    /// Returns the labels of the last sample or histogram. Bounds of buckets and quantiles are in OpenMetrics' notation.
    pub fn labels(&self) -> PageLabels {
        match &self.inner {
            Inner::Text(page) | Inner::OpenMetrics(page) => {
                let mut labels = PageLabels::default();
                let float = match self.kind {
                    Kind::Histogram => Some("le"),
                    Kind::Summary => Some("quantile"),
                    _ => None,
                };
                page.series.add_to(&mut labels, float);
                labels
            }
            Inner::Protobuf(page) => page.labels(),
        }
    }

    /// Returns the exemplars of the last sample or histogram.
    pub fn exemplars(&self) -> Vec<ExemplarSample> {
        match &self.inner {
            Inner::Text(_) => Vec::new(),
            Inner::OpenMetrics(page) => page
                .exemplar
                .iter()
                .map(|exemplar| exemplar.read())
                .collect(),
            Inner::Protobuf(page) => page.exemplars(),
        }
    }

    /// Returns a mistake at the last sample or histogram.
    pub fn fault(&self, reason: impl Into<String>) -> PageFault {
        match &self.inner {
            Inner::Text(page) | Inner::OpenMetrics(page) => page.fault(reason),
            Inner::Protobuf(page) => page.fault(reason),
        }
    }
}
