//! Pages in the text formats, compared with Prometheus' own package. `tests/generators/textparse` wrote the pages and
//! the expected entries.

use serde::Deserialize;
use tributary_prometheus::{
    ExemplarSample, ExpositionFormat, HistogramOptions, PageEntry, ScrapedPage,
};

#[derive(Deserialize)]
struct Line {
    open: bool,
    page: String,
    entries: Vec<Expected>,
    fault: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Expected {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    text: String,
    #[serde(default)]
    labels: Vec<(String, String)>,
    time: Option<i64>,
    #[serde(default)]
    exemplars: Vec<String>,
}

/// Bits of a number, with one NaN.
fn bits(value: f64) -> String {
    let bits = if value.is_nan() {
        0x7ff8_0000_0000_0001
    } else {
        value.to_bits()
    };
    format!("{bits:016x}")
}

/// Writes an exemplar as the generator does.
fn exemplar(exemplar: ExemplarSample) -> String {
    let ExemplarSample {
        mut labels,
        value,
        timestamp,
    } = exemplar;
    labels.sort();
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    let (has_time, time) = (timestamp.is_some(), timestamp.unwrap_or(0));
    format!(
        "{{{}}} {} {has_time} {time}",
        labels.join(", "),
        bits(value)
    )
}

fn read(line: &Line) -> (Vec<Expected>, Option<String>) {
    let format = if line.open {
        ExpositionFormat::OpenMetrics
    } else {
        ExpositionFormat::Text
    };
    let Ok(mut page) = ScrapedPage::new(format, line.page.as_bytes(), HistogramOptions::default())
    else {
        unreachable!("the generator writes UTF-8")
    };
    let mut entries = Vec::new();
    let metadata = |kind: &str, name: &str, text: &str| Expected {
        kind: kind.to_owned(),
        name: name.to_owned(),
        text: text.to_owned(),
        labels: Vec::new(),
        time: None,
        exemplars: Vec::new(),
    };
    loop {
        let entry = match page.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return (entries, None),
            Err(fault) => return (entries, Some(fault.to_string())),
        };
        entries.push(match entry {
            PageEntry::Kind { family, kind } => metadata("type", &family, kind.name()),
            PageEntry::Help { family, text } => metadata("help", &family, &text),
            PageEntry::Unit { family, unit } => metadata("unit", &family, &unit),
            PageEntry::Histogram(_) => unreachable!("the text formats have no native histograms"),
            PageEntry::Sample(sample) => Expected {
                kind: "sample".to_owned(),
                name: String::new(),
                text: bits(sample.value),
                labels: page.labels().sorted(),
                time: sample.timestamp,
                exemplars: page.exemplars().into_iter().map(exemplar).collect(),
            },
        });
    }
}

#[test]
fn pages_are_read_as_by_prometheus() {
    for (number, line) in include_str!("golden/pages.jsonl").lines().enumerate() {
        let line: Line = serde_json::from_str(line).unwrap();
        let (entries, fault) = read(&line);
        let shown = format!(
            "line {}: {:?}\n{:?} {fault:?}",
            number + 1,
            line.page,
            line.fault
        );
        assert_eq!(fault.is_some(), !line.fault.is_empty(), "{shown}");
        // Prometheus reports some mistakes at the line after.
        let most = match fault {
            Some(_) => entries.len().min(line.entries.len()),
            None => usize::MAX,
        };
        let first = |entries: Vec<Expected>| entries.into_iter().take(most).collect::<Vec<_>>();
        assert_eq!(first(entries), first(line.entries), "{shown}");
    }
}
