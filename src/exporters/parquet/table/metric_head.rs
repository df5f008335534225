//! The fields of a metric that all its data points share.

use std::borrow::Cow;

use super::read::{bytes, fields};
use tributary_otlp::Malformed;
use tributary_otlp::reader::Fields;

/// An encoded metric.
#[derive(Debug, Clone, Default)]
pub(super) struct Head<'r> {
    pub(super) message: &'r [u8],
    pub(super) name: &'r [u8],
    pub(super) description: &'r [u8],
    pub(super) unit: &'r [u8],
    pub(super) form: Form,
    pub(super) data: Cow<'r, [u8]>,
    /// Encoded fields of the metric without the data points.
    pub(super) shared: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

impl Form {
    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Gauge => "gauge",
            Form::Sum => "sum",
            Form::Histogram => "histogram",
            Form::Exponential => "exponential_histogram",
            Form::Summary => "summary",
        }
    }
}

impl<'r> Head<'r> {
    pub(super) fn read(message: &'r [u8]) -> Result<Self, Malformed> {
        let mut head = Head {
            message,
            ..Head::default()
        };
        for field in fields(message) {
            let (number, value) = field?;
            // The data is a `oneof`: the last form wins, and repeated messages of one form are
            // merged.
            let form = match number {
                1 => {
                    head.name = bytes(value);
                    continue;
                }
                2 => {
                    head.description = bytes(value);
                    continue;
                }
                3 => {
                    head.unit = bytes(value);
                    continue;
                }
                5 => Form::Gauge,
                7 => Form::Sum,
                9 => Form::Histogram,
                10 => Form::Exponential,
                11 => Form::Summary,
                _ => continue,
            };
            let data = bytes(value);
            match form == head.form && !head.data.is_empty() {
                true => head.data.to_mut().extend_from_slice(data),
                false => head.data = Cow::Borrowed(data),
            }
            head.form = form;
        }
        head.shared.push(head.form as u8);
        for (message, left_out) in [(message, 5..=11), (&*head.data, 1..=1)] {
            let fields = Fields::new(message).map_while(Result::ok);
            for field in fields.filter(|field| !left_out.contains(&field.number)) {
                head.shared.extend_from_slice(field.raw);
            }
        }
        Ok(head)
    }
}
