//! The protobuf format: `MetricFamily` messages, each after its length:
//! <https://github.com/prometheus/client_model/blob/master/io/prometheus/client/metrics.proto>.
//!
//! Families and metrics are read from the wire one after the other, so that a page costs no memory of its own.

mod exemplar;
mod family;
mod histogram;
mod wire;

use std::cmp::Ordering;

use tributary_otlp::reader::{Fields, delimited};

use self::family::{Family, Metric};
pub use self::histogram::MAX_BUCKETS;
use self::histogram::Native;
use crate::entry::{ExemplarSample, Kind, PageEntry, PageSample};
use crate::fault::PageFault;
use crate::format::{HistogramOptions, MAX_LABELS, MAX_SERIES_BYTES};
use crate::labels::PageLabels;
use crate::number;

/// Maximum number of quantiles of a summary.
const MAX_QUANTILES: usize = 100;

/// A page in the protobuf format.
pub(crate) struct ProtobufPage<'p> {
    rest: &'p [u8],
    length: usize,
    options: HistogramOptions,
    family: Family<'p>,
    metrics: Fields<'p>,
    metric: Metric<'p>,
    /// Entries of the current metric that are still to come.
    stage: Stage<'p>,
    /// Text that identifies the current series.
    pub(crate) series: Vec<u8>,
    /// Length of the part of `series` that all series of the current metric share.
    shared: usize,
    /// Maximum number of labels of a series.
    pub(crate) label_limit: usize,
    current: Current<'p>,
    /// Number of buckets of native histograms on the page, empty ones between others included.
    buckets: usize,
}

/// Progress within a metric.
enum Stage<'p> {
    /// All entries have been returned.
    Done,
    /// A single value.
    Single,
    /// A native histogram, and a classic one after it if `classic`.
    Native { classic: bool },
    /// The count of a histogram or summary.
    Count,
    /// The sum of a histogram or summary.
    Sum,
    /// Buckets or quantiles. `has_infinity`: the bucket without an upper bound was returned.
    Rows {
        fields: Fields<'p>,
        has_infinity: bool,
        /// Number of rows that were returned.
        rows: usize,
        /// Bound of the last row.
        last: Option<f64>,
    },
}

/// The series of the current entry.
#[derive(Clone, Copy, Default)]
struct Current<'p> {
    suffix: &'static str,
    /// Name and value of the label of a bucket or quantile.
    row: Option<(&'static str, f64)>,
    /// The message that has the exemplar.
    exemplar: Option<&'p [u8]>,
    is_native: bool,
}

impl<'p> ProtobufPage<'p> {
    pub(crate) fn new(page: &'p [u8], options: HistogramOptions) -> Self {
        ProtobufPage {
            rest: page,
            length: page.len(),
            options,
            family: Family::default(),
            metrics: Fields::new(&[]),
            metric: Metric::default(),
            stage: Stage::Done,
            series: Vec::new(),
            shared: 0,
            label_limit: MAX_LABELS,
            current: Current::default(),
            buckets: 0,
        }
    }

