//! The text format, version 0.0.4:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>.

use crate::entry::{Kind, PageEntry, PageSample};
use crate::escape::unescaped_help;
use crate::fault::{PageFault, shortened};
use crate::scan::{Rules, TextPage};

/// Reads the next entry; `None` at the end of the page.
pub(crate) fn next<'p>(page: &mut TextPage<'p>) -> Result<Option<PageEntry<'p>>, PageFault> {
    loop {
        page.scan.skip_blanks();
        match page.scan.peek() {
            None => return Ok(None),
            Some(b'\n') => {
                page.scan.skip("\n");
            }
            Some(b'#') => {
                if let Some(entry) = metadata(page)? {
                    return Ok(Some(entry));
                }
            }
            Some(b'{' | b'_' | b':' | b'a'..=b'z' | b'A'..=b'Z') => {
                page.scan.series(Rules::Lenient, &mut page.series)?;
                return sample(page).map(Some);
            }
            Some(_) => return Err(page.scan.expected("a metric name, `{` or `#`")),
        }
    }
}

/// Reads a comment. Returns its metadata, if it has any.
fn metadata<'p>(page: &mut TextPage<'p>) -> Result<Option<PageEntry<'p>>, PageFault> {
    let scan = &mut page.scan;
    scan.skip("#");
    let is_help = match scan.skip_blanks() {
        true if scan.skip("HELP") => true,
        true if scan.skip("TYPE") => false,
        _ => {
            scan.rest_of_line();
            return Ok(None);
        }
    };
    if !scan.skip_blanks() {
        scan.rest_of_line();
        return Ok(None);
    }
    let family = scan.family()?.into();
    let rest = scan.rest_of_line();
    let text = match rest.trim_matches([' ', '\t']).is_empty() {
        true => "",
        // The separator is one byte, whichever it is.
        false => match rest.get(1..) {
            Some(text) => text,
            None => return Err(scan.expected("a blank after the name of the metric family")),
        },
    };
    if is_help {
        return Ok(Some(PageEntry::Help {
            family,
            text: unescaped_help(text),
        }));
    }
    let kind = match text {
        "counter" => Kind::Counter,
        "gauge" => Kind::Gauge,
        "histogram" => Kind::Histogram,
        "summary" => Kind::Summary,
        "untyped" => Kind::Unknown,
        other => return Err(scan.fault(format!("`{}` is not a metric type", shortened(other)))),
    };
    Ok(Some(PageEntry::Kind { family, kind }))
}

/// Reads the value and the timestamp of a sample.
fn sample<'p>(page: &mut TextPage<'p>) -> Result<PageEntry<'p>, PageFault> {
    let scan = &mut page.scan;
    scan.skip_blanks();
    let word = scan.run(|byte| !matches!(byte, b'{' | b' ' | b'\t' | b'\n'));
    let value = scan.number(word, "value of the sample")?;
    scan.skip_blanks();
    let digits = scan.run(|byte| byte.is_ascii_digit());
    let timestamp = match digits {
        "" => None,
        digits => Some(digits.parse().map_err(|_| {
            scan.fault(format!(
                "the timestamp {} is out of range",
                shortened(digits)
            ))
        })?),
    };
    scan.skip_blanks();
    if !scan.is_at_end() && scan.peek() != Some(b'\n') {
        return Err(scan.expected("a timestamp in milliseconds or the end of the line"));
    }
    page.sample = PageSample {
        value,
        timestamp,
        start: None,
    };
    Ok(PageEntry::Sample(page.sample))
}
