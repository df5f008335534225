//! Types, descriptions and units of metric families.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use tributary_prometheus::Kind;

/// Number of scrapes for which the metadata of a vanished family stay, as in Prometheus.
const SCRAPES: u64 = 10;

/// Memory of the metadata of a family besides its texts, in bytes. Tables double, so that half of them may be empty.
const ENTRY: usize = 2 * size_of::<(String, Described)>();

/// Suffixes of samples, in the order in which the Collector looks for them.
const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_info", "_created"];

/// Metadata of a family.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Description {
    pub(super) kind: Kind,
    pub(super) help: Arc<str>,
    pub(super) unit: Arc<str>,
}

/// A family that a metric belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Membership {
    pub(super) description: Description,
    /// Name that the family has in its metadata.
    pub(super) described_as: String,
    /// Name that the metric of the family gets.
    pub(super) family: String,
}

/// Metadata of all families of a target.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    families: HashMap<String, Described>,
    scrape: u64,
    /// Memory of the metadata, and of the texts that they replaced during the current scrape, which metrics of the scrape
    /// may have.
    bytes: usize,
}

/// Metadata of a family with the first and the last scrape that had them.
#[derive(Debug)]
struct Described {
    description: Description,
    first: u64,
    last: u64,
}

impl Descriptions {
    /// Returns the description of a family for a change.
    fn entry(&mut self, family: Cow<'_, str>) -> &mut Description {
        let scrape = self.scrape;
        let bytes = &mut self.bytes;
        let entry = self.families.entry(family.into_owned());
        let described = entry.or_insert_with_key(|name| {
            *bytes += name.len() + ENTRY;
            Described {
                description: Description::default(),
                first: scrape,
                last: scrape,
            }
        });
        described.last = scrape;
        &mut described.description
    }

    /// Sets the type of a family.
    pub(super) fn set_kind(&mut self, family: Cow<'_, str>, kind: Kind) {
        self.entry(family).kind = kind;
    }

    /// Sets the description of a family.
    pub(super) fn set_help(&mut self, family: Cow<'_, str>, help: Cow<'_, str>) {
        let entry = self.entry(family);
        if *entry.help != *help {
            entry.help = Arc::from(&*help);
            self.bytes += help.len();
        }
    }

    /// Sets the unit of a family.
    pub(super) fn set_unit(&mut self, family: Cow<'_, str>, unit: Cow<'_, str>) {
        let entry = self.entry(family);
        if *entry.unit != *unit {
            entry.unit = Arc::from(&*unit);
            self.bytes += unit.len();
        }
    }

    /// Ends a scrape. If it was successful, metadata of vanished families are removed; otherwise those of new families.
    pub(super) fn end(&mut self, is_successful: bool) {
        let scrape = self.scrape;
        self.families.retain(|_, described| match is_successful {
            true => scrape - described.last <= SCRAPES,
            false => described.first < scrape,
        });
        let bytes = self.families.iter().map(|(name, described)| {
            let Description { help, unit, .. } = &described.description;
            name.len() + help.len() + unit.len() + ENTRY
        });
        self.bytes = bytes.sum();
        self.scrape += 1;
    }

    /// Memory of the metadata in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the description under this name.
    pub(super) fn get(&self, name: &str) -> Option<&Description> {
        self.families
            .get(name)
            .map(|described| &described.description)
    }

    /// Returns the family of a metric, by the rules of the Collector's receiver.
    pub(super) fn of(&self, metric: &str) -> Membership {
        if let Some(description) = of_report(metric) {
            return Membership {
                description,
                described_as: metric.to_owned(),
                family: metric.to_owned(),
            };
        }
        let found = |name: &str, family: &str| {
            self.get(name).map(|description| Membership {
                description: description.clone(),
                described_as: name.to_owned(),
                family: family.to_owned(),
            })
        };
        if let Some(own) = found(metric, metric) {
            return own;
        }
        let base = without_suffix(metric);
        let family = match self.get(base).map(|description| description.kind) {
            Some(Kind::Counter) if metric.ends_with("_created") => format!("{base}_total"),
            Some(Kind::Counter) => metric.to_owned(),
            _ => base.to_owned(),
        };
        found(base, &family).unwrap_or_else(|| Membership {
            description: Description::default(),
            described_as: metric.to_owned(),
            family: metric.to_owned(),
        })
    }
}

