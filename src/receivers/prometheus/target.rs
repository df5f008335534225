//! Targets: labels and URLs.

use std::fmt::Write as _;
use std::time::Duration;

use http::Uri;

use super::resource;
use super::settings::JobSettings;
use super::transaction::Origin;
use crate::receivers::scraping::found::Found;
use tributary_net::client::parse_url;
use tributary_prometheus::relabel::apply_all;
use tributary_prometheus::{LabelBuilder, LabelSet, Options, duration};

/// Labels that choose the reading of histograms, as in Prometheus.
const NATIVE: &str = "__scrape_native_histograms__";
const CLASSIC: &str = "__always_scrape_classic_histograms__";

/// A target after relabelling.
#[derive(Debug, Clone)]
pub(super) struct ScrapeTarget {
    /// All labels but those of the discovery, which identify the target.
    pub(super) identity: LabelSet,
    pub(super) url: Uri,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) options: Options,
    pub(super) origin: Origin,
}

impl ScrapeTarget {
    /// Applies the settings and rules of a job to a discovered target. Returns `None` if a rule drops it.
    ///
    /// # Errors
    /// A sentence about the address, or about a label with a meaning.
    pub(super) fn new(found: &Found, job: &JobSettings) -> Result<Option<Self>, String> {
        let mut labels = discovered(found, job);
        let before = labels.clone();
        if !apply_all(&job.target_rules, &mut labels) {
            return Ok(None);
        }
        let address = labels.get("__address__").to_owned();
        if address.is_empty() {
            return Err("the target has no address".to_owned());
        }
        if address.contains(['/', '?', '#', '@']) {
            return Err(format!(
                "`{address}` is not an address: it must be `host:port`"
            ));
        }
        let time = |name: &str| {
            let text = labels.get(name);
            let time = duration::parse(text).filter(|time| !time.is_zero());
            time.ok_or_else(|| {
                format!("the label {name} has the value `{text}`, which is not a duration above 0")
            })
        };
        let interval = time("__scrape_interval__")?;
        let timeout = time("__scrape_timeout__")?;
        if timeout > interval {
            return Err(
                "the label __scrape_timeout__ is longer than __scrape_interval__".to_owned(),
            );
        }
        let choice = |name: &str| match labels.get(name) {
            "true" | "1" => Ok(true),
            "false" | "0" | "" => Ok(false),
            other => Err(format!(
                "the label {name} has the value `{other}`: it must be true or false"
            )),
        };
        let options = Options {
            native_histograms: choice(NATIVE)?,
            classic_beside_native: choice(CLASSIC)?,
        };
        let url = url(&labels, job)?;
        labels.remove_all(|name| name.starts_with("__meta_"));
        if labels.get("instance").is_empty() {
            labels.set("instance", address);
        }
        let origin = Origin {
            job: labels.get("job").to_owned(),
            instance: labels.get("instance").to_owned(),
            of_target: resource::of_target(|name| before.get(name)),
        };
        if origin.job.is_empty() {
            return Err("the target has no label `job`".to_owned());
        }
        Ok(Some(ScrapeTarget {
            identity: labels.build(),
            url,
            interval,
            timeout,
            options,
            origin,
        }))
    }

    /// Returns the labels that all series of the target get.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identity
            .iter()
            .filter(|(name, _)| !name.starts_with("__"))
    }
}

/// Returns the labels of a target before relabelling.
fn discovered(found: &Found, job: &JobSettings) -> LabelBuilder {
    let mut labels = LabelBuilder::default();
    labels.set("__address__", found.address.as_str());
    for (name, value) in &found.labels {
        labels.set(name, value.as_str());
    }
    let defaults = [
        ("job", job.job.clone()),
        ("__scrape_interval__", duration::format(job.interval)),
        ("__scrape_timeout__", duration::format(job.timeout)),
        ("__metrics_path__", job.path.clone()),
        ("__scheme__", job.scheme.to_owned()),
        (NATIVE, job.options.native_histograms.to_string()),
        (CLASSIC, job.options.classic_beside_native.to_string()),
    ];
    let params = job.params.iter().filter_map(|(name, values)| {
        values
            .first()
            .map(|value| (format!("__param_{name}"), value.clone()))
    });
    let defaults = defaults
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    for (name, value) in defaults.chain(params) {
        if labels.get(&name).is_empty() {
            labels.set(&name, value);
        }
    }
    labels
}

fn url(labels: &LabelBuilder, job: &JobSettings) -> Result<Uri, String> {
    let mut params = job.params.clone();
    for (name, value) in labels.iter() {
        let Some(name) = name.strip_prefix("__param_") else {
            continue;
        };
        let values = params.entry(name.to_owned()).or_default();
        match values.first_mut() {
            Some(first) => value.clone_into(first),
            None => values.push(value.to_owned()),
        }
    }
    let path = labels.get("__metrics_path__");
    let mut text = format!(
        "{}://{}",
        labels.get("__scheme__"),
        labels.get("__address__")
    );
    if !path.starts_with('/') {
        text.push('/');
    }
    escape(
        path,
        |byte| {
            matches!(
                byte,
                b'/' | b'-'
                    | b'_'
                    | b'.'
                    | b'~'
                    | b'$'
                    | b'&'
                    | b'+'
                    | b','
                    | b':'
                    | b';'
                    | b'='
                    | b'@'
            )
        },
        &mut text,
    );
    let mut separator = '?';
    for (name, values) in &params {
        for value in values {
            text.push(separator);
            separator = '&';
            escape(
                name,
                |byte| matches!(byte, b'-' | b'_' | b'.' | b'~'),
                &mut text,
            );
            text.push('=');
            escape(
                value,
                |byte| matches!(byte, b'-' | b'_' | b'.' | b'~'),
                &mut text,
            );
        }
    }
    parse_url(&text)
}

/// Writes a text with `%` escapes for all bytes but letters, digits and `plain` ones.
fn escape(text: &str, plain: impl Fn(u8) -> bool, output: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain(byte) {
            output.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(output, "%{byte:02X}");
        }
    }
}
