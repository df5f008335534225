//! Which labels of pprof files name traces and spans.

use clap::Args;

use crate::profiles::pprof::{IdFormat, IdLabel, LinkLabels};

/// Labels that name a trace or a span.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Traces")]
pub(in crate::cli) struct Labels {
    /// A label of pprof files that names a trace, with 32 hexadecimal digits; after `=decimal` with a decimal number, as
    /// in `trace id=decimal` of Datadog. Given several times, the first that a sample has counts, and links are written
    /// with the first. An empty KEY means none. Default: `trace_id`.
    #[arg(long, value_name = "KEY[=FORMAT]", value_parser = label)]
    trace_id_label: Vec<IdLabel>,
    /// The same for spans, with 16 hexadecimal digits. Default: `span_id`.
    #[arg(long, value_name = "KEY[=FORMAT]", value_parser = label)]
    span_id_label: Vec<IdLabel>,
}

impl Labels {
    pub(super) fn links(&self) -> LinkLabels {
        let default = LinkLabels::default();
        let given = |labels: &[IdLabel], default: Vec<IdLabel>| match labels {
            [] => default,
            labels => {
                let named = labels.iter().filter(|label| !label.key.is_empty());
                named.cloned().collect()
            }
        };
        LinkLabels {
            trace: given(&self.trace_id_label, default.trace),
            span: given(&self.span_id_label, default.span),
        }
    }
}

fn label(text: &str) -> Result<IdLabel, String> {
    let (key, format) = match text.rsplit_once('=') {
        None | Some((_, "hex")) => (text.strip_suffix("=hex").unwrap_or(text), IdFormat::Hex),
        Some((key, "decimal")) => (key, IdFormat::Decimal),
        Some((_, format)) => {
            return Err(format!("no format is `{format}`; there are: hex, decimal"));
        }
    };
    Ok(IdLabel {
        key: key.to_owned(),
        format,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key_and_a_format() {
        let of = |text: &str| label(text).map(|label| (label.key, label.format));
        assert_eq!(of("trace_id"), Ok(("trace_id".into(), IdFormat::Hex)));
        assert_eq!(of("a b=hex"), Ok(("a b".into(), IdFormat::Hex)));
        assert_eq!(
            of("span id=decimal"),
            Ok(("span id".into(), IdFormat::Decimal))
        );
        assert!(of("a=octal").unwrap_err().contains("octal"));
    }

    #[test]
    fn labels_given_replace_the_default_and_an_empty_one_means_none() {
        let arguments = Labels {
            trace_id_label: vec![label("a").unwrap(), label("b=decimal").unwrap()],
            span_id_label: vec![label("").unwrap()],
        };
        let links = arguments.links();
        assert_eq!(links.trace, arguments.trace_id_label);
        assert_eq!(links.span, []);
        assert_eq!(Labels::default().links(), LinkLabels::default());
    }
}
