//! Pages that are damaged at random are read or refused, without a panic, in bounded memory.

use proptest::prelude::*;
use tributary_prometheus::{
    ExpositionFormat, HistogramOptions, MAX_BUCKETS, PageEntry, ScrapedPage,
};

/// Reads a page to its end or first mistake. Returns the number of buckets of native histograms.
fn read(format: ExpositionFormat, bytes: &[u8]) -> usize {
    let options = HistogramOptions {
        native_histograms: true,
        classic_beside_native: true,
    };
    let mut buckets = 0;
    let Ok(mut page) = ScrapedPage::new(format, bytes, options) else {
        return 0;
    };
    while let Ok(Some(entry)) = page.next() {
        match entry {
            PageEntry::Histogram(native) => {
                buckets += native.positive.counts.len() + native.negative.counts.len();
            }
            PageEntry::Sample(_) => {}
            _ => continue,
        }
        assert!(!page.series().is_empty());
        assert!(page.labels().get("__name__").is_some());
        page.exemplars();
    }
    buckets
}

/// A valid page of each format.
fn pages() -> Vec<(ExpositionFormat, Vec<u8>)> {
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../src/receivers/prometheus/tests/cases"
    );
    let page = |name: &str| std::fs::read(format!("{cases}/{name}")).unwrap_or_default();
    vec![
        (ExpositionFormat::Text, page("text/1.txt")),
        (ExpositionFormat::OpenMetrics, page("openmetrics/1.om")),
        (ExpositionFormat::Protobuf, page("protobuf/1.pb")),
    ]
}

proptest! {
    #[test]
    fn damaged_page_is_read_or_refused(
        choice in 0..3usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..8),
    ) {
        let (format, mut page) = pages().swap_remove(choice);
        prop_assert!(!page.is_empty());
        for (index, byte, change) in changes {
            let at = index.index(page.len());
            match change {
                0 => page[at] = byte,
                1 => page.insert(at, byte),
                _ => page.truncate(at.max(1)),
            }
        }
        prop_assert!(read(format, &page) <= MAX_BUCKETS);
    }

    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [ExpositionFormat::Text, ExpositionFormat::OpenMetrics, ExpositionFormat::Protobuf] {
            prop_assert!(read(format, &bytes) <= MAX_BUCKETS);
        }
    }
}
