//! The protobuf format: `MetricFamily` messages, each after its length:
//! <https://github.com/prometheus/client_model/blob/master/io/prometheus/client/metrics.proto>.
//!
//! Families and metrics are read from the wire one after the other, so that a page costs no memory of its own.

mod exemplar;
mod histogram;
mod wire;

use tributary_otlp::reader::{Fields, delimited};

pub use self::histogram::MAX_BUCKETS;
use self::histogram::Native;
use self::wire::{as_text, integer, seconds_and_nanos};
use crate::entry::{Entry, ExemplarSample, Kind, Sample};
use crate::fault::PageFault;
use crate::labels::PageLabels;
use crate::number;
use crate::page::Options;

/// A page in the protobuf format.
pub(crate) struct ProtobufPage<'p> {
    rest: &'p [u8],
    length: usize,
    options: Options,
    family: Family<'p>,
    metrics: Fields<'p>,
    metric: Metric<'p>,
    /// Entries of the current metric that are still to come.
    stage: Stage<'p>,
    /// Text that identifies the current series.
    pub(crate) series: Vec<u8>,
    current: Current<'p>,
    /// Number of buckets of native histograms on the page, empty ones between others included.
    buckets: usize,
}

/// Name and metadata of a family.
#[derive(Clone, Copy, Default)]
struct Family<'p> {
    name: &'p str,
    help: Option<&'p str>,
    unit: &'p str,
    kind: Kind,
    /// What is still to be returned of the metadata.
    pending: u8,
}

/// One metric of a family.
#[derive(Clone, Copy, Default)]
struct Metric<'p> {
    whole: &'p [u8],
    /// The message with the value.
    value: &'p [u8],
    timestamp: Option<i64>,
    start: Option<i64>,
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
    pub(crate) fn new(page: &'p [u8], options: Options) -> Self {
        ProtobufPage {
            rest: page,
            length: page.len(),
            options,
            family: Family::default(),
            metrics: Fields::new(&[]),
            metric: Metric::default(),
            stage: Stage::Done,
            series: Vec::new(),
            current: Current::default(),
            buckets: 0,
        }
    }

    /// Reads the next entry; `None` at the end of the page.
    pub(crate) fn next(&mut self) -> Result<Option<Entry<'p>>, PageFault> {
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
        let mut family = Family {
            pending: 3,
            ..Family::default()
        };
        let mut kind = 0;
        for field in Fields::new(message) {
            let field = field.map_err(|wrong| fault(wrong.text()))?;
            let text = |name: &str| {
                as_text(field.value).ok_or_else(|| fault(&format!("the {name} is not UTF-8")))
            };
            match field.number {
                1 => family.name = text("name")?,
                2 => family.help = Some(text("description")?),
                3 => kind = integer(field.value),
                5 => family.unit = text("unit")?,
                _ => {}
            }
        }
        family.kind = match kind {
            0 => Kind::Counter,
            1 => Kind::Gauge,
            2 => Kind::Summary,
            3 => Kind::Unknown,
            4 => Kind::Histogram,
            5 => Kind::GaugeHistogram,
            other => return Err(fault(&format!("{other} is not a metric type"))),
        };
        if family.name.is_empty() {
            return Err(fault("the metric family has no name"));
        }
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
    fn entry(&mut self) -> Result<Option<Entry<'p>>, PageFault> {
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
                return Ok(Some(Entry::Histogram(Box::new(native))));
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
                };
                current.suffix = "_sum";
                self.double(value, 2)?
            }
            Stage::Rows {
                mut fields,
                has_infinity,
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
                        current.row = Some((if is_summary { "quantile" } else { "le" }, bound));
                        let is_last = bound == f64::INFINITY && !is_summary;
                        if !is_last {
                            self.stage = Stage::Rows {
                                fields,
                                has_infinity,
                            };
                        }
                        number
                    }
                }
            }
        };
        self.current = current;
        Ok(Some(Entry::Sample(Sample {
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

    /// Writes the text that identifies the current series.
    fn describe(&mut self) {
        self.series.clear();
        self.series.extend_from_slice(self.family.name.as_bytes());
        self.series
            .extend_from_slice(self.current.suffix.as_bytes());
        // 0xff is not a part of UTF-8.
        for field in Fields::new(self.metric.whole)
            .flatten()
            .filter(|field| field.number == 1)
        {
            self.series.push(0xff);
            self.series
                .extend_from_slice(field.value.bytes().unwrap_or_default());
        }
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
                .map(exemplar::read)
                .into_iter()
                .collect(),
        }
    }
}

impl<'p> Family<'p> {
    /// Returns the next entry of the metadata.
    fn metadata(&mut self) -> Option<Entry<'p>> {
        let family = self.name.into();
        while self.pending > 0 {
            self.pending -= 1;
            match (self.pending, self.help) {
                (2, Some(help)) => {
                    return Some(Entry::Help {
                        family,
                        text: help.into(),
                    });
                }
                (1, _) if !self.unit.is_empty() => {
                    return Some(Entry::Unit {
                        family,
                        unit: self.unit.into(),
                    });
                }
                (0, _) => {
                    return Some(Entry::Kind {
                        family,
                        kind: self.kind,
                    });
                }
                _ => {}
            }
        }
        None
    }
}

impl<'p> Metric<'p> {
    /// Reads the parts of a metric that all entries share. Checks the labels.
    fn read(whole: &'p [u8], kind: Kind) -> Result<Self, &'static str> {
        let (number, created) = match kind {
            Kind::Gauge => (2, 0),
            Kind::Counter => (3, 3),
            Kind::Summary => (4, 4),
            Kind::Histogram | Kind::GaugeHistogram => (7, 15),
            _ => (5, 0),
        };
        let mut metric = Metric {
            whole,
            ..Metric::default()
        };
        for field in Fields::new(whole) {
            let field = field.map_err(|wrong| wrong.text())?;
            match field.number {
                1 => wire::check_pair(field.value)?,
                6 => {
                    metric.timestamp =
                        Some(integer(field.value).cast_signed()).filter(|time| *time != 0)
                }
                _ if field.number == number => {
                    metric.value = field.value.bytes().unwrap_or_default()
                }
                _ => {}
            }
        }
        if created > 0
            && let Some(time) = wire::last(metric.value, created)?
        {
            metric.start = Some(seconds_and_nanos(time)).filter(|time| *time != 0);
        }
        Ok(metric)
    }
}
