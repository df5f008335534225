//! Lexical elements that both text formats share.

use crate::entry::{ExemplarSample, PageSample};
use crate::escape::{characters, unescaped};
use crate::fault::{PageFault, shortened};
use crate::format::{MAX_EXEMPLAR, MAX_LABELS, MAX_SERIES_BYTES};
use crate::labels::PageLabels;
use crate::number;

/// Rules in which the formats differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The text format: blanks between all elements, commas between labels are optional.
    Lenient,
    /// OpenMetrics: no blanks between labels.
    Strict,
}

/// Position in a text.
#[derive(Debug, Clone)]
pub(crate) struct Scan<'p> {
    text: &'p str,
    at: usize,
    /// Maximum number of labels of a series.
    pub(crate) label_limit: usize,
}

/// The series of a line, as written.
#[derive(Debug, Default)]
pub(crate) struct SeriesText<'p> {
    /// Name and labels as they are in the text.
    pub(crate) whole: &'p [u8],
    /// Position of the series in the page.
    at: usize,
    name: &'p str,
    labels: Vec<(&'p str, &'p str)>,
}

/// An exemplar as written.
#[derive(Debug, Default)]
pub(crate) struct ExemplarText<'p> {
    labels: Vec<(&'p str, &'p str)>,
    value: f64,
    timestamp: Option<i64>,
}

impl<'p> Scan<'p> {
    pub(crate) fn new(text: &'p str) -> Self {
        Scan {
            text,
            at: 0,
            label_limit: MAX_LABELS,
        }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    fn rest(&self) -> &'p str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn since(&self, start: usize) -> &'p str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Skips the text, if it follows.
    pub(crate) fn skip(&mut self, text: &str) -> bool {
        let follows = self.rest().starts_with(text);
        if follows {
            self.at += text.len();
        }
        follows
    }

    /// Skips spaces and tabs. Returns whether there are any.
    pub(crate) fn skip_blanks(&mut self) -> bool {
        let start = self.at;
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        self.at > start
    }

    /// Returns the rest of the line, and goes to its end.
    pub(crate) fn rest_of_line(&mut self) -> &'p str {
        let rest = self.rest();
        let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Returns the longest run of fitting bytes. All bytes that do not fit must be ASCII.
    pub(crate) fn run(&mut self, fits: impl Fn(u8) -> bool) -> &'p str {
        let start = self.at;
        while self.peek().is_some_and(&fits) {
            self.at += 1;
        }
        self.since(start)
    }

    /// Returns a mistake at the current position.
    pub(crate) fn fault(&self, reason: impl Into<String>) -> PageFault {
        PageFault::in_text(self.text.as_bytes(), self.at, reason)
    }

    /// Returns a mistake: something else was expected.
    pub(crate) fn expected(&self, expected: &str) -> PageFault {
        let found = match self.rest().chars().next() {
            None => "the end of the page".to_owned(),
            Some('\n') => "the end of the line".to_owned(),
            Some('\r') => "a carriage return; lines must end with \\n alone".to_owned(),
            Some(_) => {
                let rest = self.rest();
                let word = rest.split_once([' ', '\n']).map_or(rest, |(word, _)| word);
                format!("`{}`", shortened(if word.is_empty() { " " } else { word }))
            }
        };
        self.fault(format!("expected {expected}, found {found}"))
    }

