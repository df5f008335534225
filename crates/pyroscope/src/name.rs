//! The parameter `name` of `/ingest`: a service with labels, as in `checkout.cpu{region=eu,pod="a-1"}`.

use crate::labels::{Label, LabelError, MAX_LABELS, MAX_VALUE, check};

/// A parsed name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesName {
    /// Name before the labels, with the suffix of a type if the agent adds one.
    pub service: String,
    /// The labels, in the order of the text. Of equal names, the last one counts.
    pub labels: Vec<Label>,
}

/// The reason why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The service has no name, or one that is too long or has control characters.
    #[error(
        "the service must have a name of 1 to {MAX_VALUE} characters before the labels, as in `checkout{{pod=a}}`"
    )]
    Service,
    /// The text ends within the labels, or a label has no `=`.
    #[error("the labels must have the form `{{key=value,key=value}}`")]
    Syntax,
    /// A label is not acceptable.
    #[error(transparent)]
    Label(#[from] LabelError),
}

/// Parses a name. Quotes around a value are not part of the value; without quotes a value ends at `,` or `}`.
///
/// # Errors
/// See [`NameError`].
pub fn parse(text: &str) -> Result<SeriesName, NameError> {
    let (service, labels) = match text.split_once('{') {
        Some((service, labels)) => (service, Some(labels)),
        None => (text, None),
    };
    let service = service.trim();
    if service.is_empty() || service.len() > MAX_VALUE || service.contains(char::is_control) {
        return Err(NameError::Service);
    }
    let mut parsed = SeriesName {
        service: service.to_owned(),
        labels: Vec::new(),
    };
    let mut rest = labels.unwrap_or("}").trim_start();
    while !rest.starts_with('}') {
        let (name, after) = rest.split_once('=').ok_or(NameError::Syntax)?;
        let (value, after) = value(after.trim_start())?;
        let (name, value) = (name.trim(), value.trim());
        check(name, value)?;
        parsed.labels.retain(|(known, _)| known != name);
        if parsed.labels.len() == MAX_LABELS {
            return Err(LabelError::TooMany.into());
        }
        parsed.labels.push((name.to_owned(), value.to_owned()));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
    Ok(parsed)
}

/// Returns the value at the start of a text, and the rest from its `,` or `}` on.
fn value(text: &str) -> Result<(&str, &str), NameError> {
    let ends = |rest: &str| rest.trim_start().starts_with([',', '}']);
    if let Some((value, rest)) = text.strip_prefix('"').and_then(|text| text.split_once('"'))
        && ends(rest)
    {
        return Ok((value, rest));
    }
    let end = text.find([',', '}']).ok_or(NameError::Syntax)?;
    Ok(text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap().labels
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn labels_are_read_with_and_without_quotes() {
        assert_eq!(parse(" a.cpu ").unwrap().service, "a.cpu");
        assert_eq!(labels("a.cpu{}"), []);
        let both = pairs(&[("k", "v"), ("pod", "a b")]);
        assert_eq!(labels("a{k=v,pod=a b}"), both);
        assert_eq!(labels("a{ k = \"v\" , pod=\"a b\" }"), both);
        assert_eq!(
            labels("a{k=\"x,}\",e=,}"),
            pairs(&[("k", "x,}"), ("e", "")])
        );
        assert_eq!(labels("a{k=1,k=2}"), pairs(&[("k", "2")]));
        // An unbalanced quote is part of the value, as in Pyroscope.
        assert_eq!(labels("a{k=\"v}"), pairs(&[("k", "\"v")]));
    }

    #[test]
    fn malformed_names_are_refused() {
        for text in ["", "{}", " {a=b}", "a\nb"] {
            assert_eq!(parse(text), Err(NameError::Service), "{text}");
        }
        for text in ["a{", "a{b", "a{b}", "a{b=c", "a{b=c,d}"] {
            assert_eq!(parse(text), Err(NameError::Syntax), "{text}");
        }
        assert!(matches!(parse("a{b c=d}"), Err(NameError::Label(_))));
        let many: Vec<String> = (0..=MAX_LABELS).map(|at| format!("k{at}=v")).collect();
        let many = |count: usize| parse(&format!("a{{{}}}", many[..count].join(",")));
        assert_eq!(many(MAX_LABELS).unwrap().labels.len(), MAX_LABELS);
        assert_eq!(many(MAX_LABELS + 1), Err(LabelError::TooMany.into()));
    }
}