    /// Reads the next entry; `None` at the end of the page.
    pub(crate) fn next(&mut self) -> Result<Option<PageEntry<'p>>, PageFault> {
        loop {
            if let Some(entry) = self.family.metadata() {
                return Ok(Some(entry));
            }
            if let Some(entry) = self.entry()? {
                self.describe();
                return Ok(Some(entry));
            }
            if !self.next_metric()? && !self.next_family()? {
                return Ok(None);
            }
        }
    }

    /// Returns a mistake in the current family.
    pub(crate) fn fault(&self, reason: impl Into<String>) -> PageFault {
        match self.family.name {
            "" => PageFault::at_byte(self.length - self.rest.len(), reason),
            name => PageFault::in_family(name, reason),
        }
    }

    fn next_family(&mut self) -> Result<bool, PageFault> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let at = self.length - self.rest.len();
        let fault = |reason: &str| PageFault::at_byte(at, reason);
        let (message, rest) = delimited(self.rest).map_err(|wrong| fault(wrong.text()))?;
        let family = Family::read(message).map_err(|reason| fault(&reason))?;
        self.rest = rest;
        self.family = family;
        self.metrics = Fields::new(message);
        Ok(true)
    }

    fn next_metric(&mut self) -> Result<bool, PageFault> {
        for field in self.metrics.by_ref() {
            let field =
                field.map_err(|wrong| PageFault::in_family(self.family.name, wrong.text()))?;
            if let (4, Some(whole)) = (field.number, field.value.bytes()) {
                self.metric = Metric::read(whole, self.family.kind)
                    .map_err(|wrong| PageFault::in_family(self.family.name, wrong))?;
                self.share()?;
                self.stage = self.first_stage()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn first_stage(&self) -> Result<Stage<'p>, PageFault> {
        Ok(match self.family.kind {
            Kind::Histogram | Kind::GaugeHistogram => {
                let native = self.options.native_histograms
                    && histogram::is_native(self.metric.value)
                        .map_err(|wrong| self.fault(wrong))?;
                match native {
                    true => Stage::Native {
                        classic: self.options.classic_beside_native
                            && wire::has(self.metric.value, 3)
                                .map_err(|wrong| self.fault(wrong))?,
                    },
                    false => Stage::Count,
                }
            }
            Kind::Summary => Stage::Count,
            _ => Stage::Single,
        })
    }

    /// Returns the next entry of the current metric.
    fn entry(&mut self) -> Result<Option<PageEntry<'p>>, PageFault> {
        let value = self.metric.value;
        let is_summary = self.family.kind == Kind::Summary;
        let mut current = Current::default();
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        let number = match stage {
            Stage::Done => return Ok(None),
            Stage::Single => {
                current.exemplar = wire::last(value, 2).map_err(|wrong| self.fault(wrong))?;
                self.double(value, 1)?
            }
            Stage::Native { classic } => {
                if classic {
                    self.stage = Stage::Count;
                }
                current.is_native = true;
                self.current = current;
                let room = MAX_BUCKETS.saturating_sub(self.buckets);
                let native = Native::read(value, room);
                let (mut native, buckets) = native.map_err(|wrong| self.fault(wrong))?;
                self.buckets += buckets;
                native.timestamp = self.metric.timestamp;
                native.start = self.metric.start;
                return Ok(Some(PageEntry::Histogram(Box::new(native))));
            }
            Stage::Count => {
                self.stage = Stage::Sum;
                current.suffix = "_count";
                self.count(value, is_summary)?
            }
            Stage::Sum => {
                self.stage = Stage::Rows {
                    fields: Fields::new(value),
                    has_infinity: is_summary,
                    rows: 0,
                    last: None,
                };
                current.suffix = "_sum";
                self.double(value, 2)?
            }
            Stage::Rows {
                mut fields,
                has_infinity,
                rows,
                last,
            } => {
                let row = fields.find_map(|field| match field {
                    Ok(field) if field.number == 3 => field.value.bytes().map(Ok),
                    Ok(_) => None,
                    Err(wrong) => Some(Err(wrong)),
                });
                if !is_summary {
                    current.suffix = "_bucket";
                }
                match row {
                    None if has_infinity => return Ok(None),
                    None => {
                        current.row = Some(("le", f64::INFINITY));
                        self.count(value, is_summary)?
                    }
                    Some(row) => {
                        let row = row.map_err(|wrong| self.fault(wrong.text()))?;
                        let (bound, number) = match is_summary {
                            true => (self.double(row, 1)?, self.double(row, 2)?),
                            false => {
                                current.exemplar =
                                    wire::last(row, 3).map_err(|wrong| self.fault(wrong))?;
                                let float = self.double(row, 4)?;
                                let exact = wire::last_integer(row, 1);
                                let exact = exact.map_err(|wrong| self.fault(wrong))?;
                                (
                                    self.double(row, 2)?,
                                    if float == 0.0 { exact as f64 } else { float },
                                )
                            }
                        };
                        self.check_row(bound, last, rows, is_summary)?;
                        current.row = Some((if is_summary { "quantile" } else { "le" }, bound));
                        let is_last = bound == f64::INFINITY && !is_summary;
                        if !is_last {
                            self.stage = Stage::Rows {
                                fields,
                                has_infinity,
                                rows: rows + 1,
                                last: Some(bound),
                            };
                        }
                        number
                    }
                }
            }
        };
        self.current = current;
        Ok(Some(PageEntry::Sample(PageSample {
            value: number,
            timestamp: self.metric.timestamp,
            start: self.metric.start,
        })))
    }

    fn double(&self, message: &[u8], number: u32) -> Result<f64, PageFault> {
        wire::last_double(message, number).map_err(|wrong| self.fault(wrong))
    }

    /// Returns the number of observations of a histogram or summary.
    fn count(&self, value: &[u8], is_summary: bool) -> Result<f64, PageFault> {
        let float = match is_summary {
            true => 0.0,
            false => self.double(value, 4)?,
        };
        let exact = wire::last_integer(value, 1).map_err(|wrong| self.fault(wrong))?;
        Ok(if float == 0.0 { exact as f64 } else { float })
    }

    /// Refuses rows that would be other series with the same labels, because a few bytes of such rows cost a copy of all
    /// labels each.
    fn check_row(
        &self,
        bound: f64,
        last: Option<f64>,
        rows: usize,
        is_summary: bool,
    ) -> Result<(), PageFault> {
        if is_summary {
            return match rows < MAX_QUANTILES {
                true => Ok(()),
                false => {
                    Err(self.fault(format!("a summary has more than {MAX_QUANTILES} quantiles")))
                }
            };
        }
        match last {
            Some(last) if bound.partial_cmp(&last) != Some(Ordering::Greater) => Err(self.fault(
                format!("the bound {bound} of a bucket is not above the bound before it, {last}"),
            )),
            _ => Ok(()),
        }
    }

    /// Writes the part of the text that all series of the current metric share.
    fn share(&mut self) -> Result<(), PageFault> {
        self.series.clear();
        self.series.extend_from_slice(self.family.name.as_bytes());
        let mut labels = 0;
        // 0xff is not a part of UTF-8.
        for field in Fields::new(self.metric.whole)
            .flatten()
            .filter(|field| field.number == 1)
        {
            labels += 1;
            let label = field.value.bytes().unwrap_or_default();
            if labels > self.label_limit {
                let limit = self.label_limit;
                return Err(self.fault(format!("a metric has more than {limit} labels")));
            }
            if self.series.len() + label.len() >= MAX_SERIES_BYTES {
                return Err(self.fault(format!(
                    "the name and labels of a metric have more than {MAX_SERIES_BYTES} bytes"
                )));
            }
            self.series.push(0xff);
            self.series.extend_from_slice(label);
        }
        self.shared = self.series.len();
        Ok(())
    }

    /// Writes the text that identifies the current series.
    fn describe(&mut self) {
        self.series.truncate(self.shared);
        self.series.push(0xff);
        self.series
            .extend_from_slice(self.current.suffix.as_bytes());
        if let Some((name, value)) = self.current.row {
            self.series.push(0xff);
            self.series.extend_from_slice(name.as_bytes());
            number::open_metrics_float(value, &mut self.series);
        }
    }

    /// Returns the labels of the current series.
    pub(crate) fn labels(&self) -> PageLabels {
        let mut labels = PageLabels::default();
        labels.push(
            "__name__",
            format!("{}{}", self.family.name, self.current.suffix),
        );
        for (name, value) in wire::pairs(self.metric.whole) {
            labels.push(name, value);
        }
        if let Some((name, value)) = self.current.row {
            let mut text = Vec::new();
            number::open_metrics_float(value, &mut text);
            labels.push(name, String::from_utf8_lossy(&text));
        }
        labels
    }

    /// Returns the exemplars of the current entry.
    pub(crate) fn exemplars(&self) -> Vec<ExemplarSample> {
        match self.current.is_native {
            true => exemplar::of_native(self.metric.value),
            false => self
                .current
                .exemplar
                .and_then(exemplar::read)
                .into_iter()
                .collect(),
        }
    }
}
