//! Labels of pprof files that identify traces and spans.

use clap::Args;

use tributary_profiles::pprof::{IdLabel, LabelError, LinkLabels};

/// Labels that identify a trace or a span.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Traces")]
pub(in crate::app::cli) struct Labels {
    /// Label of pprof files with a trace id of 32 hexadecimal digits; with `=decimal` appended, a
    /// decimal number, as in `trace id=decimal` of Datadog. If given several times, the first label
    /// that a sample has is read, and links are written with the first one. An empty KEY means
    /// none. Default: `trace_id`.
    #[arg(long, value_name = "KEY[=FORMAT]", value_parser = label)]
    trace_id_label: Vec<Given>,
    /// Label of pprof files with a span id of 16 hexadecimal digits, in the same forms. Default:
    /// `span_id`.
    #[arg(long, value_name = "KEY[=FORMAT]", value_parser = label)]
    span_id_label: Vec<Given>,
}

impl Labels {
    pub(super) fn links(&self) -> LinkLabels {
        let default = LinkLabels::default();
        let given = |labels: &[Given], default: Vec<IdLabel>| match labels {
            [] => default,
            labels => labels
                .iter()
                .flat_map(|Given(label)| label.clone())
                .collect(),
        };
        LinkLabels {
            trace: given(&self.trace_id_label, default.trace),
            span: given(&self.span_id_label, default.span),
        }
    }
}

/// A label; `None` for an empty text.
#[derive(Debug, Clone, PartialEq)]
struct Given(Option<IdLabel>);

fn label(text: &str) -> Result<Given, LabelError> {
    let label = (!text.is_empty()).then(|| text.parse()).transpose()?;
    Ok(Given(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_labels_replace_default_and_empty_means_none() {
        let arguments = Labels {
            trace_id_label: vec![label("a").unwrap(), label("b=decimal").unwrap()],
            span_id_label: vec![label("").unwrap()],
        };
        let links = arguments.links();
        assert_eq!(
            links.trace,
            ["a".parse().unwrap(), "b=decimal".parse().unwrap()]
        );
        assert_eq!(links.span, []);
        assert_eq!(Labels::default().links(), LinkLabels::default());
    }
}