    /// Returns the name of a metric, without quotes; `None` if none follows.
    pub(crate) fn metric_name(&mut self) -> Option<&'p str> {
        let name = |byte: u8| is_name_start(byte) || byte == b':';
        self.peek().filter(|byte| name(*byte))?;
        Some(self.run(|byte| name(byte) || byte.is_ascii_digit()))
    }

    /// Returns the name of a metric family in a line of metadata.
    pub(crate) fn family(&mut self) -> Result<&'p str, PageFault> {
        match self.peek() {
            Some(b'"') => self.quoted(true),
            _ => self
                .metric_name()
                .ok_or_else(|| self.expected("the name of a metric family")),
        }
    }

    /// Returns a text in quotes, without the quotes and with its escapes.
    fn quoted(&mut self, several_lines: bool) -> Result<&'p str, PageFault> {
        let start = self.at;
        self.at += 1;
        loop {
            let stop =
                |byte: u8| byte == b'"' || byte == b'\\' || (byte == b'\n' && !several_lines);
            self.run(|byte| !stop(byte));
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    match self.rest().chars().next() {
                        Some(letter) if letter != '\n' => self.at += letter.len_utf8(),
                        _ => break,
                    }
                }
                _ => break,
            }
        }
        if self.peek() != Some(b'"') {
            self.at = start;
            return Err(self.fault("a quoted text has no closing quote"));
        }
        let inner = self.text.get(start + 1..self.at).unwrap_or_default();
        self.at += 1;
        Ok(inner)
    }

    /// Reads the name and the labels of a sample. The position is at the name or at the opening brace.
    pub(crate) fn series(
        &mut self,
        rules: Rules,
        series: &mut SeriesText<'p>,
    ) -> Result<(), PageFault> {
        let start = self.at;
        series.at = start;
        series.labels.clear();
        let name = self.metric_name();
        let mut name_end = self.at;
        if rules == Rules::Lenient {
            self.skip_blanks();
        }
        let mut quoted = None;
        if self.peek() == Some(b'{') {
            self.at += 1;
            let (limit, labels) = (self.label_limit, &mut series.labels);
            quoted = self.labels(rules, rules == Rules::Strict, |label| {
                labels.push(label);
                match labels.len() <= limit {
                    true => Ok(()),
                    false => Err(format!("the sample has more than {limit} labels")),
                }
            })?;
            name_end = self.at;
        }
        if name_end - start > MAX_SERIES_BYTES {
            self.at = start;
            return Err(self.fault(format!(
                "the name and labels of the sample have more than {MAX_SERIES_BYTES} bytes"
            )));
        }
        series.whole = self
            .text
            .as_bytes()
            .get(start..name_end)
            .unwrap_or_default();
        series.name = match (name, quoted) {
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => return Err(self.fault("the sample has no metric name")),
            (Some(_), Some(_)) => return Err(self.fault("the sample has two metric names")),
        };
        Ok(())
    }

    /// Reads labels up to the closing brace, and passes them to `add`, which returns the reason why it refuses one. Returns
    /// the name of the metric, if the braces contain it.
    fn labels(
        &mut self,
        rules: Rules,
        is_comma_required: bool,
        mut add: impl FnMut((&'p str, &'p str)) -> Result<(), String>,
    ) -> Result<Option<&'p str>, PageFault> {
        let blanks = |scan: &mut Self| {
            if rules == Rules::Lenient {
                scan.skip_blanks();
            }
        };
        let mut metric = None;
        loop {
            blanks(self);
            let (name, is_quoted) = match self.peek() {
                Some(b'}') => break,
                Some(b'"') => (self.quoted(rules == Rules::Lenient)?, true),
                Some(byte) if is_name_start(byte) => {
                    let name = self.run(|byte| is_name_start(byte) || byte.is_ascii_digit());
                    (name, false)
                }
                _ => return Err(self.expected("a label name or `}`")),
            };
            blanks(self);
            match self.peek() {
                Some(b'=') => {
                    self.at += 1;
                    blanks(self);
                    if self.peek() != Some(b'"') {
                        return Err(self.expected("a label value in quotes"));
                    }
                    let label = (name, self.quoted(rules == Rules::Lenient)?);
                    add(label).map_err(|reason| self.fault(reason))?;
                }
                Some(b',' | b'}') if is_quoted => {
                    if metric.replace(name).is_some() {
                        return Err(self.fault("the sample has two metric names"));
                    }
                }
                _ => return Err(self.expected("`=` after a label name")),
            }
            blanks(self);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ if is_comma_required => return Err(self.expected("`,` or `}` after a label")),
                _ => {}
            }
        }
        self.at += 1;
        Ok(metric)
    }

    /// Reads an exemplar after its opening brace, up to the end of its value. Returns `None` if its labels are too long.
    pub(crate) fn exemplar(&mut self) -> Result<Option<ExemplarText<'p>>, PageFault> {
        let mut exemplar = ExemplarText::default();
        let mut length = 0_usize;
        let add = |label: (&'p str, &'p str)| {
            length = length.saturating_add(characters(label.0) + characters(label.1));
            if length <= MAX_EXEMPLAR {
                exemplar.labels.push(label);
            }
            Ok(())
        };
        if self.labels(Rules::Strict, true, add)?.is_some() {
            return Err(self.fault("an exemplar must not have a metric name"));
        }
        if !self.skip(" ") {
            return Err(self.expected("a blank and the value of the exemplar"));
        }
        let word = self.word();
        exemplar.value = self.number(word, "value of the exemplar")?;
        exemplar.timestamp = match self.skip(" ") {
            true => Some(self.seconds("timestamp of the exemplar")?),
            false => None,
        };
        Ok(Some(exemplar).filter(|_| length <= MAX_EXEMPLAR))
    }

    /// Returns the text up to the next space or line break.
    pub(crate) fn word(&mut self) -> &'p str {
        self.run(|byte| !matches!(byte, b' ' | b'\n'))
    }

    /// Parses a number that was just read.
    pub(crate) fn number(&self, word: &str, name: &str) -> Result<f64, PageFault> {
        if word.is_empty() {
            return Err(self.expected(&format!("the {name}")));
        }
        number::parse(word)
            .ok_or_else(|| self.fault(format!("the {name} `{}` is not a number", shortened(word))))
    }

    /// Reads a time in seconds. Returns it in milliseconds.
    pub(crate) fn seconds(&mut self, name: &str) -> Result<i64, PageFault> {
        let word = self.word();
        let seconds = self.number(word, name)?;
        // Ten times the year 9999.
        match seconds.abs() < 2.6e12 {
            true => Ok((seconds * 1000.0) as i64),
            false => Err(self.fault(format!("the {name} `{}` is out of range", shortened(word)))),
        }
    }
}

