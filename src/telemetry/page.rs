//! Text of the page of metrics: labels, names and order, in Prometheus' text format.

use std::collections::HashSet;
use std::fmt::Write;

/// Sorts the metrics and the series of each metric: the recorder's order differs between starts.
pub(super) fn ordered(page: &str) -> String {
    let mut metrics: Vec<Vec<&str>> = Vec::new();
    for line in page.split_inclusive('\n').filter(|line| *line != "\n") {
        let begins = line.starts_with("# HELP ")
            || line.starts_with("# TYPE ")
                && !metrics
                    .last()
                    .is_some_and(|metric| metric.len() == 1 && metric[0].starts_with("# HELP "));
        match metrics.last_mut() {
            Some(metric) if !begins => metric.push(line),
            _ => metrics.push(vec![line]),
        }
    }
    let name = |metric: &[&str]| {
        let first = metric.first().copied().unwrap_or_default();
        first.split(' ').nth(2).unwrap_or_default().to_owned()
    };
    metrics.sort_by_cached_key(|metric| name(metric));
    for metric in &mut metrics {
        // The sort is stable: the buckets of a histogram keep their order.
        metric.sort_by_cached_key(|line| series(line));
    }
    metrics.concat().concat()
}

/// Adds `_total` to the names of counters, as Prometheus' linter requires.
pub(super) fn with_totals(page: &str) -> String {
    let counters: HashSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .filter(|name| !name.ends_with("_total"))
        .collect();
    let mut with = String::with_capacity(page.len() + page.len() / 16);
    for line in page.split_inclusive('\n') {
        let comment = ["# HELP ", "# TYPE "].into_iter();
        let start = comment
            .filter(|comment| line.starts_with(comment))
            .map(str::len)
            .sum();
        let (before, rest) = line.split_at(start);
        let end = rest.find([' ', '{']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let total = if counters.contains(name) {
            "_total"
        } else {
            ""
        };
        with.extend([before, name, total, rest]);
    }
    with
}

/// Adds these attributes as labels to every series that does not have them.
pub(super) fn labelled(page: String, attributes: &[(String, String)]) -> String {
    if attributes.is_empty() {
        return page;
    }
    let constant = labels(attributes);
    let mut out = String::with_capacity(page.len() * 2);
    for line in page.split_inclusive('\n') {
        if line.starts_with('#') || line.starts_with("target_info") {
            out.push_str(line);
        } else if let Some((name, rest)) = line.split_once('{') {
            let _ = write!(out, "{name}{{{constant},{rest}");
        } else if let Some((name, value)) = line.split_once(' ') {
            let _ = write!(out, "{name}{{{constant}}} {value}");
        }
    }
    out
}

/// Formats attributes as labels. Characters that Prometheus does not allow in a name become `_`.
pub(super) fn labels(attributes: &[(String, String)]) -> String {
    let allowed = |c: char| match c.is_ascii_alphanumeric() {
        true => c,
        false => '_',
    };
    let labels = attributes.iter().map(|(key, value)| {
        let key: String = key.chars().map(allowed).collect();
        format!("{key}=\"{}\"", escaped(value))
    });
    labels.collect::<Vec<_>>().join(",")
}

pub(super) fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Returns the sort key of a line: comments first, then the labels without the bound of a bucket.
fn series(line: &str) -> (bool, String) {
    if line.starts_with('#') {
        return (false, String::new());
    }
    let labels = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    let mut labels = labels.map_or("", |(labels, _)| labels).to_owned();
    if let Some(begin) = labels.rfind("le=\"") {
        labels.truncate(begin);
    }
    (true, labels.trim_end_matches(',').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_suffix_follows_setting() {
        let page = "# HELP sent_spans Number of sent_spans that were sent_spans\n# TYPE sent_spans counter\n\
                    sent_spans{exporter=\"sent_spans\"} 1\nsent_spans 2\n# TYPE size gauge\nsize 3\n\
                    # TYPE seen_total counter\nseen_total 4\n";
        let expected = "# HELP sent_spans_total Number of sent_spans that were sent_spans\n\
                        # TYPE sent_spans_total counter\nsent_spans_total{exporter=\"sent_spans\"} 1\n\
                        sent_spans_total 2\n# TYPE size gauge\nsize 3\n# TYPE seen_total counter\nseen_total 4\n";
        assert_eq!(with_totals(page), expected);
    }

    #[test]
    fn attributes_are_labels_of_every_series() {
        let page =
            "# TYPE a counter\na 1\nb{x=\"1\"} 2\ntarget_info{service_name=\"s\"} 1\n".to_owned();
        let attributes = [("service.name".to_owned(), "s".to_owned())];
        assert_eq!(
            labelled(page, &attributes),
            "# TYPE a counter\na{service_name=\"s\"} 1\nb{service_name=\"s\",x=\"1\"} 2\n\
             target_info{service_name=\"s\"} 1\n"
        );
    }

    #[test]
    fn page_order_does_not_depend_on_recorder() {
        let page = "# HELP b B\n# TYPE b histogram\nb_bucket{x=\"2\",le=\"5\"} 1\nb_bucket{x=\"2\",le=\"10\"} 1\n\
                    b_sum{x=\"2\"} 3\nb_count{x=\"2\"} 1\nb_bucket{x=\"1\",le=\"5\"} 1\nb_sum{x=\"1\"} 3\n\n\
                    # TYPE a counter\na{y=\"2\"} 1\na{y=\"1\"} 1\n\n";
        let expected = "# TYPE a counter\na{y=\"1\"} 1\na{y=\"2\"} 1\n# HELP b B\n# TYPE b histogram\n\
                        b_bucket{x=\"1\",le=\"5\"} 1\nb_sum{x=\"1\"} 3\nb_bucket{x=\"2\",le=\"5\"} 1\n\
                        b_bucket{x=\"2\",le=\"10\"} 1\nb_sum{x=\"2\"} 3\nb_count{x=\"2\"} 1\n";
        assert_eq!(ordered(page), expected);
    }
}
