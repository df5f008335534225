//! Reads a page into a transaction: relabelling, limits, timestamps.

use std::sync::Arc;

use super::cache::{Cache, Known};
use super::failure::ScrapeFailure;
use super::family::Observation;
use super::point::{Point, nanoseconds};
use super::series::Series;
use super::settings::{JobSettings, Limits};
use super::target::ScrapeTarget;
use super::transaction::Transaction;
use tributary_memory::Permit;
use tributary_prometheus::relabel::apply_all;
use tributary_prometheus::{
    ExemplarSample, ExpositionFormat, LabelBuilder, LabelSet, NativeHistogram, PageEntry,
    PageLabels, PageSample, ScrapedPage, is_legacy_name,
};

/// Memory of one sample in a transaction, in bytes: a point, its place by hash, and a bucket. Vectors and tables double, so
/// that half of them may be empty.
const SAMPLE: usize =
    2 * (size_of::<Point>() + size_of::<(u64, usize)>() + size_of::<(f64, f64)>());

/// Bytes of samples for which memory is reserved at a time.
const STEP: usize = 64 << 10;

/// Maximum time that timestamps may be ahead, in milliseconds, as in Prometheus.
const AHEAD: i64 = 10 * 60 * 1000;

/// Numbers of samples of a scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Samples on the page.
    pub(super) scraped: usize,
    /// Samples that relabelling kept.
    pub(super) kept: usize,
    /// Series that were not on the previous page.
    pub(super) added: usize,
}

/// Reader of one page.
pub(super) struct PageReader<'a> {
    pub(super) job: &'a JobSettings,
    pub(super) target: &'a ScrapeTarget,
    pub(super) cache: &'a mut Cache,
    /// Time of the scrape in milliseconds since 1970.
    pub(super) time: i64,
    /// Memory of the samples.
    pub(super) permit: &'a mut Permit,
    pub(super) counts: Counts,
    /// Bytes of samples for which no memory is reserved yet.
    pub(super) unreserved: usize,
    /// Start of the process in seconds since 1970, according to the page.
    pub(super) process_start: Option<f64>,
}

/// A value on a page.
enum Value {
    Number(f64),
    Native(Box<NativeHistogram>),
}

impl PageReader<'_> {
    /// Reads the page. After a failure, the transaction is of no use.
    pub(super) fn read(
        &mut self,
        format: ExpositionFormat,
        bytes: &[u8],
        transaction: &mut Transaction,
    ) -> Result<(), ScrapeFailure> {
        let page = ScrapedPage::new(format, bytes, self.target.options)?;
        let mut page = page.with_label_limit(self.job.limits.labels);
        while let Some(entry) = page.next()? {
            let descriptions = &mut self.cache.descriptions;
            match entry {
                PageEntry::Kind { family, kind } => descriptions.set_kind(family, kind),
                PageEntry::Help { family, text } => descriptions.set_help(family, text),
                PageEntry::Unit { family, unit } => descriptions.set_unit(family, unit),
                PageEntry::Sample(PageSample {
                    value,
                    timestamp,
                    start,
                }) => self.value(&page, timestamp, start, Value::Number(value), transaction)?,
                PageEntry::Histogram(native) => {
                    let (timestamp, start) = (native.timestamp, native.start);
                    self.value(&page, timestamp, start, Value::Native(native), transaction)?;
                }
            }
            self.cache.reserve()?;
        }
        let limit = self.job.limits.samples;
        if limit > 0 && self.counts.kept > limit {
            return Err(ScrapeFailure::Limit(format!(
                "the page has {} samples after relabelling, more than the `sample_limit` {limit}",
                self.counts.kept
            )));
        }
        if let Some(start) = self.process_start.and_then(nanoseconds) {
            transaction.set_starts(start);
        }
        Ok(())
    }

    fn value(
        &mut self,
        page: &ScrapedPage<'_>,
        timestamp: Option<i64>,
        start: Option<i64>,
        value: Value,
        transaction: &mut Transaction,
    ) -> Result<(), ScrapeFailure> {
        self.counts.scraped += 1;
        let timestamp = timestamp.filter(|_| self.job.honor_timestamps);
        let (series, again) = match self.cache.get(page.series()) {
            Known::Dropped => return Ok(()),
            Known::Series { series, again } => (series, again),
            Known::New => {
                let series = self.series(page)?;
                let Some(series) = self.cache.add(page.series(), series)? else {
                    return Ok(());
                };
                self.counts.added += 1;
                (series, false)
            }
        };
        self.counts.kept += 1;
        let limit = self.job.limits.samples;
        let is_duplicate = again && timestamp.is_none();
        let time = timestamp.unwrap_or(self.time);
        if is_duplicate || limit > 0 && self.counts.kept > limit || time > self.time + AHEAD {
            return Ok(());
        }
        let exemplars = self.exemplars(page, time);
        let native = match &value {
            Value::Native(native) => {
                8 * (native.positive.counts.len() + native.negative.counts.len())
            }
            Value::Number(_) => 0,
        };
        let of_exemplars: usize = exemplars.iter().map(memory).sum();
        self.reserve(SAMPLE + of_exemplars + native)?;
        let observation = Observation {
            series: &series,
            time,
            start,
            exemplars,
        };
        let (origin, descriptions) = (&self.target.origin, &self.cache.descriptions);
        let is_added = match value {
            Value::Number(number) => {
                let pattern = self.job.start_time_metric.as_ref();
                if pattern.is_some_and(|pattern| pattern.is_match(&series.name)) {
                    self.process_start = Some(number);
                }
                transaction.add(origin, descriptions, observation, number)
            }
            Value::Native(native) => {
                transaction.add_native(origin, descriptions, observation, native)
            }
        };
        self.reserve(transaction.take_bytes())?;
        if is_added && (timestamp.is_none() || self.job.track_timestamps) {
            self.cache.track(&series);
        }
        Ok(())
    }

    /// Reserves memory in steps.
    fn reserve(&mut self, bytes: usize) -> Result<(), ScrapeFailure> {
        self.unreserved += bytes;
        if self.unreserved >= STEP {
            self.permit.grow(std::mem::take(&mut self.unreserved))?;
        }
        Ok(())
    }

    /// Returns the exemplars of the last value. Those without a time get the time of the value.
    fn exemplars(&self, page: &ScrapedPage<'_>, time: i64) -> Vec<ExemplarSample> {
        let mut exemplars = page.exemplars();
        for exemplar in &mut exemplars {
            exemplar.timestamp.get_or_insert(time);
        }
        exemplars
    }

    /// Returns the series of the last value after relabelling, or `None` if a rule drops it.
    fn series(&self, page: &ScrapedPage<'_>) -> Result<Option<Series>, ScrapeFailure> {
        let on_page = page.labels();
        if let Some(name) = on_page.duplicate() {
            let reason = format!("the sample has the label `{name}` twice");
            return Err(page.fault(reason).into());
        }
        let mut labels = merged(on_page, self.target, self.job.honor_labels);
        if !apply_all(&self.job.metric_rules, &mut labels) {
            return Ok(None);
        }
        if labels.get("__name__").is_empty() {
            let reason = "a series has no name after relabelling: check `metric_relabel_configs`";
            return Err(page.fault(reason).into());
        }
        if !self.job.utf8_names
            && let Some((name, _)) = labels.iter().find(|(name, value)| !is_legacy(name, value))
        {
            let reason = format!(
                "the name of the metric or the label `{name}` has other characters than `metric_name_validation_scheme: \
                 legacy` allows"
            );
            return Err(page.fault(reason).into());
        }
        let checked = labels.clone().build();
        check(&checked, &self.job.limits)?;
        let set = match self.job.external_labels.is_empty() {
            true => checked,
            false => {
                for (name, value) in &self.job.external_labels {
                    labels.set(name, value.as_str());
                }
                labels.build()
            }
        };
        let origin = &self.target.origin;
        Ok(Some(Series::new(set, &origin.job, &origin.instance)))
    }
}

