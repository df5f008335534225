//! The collector's own metrics, read from a page in Prometheus' text format.

use std::collections::HashMap;

/// Samples of a page, by metric.
#[derive(Debug, Default)]
pub struct Page {
    metrics: HashMap<String, Vec<MetricSample>>,
}

/// A sample of a metric.
#[derive(Debug, Default)]
pub struct MetricSample {
    labels: Vec<(String, String)>,
    /// Value of the sample.
    pub value: f64,
}

impl Page {
    /// Parses a page, ignoring lines without a sample.
    pub fn parse(text: &str) -> Self {
        let mut metrics: HashMap<String, Vec<MetricSample>> = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, sample)) = sample(line) {
                match metrics.get_mut(name) {
                    Some(samples) => samples.push(sample),
                    None => {
                        metrics.insert(name.to_owned(), vec![sample]);
                    }
                }
            }
        }
        Page { metrics }
    }

    /// Returns the samples of a metric.
    pub fn samples(&self, name: &str) -> &[MetricSample] {
        self.metrics.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the sum of the samples that have all these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matching = self.samples(name).iter();
        let matching = matching.filter(|sample| {
            labels
                .iter()
                .all(|(key, value)| sample.label(key) == *value)
        });
        // The sum of no numbers is -0.0.
        matching
            .map(|sample| sample.value)
            .fold(0.0, |total, value| total + value)
    }
}

impl MetricSample {
    /// Returns the value of a label; empty if the sample does not have the label.
    pub fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }
}

fn sample(line: &str) -> Option<(&str, MetricSample)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((key.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.trim().parse().ok()?;
    Some((name, MetricSample { labels, value }))
}

/// Reads a label value after its opening quote. Returns the value and the text after the closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            char => value.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_escaped_labels() {
        let page = Page::parse(
            "# HELP a Text\n# TYPE a counter\na{x=\"1\",y=\"q\\\"\\n\\\\, }\"} 2.5\na{x=\"1\"} 1\na{x=\"2\"} 4\nb 3\nnonsense\n",
        );
        assert_eq!(page.samples("a").len(), 3);
        assert_eq!(page.samples("a")[0].label("y"), "q\"\n\\, }");
        assert!((page.sum("a", &[("x", "1")]) - 3.5).abs() < 1e-9);
        assert!((page.sum("b", &[]) - 3.0).abs() < 1e-9);
        assert!(page.samples("c").is_empty() && page.sum("c", &[]).is_sign_positive());
    }
}
