//! Families and metrics: everything but the values.

use tributary_otlp::reader::Fields;

use super::wire::{self, as_text, integer, seconds_and_nanos};
use crate::entry::{Kind, PageEntry};
use crate::format::MAX_NAME;

/// Name and metadata of a family.
#[derive(Clone, Copy, Default)]
pub(super) struct Family<'p> {
    pub(super) name: &'p str,
    pub(super) help: Option<&'p str>,
    pub(super) unit: &'p str,
    pub(super) kind: Kind,
    /// Number of entries of the metadata that are still to be returned.
    pub(super) pending: u8,
}

/// Metric of a family.
#[derive(Clone, Copy, Default)]
pub(super) struct Metric<'p> {
    pub(super) whole: &'p [u8],
    /// The message with the value.
    pub(super) value: &'p [u8],
    pub(super) timestamp: Option<i64>,
    pub(super) start: Option<i64>,
}

impl<'p> Family<'p> {
    /// Reads the name and the metadata of a family.
    pub(super) fn read(message: &'p [u8]) -> Result<Self, String> {
        let mut family = Family {
            pending: 3,
            ..Family::default()
        };
        let mut kind = 0;
        for field in Fields::new(message) {
            let field = field.map_err(|wrong| wrong.text())?;
            let text =
                |name: &str| as_text(field.value).ok_or_else(|| format!("the {name} is not UTF-8"));
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
            other => return Err(format!("{other} is not a metric type")),
        };
        if family.name.len() > MAX_NAME {
            return Err(format!(
                "the name of a metric family has more than {MAX_NAME} bytes"
            ));
        }
        if family.name.is_empty() {
            return Err("the metric family has no name".to_owned());
        }
        Ok(family)
    }

    /// Returns the next entry of the metadata.
    pub(super) fn metadata(&mut self) -> Option<PageEntry<'p>> {
        let family = self.name.into();
        while self.pending > 0 {
            self.pending -= 1;
            match (self.pending, self.help) {
                (2, Some(help)) => {
                    return Some(PageEntry::Help {
                        family,
                        text: help.into(),
                    });
                }
                (1, _) if !self.unit.is_empty() => {
                    return Some(PageEntry::Unit {
                        family,
                        unit: self.unit.into(),
                    });
                }
                (0, _) => {
                    return Some(PageEntry::Kind {
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
    pub(super) fn read(whole: &'p [u8], kind: Kind) -> Result<Self, &'static str> {
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