/// Memory of an exemplar in bytes.
fn memory(exemplar: &ExemplarSample) -> usize {
    let labels = exemplar.labels.iter();
    let labels = labels
        .map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len())
        .sum::<usize>();
    size_of::<ExemplarSample>() + labels
}

/// Returns the series of a metric about the target, such as `up`.
pub(super) fn report_series(name: &str, target: &ScrapeTarget, job: &JobSettings) -> Arc<Series> {
    let mut labels = LabelBuilder::default();
    labels.set("__name__", name);
    for (name, value) in target.labels() {
        labels.set(name, value);
    }
    for (name, value) in &job.external_labels {
        labels.set(name, value.as_str());
    }
    Arc::new(Series::new(
        labels.build(),
        &target.origin.job,
        &target.origin.instance,
    ))
}

/// Adds the labels of the target to those of a page.
fn merged(on_page: PageLabels, target: &ScrapeTarget, honor_labels: bool) -> LabelBuilder {
    let mut conflicts = Vec::new();
    let mut labels: Vec<(&str, &str)> = Vec::new();
    for (name, value) in target.labels() {
        match on_page.get(name) {
            Some(_) if honor_labels => continue,
            Some(own) if !own.is_empty() => conflicts.push((name, own.to_owned())),
            _ => {}
        }
        labels.push((name, value));
    }
    let mut merged = LabelBuilder::from(on_page);
    for (name, value) in labels {
        merged.set(name, value);
    }
    conflicts.sort_by_key(|(name, _)| name.len());
    for (name, value) in conflicts {
        let mut renamed = format!("exported_{name}");
        while !merged.get(&renamed).is_empty() {
            renamed.insert_str(0, "exported_");
        }
        merged.set(&renamed, value);
    }
    merged
}

fn is_legacy(name: &str, value: &str) -> bool {
    match name {
        "__name__" => is_legacy_name(&value.replace(':', "_")),
        name => is_legacy_name(name),
    }
}

/// Checks the limits of labels.
fn check(labels: &LabelSet, limits: &Limits) -> Result<(), ScrapeFailure> {
    let over = |limit: usize, found: usize| limit > 0 && found > limit;
    let error = |key: &str, what: String, limit: usize| {
        let metric: String = labels.metric().chars().take(50).collect();
        Err(ScrapeFailure::Limit(format!(
            "the metric `{metric}` has {what}, more than the `{key}` {limit}"
        )))
    };
    if over(limits.labels, labels.len()) {
        return error(
            "label_limit",
            format!("{} labels", labels.len()),
            limits.labels,
        );
    }
    for (name, value) in labels.iter() {
        let shown: String = name.chars().take(50).collect();
        if over(limits.label_name, name.len()) {
            let what = format!("a label `{shown}` of {} bytes", name.len());
            return error("label_name_length_limit", what, limits.label_name);
        }
        if over(limits.label_value, value.len()) {
            let what = format!("a value of {} bytes in the label `{shown}`", value.len());
            return error("label_value_length_limit", what, limits.label_value);
        }
    }
    Ok(())
}