/// State of a page in a text format.
pub(crate) struct TextPage<'p> {
    pub(crate) scan: Scan<'p>,
    pub(crate) series: SeriesText<'p>,
    pub(crate) sample: PageSample,
    /// The exemplar of the current sample.
    pub(crate) exemplar: Option<ExemplarText<'p>>,
}

impl<'p> TextPage<'p> {
    /// Returns a mistake at the current series.
    pub(crate) fn fault(&self, reason: impl Into<String>) -> PageFault {
        PageFault::in_text(self.scan.text.as_bytes(), self.series.at, reason)
    }

    pub(crate) fn new(text: &'p str) -> Self {
        TextPage {
            scan: Scan::new(text),
            series: SeriesText::default(),
            sample: PageSample::default(),
            exemplar: None,
        }
    }
}

impl SeriesText<'_> {
    /// Adds the labels. `float` is the name of the label whose value is a number in the normal form.
    pub(crate) fn add_to(&self, labels: &mut PageLabels, float: Option<&str>) {
        labels.push("__name__", unescaped(self.name));
        for (name, value) in &self.labels {
            let (name, value) = (unescaped(name), unescaped(value));
            let normal = (float == Some(&*name))
                .then(|| number::normal(&value))
                .flatten();
            match normal {
                Some(normal) => labels.push(name, normal),
                None => labels.push(name, value),
            }
        }
    }
}

impl ExemplarText<'_> {
    pub(crate) fn read(&self) -> ExemplarSample {
        let labels = self.labels.iter();
        let labels = labels
            .map(|(name, value)| (unescaped(name).into_owned(), unescaped(value).into_owned()));
        ExemplarSample {
            labels: labels.collect(),
            value: self.value,
            timestamp: self.timestamp,
        }
    }
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}
