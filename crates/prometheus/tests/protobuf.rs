//! Pages in the protobuf format, compared with Prometheus' own package. `tests/generators/protobuf` wrote the pages and
//! the expected entries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tributary_prometheus::{
    BucketRun, ExemplarSample, ExpositionFormat, HistogramOptions, NativeHistogram, PageEntry,
    ScrapedPage,
};

#[derive(Deserialize)]
struct Line {
    native: bool,
    classic: bool,
    page: String,
    entries: Vec<Expected>,
    fault: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Expected {
    #[serde(rename = "type")]
    kind: String,
    text: String,
    #[serde(default)]
    labels: Vec<(String, String)>,
    time: Option<i64>,
    #[serde(default)]
    start: i64,
    #[serde(default)]
    exemplars: Vec<String>,
}

fn bits(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    format!("{:016x}", value.to_bits())
}

fn exemplar(exemplar: ExemplarSample) -> String {
    let labels = exemplar.labels.iter();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    let (has_time, time) = (
        exemplar.timestamp.is_some(),
        exemplar.timestamp.unwrap_or(0),
    );
    format!(
        "{{{}}} {} {has_time} {time}",
        labels.join(", "),
        bits(exemplar.value)
    )
}

fn side(run: &BucketRun) -> String {
    let counts = (run.offset..)
        .zip(&run.counts)
        .filter(|(_, count)| **count > 0);
    counts
        .map(|(index, count)| format!(" {index}:{count}"))
        .collect()
}

fn native(histogram: &NativeHistogram) -> String {
    format!(
        "{} {} {} {} {} |{} |{}",
        histogram.schema,
        histogram.count,
        bits(histogram.sum),
        bits(histogram.zero_threshold),
        histogram.zero_count,
        side(&histogram.positive),
        side(&histogram.negative)
    )
}

fn read(bytes: &[u8], options: HistogramOptions) -> (Vec<Expected>, Option<String>) {
    let Ok(mut page) = ScrapedPage::new(ExpositionFormat::Protobuf, bytes, options) else {
        unreachable!("the generator writes UTF-8")
    };
    let mut entries = Vec::new();
    loop {
        let (kind, text, time, start) = match page.next() {
            Ok(None) => return (entries, None),
            Err(fault) => return (entries, Some(fault.to_string())),
            Ok(Some(PageEntry::Sample(sample))) => {
                ("sample", bits(sample.value), sample.timestamp, sample.start)
            }
            Ok(Some(PageEntry::Histogram(histogram))) => {
                let text = native(&histogram);
                ("histogram", text, histogram.timestamp, histogram.start)
            }
            Ok(Some(_)) => continue,
        };
        entries.push(Expected {
            kind: kind.to_owned(),
            text,
            labels: page.labels().sorted(),
            time,
            start: start.unwrap_or(0),
            exemplars: page.exemplars().into_iter().map(exemplar).collect(),
        });
    }
}

/// Removes the exemplars of all native histograms but the first. Prometheus loses them.
fn comparable(mut entries: Vec<Expected>) -> Vec<Expected> {
    let histograms = entries.iter_mut().filter(|entry| entry.kind == "histogram");
    histograms.skip(1).for_each(|entry| entry.exemplars.clear());
    entries
}

#[test]
fn protobuf_pages_are_read_as_by_prometheus() {
    for (number, line) in include_str!("golden/protobuf.jsonl").lines().enumerate() {
        let line: Line = serde_json::from_str(line).unwrap();
        let bytes = STANDARD.decode(&line.page).unwrap();
        let options = HistogramOptions {
            native_histograms: line.native,
            classic_beside_native: line.classic,
        };
        let (entries, fault) = read(&bytes, options);
        let shown = format!("line {}: {} {fault:?}", number + 1, line.fault);
        assert_eq!(fault.is_some(), !line.fault.is_empty(), "{shown}");
        assert_eq!(comparable(entries), comparable(line.entries), "{shown}");
    }
}

/// A few bytes of spans could otherwise take gigabytes.
#[test]
fn gaps_between_buckets_are_bounded() {
    let span = |offset: u8| [0x62, 4, 0x08, offset, 0x10, 1];
    let far = [0x62, 8, 0x08, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x10, 1];
    let mut histogram = span(2).to_vec();
    histogram.extend(far);
    histogram.extend([0x6a, 2, 2, 2]);
    let mut metric = vec![0x3a, u8::try_from(histogram.len()).unwrap()];
    metric.extend(histogram);
    let mut family = vec![
        0x0a,
        1,
        b'h',
        0x18,
        4,
        0x22,
        u8::try_from(metric.len()).unwrap(),
    ];
    family.extend(metric);
    let mut page = vec![u8::try_from(family.len()).unwrap()];
    page.extend(family);
    let options = HistogramOptions {
        native_histograms: true,
        classic_beside_native: false,
    };
    let (entries, fault) = read(&page, options);
    assert!(entries.is_empty());
    assert!(fault.unwrap().contains("have more than 1048576 buckets"));
}
