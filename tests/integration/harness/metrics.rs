//! A scrape of `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

/// The samples of a scrape.
pub struct Metrics {
    /// Name and labels to value.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
    /// Name to `counter`, `gauge`, `histogram`.
    pub types: BTreeMap<String, String>,
}

/// The metrics listed in docs/reference, by component (`receivers/otlp`); the metrics of the process are at `service`.
static DOCUMENTED: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(documented);

/// The labels with the id of a component.
const KINDS: [&str; 5] = [
    "receiver",
    "processor",
    "exporter",
    "connector",
    "extension",
];

fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    let mut pages = BTreeMap::new();
    let service = std::fs::read_to_string(root.join("service.md")).unwrap();
    pages.insert("service".to_owned(), listed(&service));
    for kind in KINDS {
        for entry in std::fs::read_dir(root.join(format!("{kind}s"))).unwrap() {
            let path = entry.unwrap().path();
            let page = std::fs::read_to_string(&path).unwrap();
            let older = page
                .lines()
                .find_map(|line| line.strip_prefix("- Older name: "));
            let aliases = older
                .into_iter()
                .flat_map(|names| names.split('`').skip(1).step_by(2));
            let name = path.file_stem().unwrap().to_str().unwrap();
            for name in aliases.chain([name]) {
                pages.insert(format!("{kind}s/{name}"), listed(&page));
            }
        }
    }
    pages
}

/// The metrics in the table of a page.
fn listed(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once("` | "));
    let metrics = cells.filter(|(_, rest)| {
        let kinds = ["counter |", "gauge |", "histogram |"];
        kinds.iter().any(|kind| rest.starts_with(kind))
    });
    metrics.map(|(name, _)| name.to_owned()).collect()
}

impl Metrics {
    /// The series that are missing on the page of their component in docs/reference.
    pub fn undocumented(&self) -> Vec<String> {
        let series = self.samples.keys().filter(|(name, labels)| {
            let parts = ["_bucket", "_sum", "_count"].iter();
            let mut parts = parts.filter_map(|part| name.strip_suffix(part));
            let base = parts.find(|base| {
                self.types
                    .get(*base)
                    .is_some_and(|kind| kind == "histogram")
            });
            let name = base.unwrap_or(name);
            let is_in = |metrics: &BTreeSet<String>| {
                let without = name.strip_suffix("_total").unwrap_or(name);
                metrics.contains(name) || metrics.contains(without)
            };
            let component = KINDS.iter().find_map(|kind| {
                let name = labels.get(*kind)?.split('/').next()?;
                Some(format!("{kind}s/{name}"))
            });
            // The queue of a connector has the metrics of an exporter.
            let page = component.map(|component| {
                let connector = component.replace("exporters/", "connectors/");
                DOCUMENTED
                    .get(&component)
                    .or_else(|| DOCUMENTED.get(&connector))
            });
            match page {
                Some(page) => !page.is_some_and(is_in),
                None => !DOCUMENTED.values().any(is_in),
            }
        });
        series
            .map(|(name, labels)| format!("{name} {labels:?}"))
            .collect()
    }

    /// Reads Prometheus' text format.
    pub fn parse(page: &str) -> Self {
        let mut metrics = Metrics {
            samples: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        for line in page.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').unwrap();
                metrics.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.is_empty() && !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = match series.split_once('{') {
                    None => (series, BTreeMap::new()),
                    Some((name, labels)) => (name, parse_labels(labels)),
                };
                let value = value.parse().unwrap();
                metrics.samples.insert((name.to_owned(), labels), value);
            }
        }
        metrics
    }

    /// The sum of the samples of that name that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.with(name, labels).map(|(_, value)| value).sum()
    }

    /// Whether there is a sample of that name that has these labels.
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.with(name, labels).next().is_some()
    }

    /// The label sets of the samples of that name.
    pub fn labels(&self, name: &str) -> BTreeSet<BTreeMap<String, String>> {
        self.with(name, &[])
            .map(|(labels, _)| labels.clone())
            .collect()
    }

    fn with<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = (&'a BTreeMap<String, String>, f64)> {
        self.samples
            .iter()
            .filter(move |((sample, has), _)| {
                sample == name
                    && labels
                        .iter()
                        .all(|(key, value)| has.get(*key).is_some_and(|has| has == value))
            })
            .map(|((_, labels), value)| (labels, *value))
    }

    /// Checks the accounts of all pipelines and exporters, and returns the items in flight. `Err` names the accounts
    /// that do not balance.
    pub fn balance(&self) -> Result<f64, String> {
        let mut in_flight = 0.0;
        let mut wrong = Vec::new();
        for (prefix, passed) in [
            ("tributary_pipeline", "forwarded"),
            ("tributary_exporter", "delivered"),
        ] {
            for labels in self.labels(&format!("{prefix}_received_items")) {
                let pairs: Vec<(&str, &str)> = labels
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect();
                let items = |of: &str| self.sum(&format!("{prefix}_{of}_items"), &pairs);
                let [received, passed, dropped, refused, waiting] =
                    ["received", passed, "dropped", "refused", "in_flight"].map(items);
                // Exists only for stored queues.
                let [recovered, kept] = ["recovered", "kept"].map(items);
                if received + recovered != passed + dropped + refused + kept + waiting {
                    wrong.push(format!(
                        "{prefix} {labels:?}: {received} received, but {passed} passed + {dropped} dropped + \
                         {refused} refused + {waiting} in flight"
                    ));
                }
                in_flight += waiting;
            }
        }
        if wrong.is_empty() {
            Ok(in_flight)
        } else {
            Err(wrong.join("\n"))
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, labels), value) in &self.samples {
            writeln!(f, "{name} {labels:?} {value}")?;
        }
        Ok(())
    }
}

fn parse_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text.trim_end_matches('}');
    while let Some((key, after)) = rest.split_once("=\"") {
        let end = after.find('"').unwrap();
        labels.insert(
            key.trim_start_matches(',').to_owned(),
            after[..end].to_owned(),
        );
        rest = &after[end + 1..];
    }
    labels
}
