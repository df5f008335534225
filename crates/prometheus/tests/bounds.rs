//! Pages that would take far more time or memory than their size are refused, or read in part.

#![allow(clippy::unwrap_used)]

use tributary_prometheus::{
    ExpositionFormat, HistogramOptions, MAX_LABELS, MAX_SERIES_BYTES, PageEntry, ScrapedPage,
};

/// Reads a page. Returns the number of samples and of their exemplars, and the mistake.
fn read(
    format: ExpositionFormat,
    bytes: &[u8],
    label_limit: usize,
) -> (usize, usize, Option<String>) {
    let options = HistogramOptions {
        native_histograms: true,
        classic_beside_native: false,
    };
    let page = ScrapedPage::new(format, bytes, options).unwrap();
    let mut page = page.with_label_limit(label_limit);
    let (mut samples, mut exemplars) = (0, 0);
    loop {
        match page.next() {
            Ok(None) => return (samples, exemplars, None),
            Err(fault) => return (samples, exemplars, Some(fault.to_string())),
            Ok(Some(PageEntry::Sample(_) | PageEntry::Histogram(_))) => {
                samples += 1;
                exemplars += page.exemplars().len();
            }
            Ok(Some(_)) => {}
        }
    }
}

fn varint(mut value: usize, output: &mut Vec<u8>) {
    while value >= 0x80 {
        output.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

/// Returns a field that is a message or text.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    varint(usize::from(number) << 3 | 2, &mut output);
    varint(content.len(), &mut output);
    output.extend_from_slice(content);
    output
}

fn double(number: u8, value: f64) -> Vec<u8> {
    let mut output = vec![number << 3 | 1];
    output.extend(value.to_le_bytes());
    output
}

fn label(name: &str, value: &str) -> Vec<u8> {
    [field(1, name.as_bytes()), field(2, value.as_bytes())].concat()
}

/// Returns a page with one metric: its labels, and its value in the field `number`.
fn page(kind: u8, number: u8, labels: &[Vec<u8>], value: &[u8]) -> Vec<u8> {
    let labels: Vec<u8> = labels.iter().flat_map(|label| field(1, label)).collect();
    let metric = [labels, field(number, value)].concat();
    let family = [field(1, b"h"), vec![0x18, kind], field(4, &metric)].concat();
    let mut page = Vec::new();
    varint(family.len(), &mut page);
    page.extend(family);
    page
}

fn histogram(labels: &[Vec<u8>], value: &[u8]) -> Vec<u8> {
    page(4, 7, labels, value)
}

#[track_caller]
fn refused(page: &[u8], reason: &str) {
    let (_, _, fault) = read(ExpositionFormat::Protobuf, page, 0);
    let fault = fault.unwrap();
    assert!(fault.contains(reason), "{fault}");
}

#[test]
fn labels_of_a_series_are_bounded() {
    let many = |count: usize| -> String {
        let labels: String = (0..count).map(|at| format!("l{at}=\"\",")).collect();
        format!("a{{{labels}}} 1\n# EOF\n")
    };
    let few = many(MAX_LABELS);
    assert_eq!(
        read(
            ExpositionFormat::OpenMetrics,
            few.replace(",}", "}").as_bytes(),
            0
        )
        .0,
        1
    );
    let more = many(MAX_LABELS + 1);
    for format in [ExpositionFormat::Text, ExpositionFormat::OpenMetrics] {
        let fault = read(format, more.as_bytes(), 0).2.unwrap();
        assert!(fault.contains("more than 1024 labels"), "{fault}");
    }
    let raised = read(ExpositionFormat::Text, more.as_bytes(), MAX_LABELS + 1);
    assert_eq!((raised.0, raised.2), (1, None));
    let labels: Vec<Vec<u8>> = (0..=MAX_LABELS)
        .map(|at| label(&format!("l{at}"), ""))
        .collect();
    refused(&histogram(&labels, &[]), "more than 1024 labels");
}

#[test]
fn bytes_of_a_series_are_bounded() {
    let long = "x".repeat(MAX_SERIES_BYTES);
    for text in [format!("a{{b=\"{long}\"}} 1\n"), format!("{long}x 1\n")] {
        let fault = read(ExpositionFormat::Text, text.as_bytes(), 0).2.unwrap();
        assert!(fault.contains("more than 131072 bytes"), "{fault}");
    }
    refused(
        &histogram(&[label("b", &long)], &[]),
        "more than 131072 bytes",
    );
    let family = field(1, &[b'x'; 4097]);
    let mut page = Vec::new();
    varint(family.len(), &mut page);
    page.extend(family);
    refused(&page, "more than 4096 bytes");
}

/// Each repetition would cost a copy of all labels.
#[test]
fn repeated_bounds_and_many_quantiles_are_refused() {
    let empty = field(3, &[]);
    refused(
        &histogram(&[], &empty.repeat(2)),
        "the bound 0 of a bucket is not above the bound before it, 0",
    );
    let quantile = field(3, &double(1, 0.5));
    let most = read(
        ExpositionFormat::Protobuf,
        &page(2, 4, &[], &quantile.repeat(100)),
        0,
    );
    assert_eq!((most.0, most.2), (102, None));
    refused(
        &page(2, 4, &[], &quantile.repeat(101)),
        "more than 100 quantiles",
    );
}

#[test]
fn native_buckets_are_counted_while_they_are_read() {
    // A zero threshold makes the histogram a native one. The spans are missing, which is reported at the end only.
    let threshold = double(6, 1.0);
    let deltas = field(13, &vec![0; (1 << 20) + 1]);
    let counts = field(14, &vec![0; ((1 << 20) + 1) * 8]);
    let spans = field(12, &[]).repeat((1 << 20) + 1);
    for buckets in [deltas, counts, spans] {
        let page = histogram(&[], &[threshold.clone(), buckets].concat());
        refused(&page, "more than 1048576 buckets");
    }
}

#[test]
fn long_exemplars_are_dropped_and_many_are_cut() {
    for (length, kept) in [(127, 1), (128, 0)] {
        let value = "\u{e9}".repeat(length);
        let text = format!("a_total 1 # {{b=\"{value}\"}} 1 1\n# EOF\n");
        let found = read(ExpositionFormat::OpenMetrics, text.as_bytes(), 0);
        assert_eq!(found, (1, kept, None));
        let time = field(3, &[0x08, 1]);
        let exemplar = [field(1, &label("b", &value)), time].concat();
        let counter = field(2, &exemplar);
        let found = read(ExpositionFormat::Protobuf, &page(0, 3, &[], &counter), 0);
        assert_eq!(found, (1, kept, None));
    }
    let exemplar = [0x82, 1, 4, 0x1a, 2, 0x08, 1];
    let value = [double(6, 1.0), exemplar.repeat(300)].concat();
    let found = read(ExpositionFormat::Protobuf, &histogram(&[], &value), 0);
    assert_eq!(found, (1, 256, None));
}
