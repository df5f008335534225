//! Parses pages by the rules of the formats, independent of the writers.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A sample line of a page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) family: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
    /// Timestamp as written.
    pub(crate) time: Option<String>,
    pub(crate) exemplar: Option<BTreeMap<String, String>>,
}

/// The header lines of a family.
#[derive(Default)]
struct Head {
    kind: Option<String>,
    help: bool,
    unit: Option<String>,
}

/// Parses a page of one of the text formats.
///
/// # Errors
/// If the page is invalid, repeats a family or series, or has samples that do not belong to the
/// family above them.
pub(crate) fn read(page: &str, open_metrics: bool) -> Result<Vec<Sample>, String> {
    let page = match page.strip_suffix("# EOF\n") {
        Some(page) if open_metrics => page,
        None if !open_metrics => page,
        _ => return Err("the end is wrong".to_owned()),
    };
    if !page.is_empty() && !page.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    let mut families: HashSet<String> = HashSet::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut series = HashSet::new();
    let mut current = String::new();
    let mut head = Head::default();
    let mut samples: Vec<Sample> = Vec::new();
    for line in page.split_terminator('\n') {
        let wrong = |what: &str| format!("{what}: {line}");
        if let Some(comment) = line.strip_prefix("# ") {
            let (what, rest) = comment.split_once(' ').ok_or_else(|| wrong("no name"))?;
            let (name, text) = name(rest).ok_or_else(|| wrong("no name"))?;
            let text = text.strip_prefix(' ').ok_or_else(|| wrong("no text"))?;
            if name != current {
                if !families.insert(name.clone()) {
                    return Err(wrong("a family twice"));
                }
                (current, head) = (name, Head::default());
            }
            let twice = match what {
                "HELP" => std::mem::replace(&mut head.help, true),
                "TYPE" => head.kind.replace(text.to_owned()).is_some(),
                "UNIT" if open_metrics => head.unit.replace(text.to_owned()).is_some(),
                _ => return Err(wrong("no such comment")),
            };
            if twice {
                return Err(wrong("twice"));
            }
            if let Some(unit) = head
                .unit
                .as_ref()
                .filter(|unit| !current.ends_with(unit.as_str()))
            {
                return Err(wrong(&format!("not in {unit}")));
            }
            continue;
        }
        let mut sample = sample(line).ok_or_else(|| wrong("no sample"))?;
        let kind = head.kind.as_deref().ok_or_else(|| wrong("no type"))?;
        let suffix = sample.name.strip_prefix(current.as_str());
        let suffix = suffix.ok_or_else(|| wrong("another family's"))?;
        let suffixes: &[&str] = match (kind, open_metrics) {
            ("counter", true) => &["_total"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            ("summary", _) => &["", "_sum", "_count"],
            ("counter" | "untyped", false) | ("gauge", _) | ("unknown", true) => &[""],
            _ => return Err(wrong("no such type")),
        };
        if !suffixes.contains(&suffix) {
            return Err(wrong("not of its type"));
        }
        if (suffix == "_bucket") != sample.labels.contains_key("le") && kind == "histogram" {
            return Err(wrong("a bucket and `le` go together"));
        }
        let counts = ["_total", "_bucket", "_sum", "_count"].contains(&suffix);
        if open_metrics && counts && (sample.value.is_nan() || sample.value < 0.0) {
            return Err(wrong("what counts is below zero, or no number"));
        }
        let allowed = suffix == "_bucket" || (kind == "counter" && open_metrics);
        if sample.exemplar.is_some() && !(open_metrics && allowed) {
            return Err(wrong("an exemplar"));
        }
        let key = (sample.name.clone(), sample.labels.clone());
        if !series.insert(key) {
            return Err(wrong("a series twice"));
        }
        if samples.last().is_none_or(|last| last.family != current) {
            names.insert(current.clone());
        }
        sample.family.clone_from(&current);
        samples.push(sample);
    }
    buckets(&samples)?;
    Ok(samples)
}

/// Checks that the counts of buckets never fall, and that the last one equals the count.
fn buckets(samples: &[Sample]) -> Result<(), String> {
    let mut last: Option<&Sample> = None;
    for sample in samples {
        let without_le = |sample: &Sample| {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            (sample.family.clone(), labels)
        };
        let bound = |sample: &Sample| {
            sample
                .labels
                .get("le")
                .and_then(|le| le.parse::<f64>().ok())
        };
        if sample.labels.contains_key("le") && sample.name.ends_with("_bucket") {
            if let Some(last) = last.filter(|last| without_le(last) == without_le(sample))
                && (last.value > sample.value || bound(last) >= bound(sample))
            {
                return Err(format!("buckets do not grow: {sample:?}"));
            }
            last = Some(sample);
        } else if let Some(bucket) = last.filter(|last| without_le(last) == without_le(sample))
            && sample.name.ends_with("_count")
            && bucket.value != sample.value
        {
            return Err(format!("the count is not that of the buckets: {sample:?}"));
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample> {
    let (mut found, mut rest) = (None, line);
    if !line.starts_with('{') {
        let (name, after) = name(line)?;
        (found, rest) = (Some(name), after);
    }
    let mut labels = BTreeMap::new();
    if let Some(within) = rest.strip_prefix('{') {
        let (of_name, read, after) = braces(within)?;
        if found.is_some() && of_name.is_some() {
            return None;
        }
        found = found.or(of_name);
        (labels, rest) = (read, after);
    }
    let (rest, exemplar) = match rest.split_once(" # {") {
        Some((rest, exemplar)) => (rest, Some(exemplar)),
        None => (rest, None),
    };
    let exemplar = match exemplar {
        None => None,
        Some(exemplar) => {
            let (None, labels, after) = braces(exemplar)? else {
                return None;
            };
            let mut numbers = after.strip_prefix(' ')?.split(' ');
            number(numbers.next()?)?;
            numbers.next().map_or(Some(0.0), number)?;
            if numbers.next().is_some() {
                return None;
            }
            Some(labels)
        }
    };
    let mut parts = rest.strip_prefix(' ')?.split(' ');
    let value = number(parts.next()?)?;
    let time = parts.next().map(str::to_owned);
    if let Some(time) = &time {
        number(time)?;
    }
    if parts.next().is_some() {
        return None;
    }
    Some(Sample {
        family: String::new(),
        name: found?,
        labels,
        value,
        time,
        exemplar,
    })
}

type Braces<'a> = (Option<String>, BTreeMap<String, String>, &'a str);

/// Parses the part in braces, after the opening one: an optional quoted name, and labels.
fn braces(mut rest: &str) -> Option<Braces<'_>> {
    let (mut of_metric, mut labels) = (None, BTreeMap::new());
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((of_metric, labels, after));
        }
        let (label, after) = name(rest)?;
        match after.strip_prefix("=\"") {
            Some(after) => {
                let (value, after) = quoted(after)?;
                if value.is_empty() || labels.insert(label, value).is_some() {
                    return None;
                }
                rest = after;
            }
            None if rest.starts_with('"') && of_metric.is_none() && labels.is_empty() => {
                of_metric = Some(label);
                rest = after;
            }
            None => return None,
        }
        rest = match rest.strip_prefix(',') {
            Some(after) if !after.starts_with('}') => after,
            Some(_) => return None,
            None => rest,
        };
    }
}

/// Parses a name, quoted or not; returns the rest of the text.
fn name(text: &str) -> Option<(String, &str)> {
    if let Some(text) = text.strip_prefix('"') {
        return quoted(text);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let valid = name.starts_with(|c: char| !c.is_ascii_digit());
    valid.then(|| (name.to_owned(), rest))
}

/// Parses a quoted text after the opening quote; returns the rest of the text.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other @ ('\\' | '"') => other,
                _ => return None,
            }),
            '\n' => return None,
            other => value.push(other),
        }
    }
    None
}

fn number(text: &str) -> Option<f64> {
    let spelled = |c: char| c.is_ascii_digit() || "+-.eE".contains(c) || "NaInf".contains(c);
    text.chars()
        .all(spelled)
        .then(|| text.parse().ok())
        .flatten()
}