/// Removes the suffix of a sample from the name of its metric.
pub(super) fn without_suffix(metric: &str) -> &str {
    let mut bases = SUFFIXES
        .iter()
        .filter_map(|suffix| metric.strip_suffix(suffix));
    bases.find(|base| !base.is_empty()).unwrap_or(metric)
}

/// Returns the description of a metric about a scrape.
fn of_report(metric: &str) -> Option<Description> {
    let (help, unit) = match metric {
        "up" => ("The scraping was successful", ""),
        "scrape_duration_seconds" => ("Duration of the scrape", "seconds"),
        "scrape_samples_scraped" => ("The number of samples the target exposed", ""),
        "scrape_series_added" => ("The approximate number of new series in this scrape", ""),
        "scrape_samples_post_metric_relabeling" => (
            "The number of samples remaining after metric relabeling was applied",
            "",
        ),
        _ => return None,
    };
    Some(Description {
        kind: Kind::Gauge,
        help: help.into(),
        unit: unit.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_belong_to_families_as_in_the_collector() {
        let mut all = Descriptions::default();
        for (family, kind) in [
            ("a", Kind::Counter),
            ("b_total", Kind::Counter),
            ("h", Kind::Histogram),
            ("i", Kind::Info),
            ("g", Kind::Gauge),
        ] {
            all.set_kind(family.into(), kind);
        }
        for (metric, family, kind) in [
            ("a_total", "a_total", Kind::Counter),
            ("a_created", "a_total", Kind::Counter),
            ("b_total", "b_total", Kind::Counter),
            ("h_bucket", "h", Kind::Histogram),
            ("h_sum", "h", Kind::Histogram),
            ("h", "h", Kind::Histogram),
            ("i_info", "i", Kind::Info),
            ("g_count", "g", Kind::Gauge),
            ("other", "other", Kind::Unknown),
            ("other_total", "other_total", Kind::Unknown),
            ("_total", "_total", Kind::Unknown),
            ("up", "up", Kind::Gauge),
        ] {
            let found = all.of(metric);
            assert_eq!(
                (found.family.as_str(), found.description.kind),
                (family, kind),
                "{metric}"
            );
        }
    }

    #[test]
    fn metadata_stay_for_ten_scrapes() {
        let mut all = Descriptions::default();
        all.set_help("a".into(), "text".into());
        for _ in 0..=SCRAPES {
            all.end(true);
            assert_eq!(all.families.len(), 1);
        }
        all.end(true);
        assert_eq!((all.families.len(), all.bytes()), (0, 0));
    }

    #[test]
    fn families_of_failed_scrapes_are_forgotten() {
        let mut all = Descriptions::default();
        all.set_help("a".into(), "text".into());
        all.end(true);
        let bytes = all.bytes();
        all.set_help("a".into(), "text".into());
        all.set_help("b".into(), "text".into());
        assert!(all.bytes() > bytes);
        all.end(false);
        assert!(all.get("a").is_some() && all.get("b").is_none());
        assert_eq!(all.bytes(), bytes);
    }

    #[test]
    fn metrics_of_a_family_share_its_texts() {
        let mut all = Descriptions::default();
        all.set_help("g".into(), "text".into());
        let (first, second) = (all.of("g").description, all.of("g").description);
        assert!(Arc::ptr_eq(&first.help, &second.help));
        let bytes = all.bytes();
        all.set_help("g".into(), "other".into());
        // A metric of the scrape may have the replaced text.
        assert_eq!(all.bytes(), bytes + 5);
    }
}
