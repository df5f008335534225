//! OpenMetrics' text format, version 1.0: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use crate::entry::{Kind, PageEntry, PageSample};
use crate::escape::unescaped;
use crate::fault::{PageFault, shortened};
use crate::scan::{Rules, TextPage};

/// Reads the next entry; `None` at `# EOF`.
pub(crate) fn next<'p>(page: &mut TextPage<'p>) -> Result<Option<PageEntry<'p>>, PageFault> {
    match page.scan.peek() {
        None => Err(page
            .scan
            .fault("the page does not end with `# EOF`; it may be truncated")),
        Some(b'#') => metadata(page),
        Some(b'{' | b'_' | b':' | b'a'..=b'z' | b'A'..=b'Z') => {
            page.scan.series(Rules::Strict, &mut page.series)?;
            sample(page).map(Some)
        }
        Some(_) => Err(page.scan.expected("a metric name, `{` or `# `")),
    }
}

fn metadata<'p>(page: &mut TextPage<'p>) -> Result<Option<PageEntry<'p>>, PageFault> {
    let scan = &mut page.scan;
    if scan.skip("# EOF") {
        scan.skip("\n");
        return match scan.is_at_end() {
            true => Ok(None),
            false => Err(scan.fault("there is text after `# EOF`")),
        };
    }
    let keywords = ["# HELP ", "# TYPE ", "# UNIT "];
    let Some(keyword) = keywords.into_iter().find(|keyword| scan.skip(keyword)) else {
        return Err(scan.expected("`# HELP `, `# TYPE `, `# UNIT ` or `# EOF`"));
    };
    let family = scan.family()?;
    if !scan.skip(" ") {
        return Err(scan.expected("a blank after the name of the metric family"));
    }
    let text = scan.rest_of_line();
    if scan.is_at_end() {
        return Err(scan.fault("the page does not end with `# EOF`; it may be truncated"));
    }
    let entry = match keyword {
        "# HELP " => PageEntry::Help {
            family: family.into(),
            text: unescaped(text),
        },
        "# TYPE " => PageEntry::Kind {
            family: family.into(),
            kind: kind(text)
                .ok_or_else(|| scan.fault(format!("`{}` is not a metric type", shortened(text))))?,
        },
        _ => {
            let base = family.strip_suffix(text);
            if !text.is_empty() && !base.is_some_and(|base| base.ends_with('_')) {
                return Err(scan.fault(format!(
                    "the name `{}` does not end with its unit `_{}`",
                    shortened(family),
                    shortened(text)
                )));
            }
            PageEntry::Unit {
                family: family.into(),
                unit: text.into(),
            }
        }
    };
    scan.skip("\n");
    Ok(Some(entry))
}

fn kind(text: &str) -> Option<Kind> {
    Some(match text {
        "counter" => Kind::Counter,
        "gauge" => Kind::Gauge,
        "histogram" => Kind::Histogram,
        "gaugehistogram" => Kind::GaugeHistogram,
        "summary" => Kind::Summary,
        "info" => Kind::Info,
        "stateset" => Kind::StateSet,
        "unknown" => Kind::Unknown,
        _ => return None,
    })
}

/// Reads the value, the timestamp and the exemplar of a sample.
fn sample<'p>(page: &mut TextPage<'p>) -> Result<PageEntry<'p>, PageFault> {
    let scan = &mut page.scan;
    if !scan.skip(" ") {
        return Err(scan.expected("a blank and the value of the sample"));
    }
    let word = scan.word();
    let value = scan.number(word, "value of the sample")?;
    let mut has_exemplar = scan.skip(" # {");
    let mut timestamp = None;
    if !has_exemplar && scan.skip(" ") {
        timestamp = Some(scan.seconds("timestamp")?);
        has_exemplar = scan.skip(" # {");
    }
    page.exemplar = match has_exemplar {
        true => scan.exemplar()?,
        false => None,
    };
    match scan.peek() {
        Some(b'\n') => scan.skip("\n"),
        None => return Err(scan.fault("the page does not end with `# EOF`; it may be truncated")),
        Some(_) => return Err(scan.expected("a timestamp, an exemplar or the end of the line")),
    };
    page.sample = PageSample {
        value,
        timestamp,
        start: None,
    };
    Ok(PageEntry::Sample(page.sample))
}
