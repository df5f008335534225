//! The result of the run.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use super::arrivals::{Arrivals, Excuses};
use super::load::Ledger;
use super::locked;
use super::metrics::Metrics;
use super::site::Site;
use super::tier::Tier;
use super::{Memory, Options};

/// Failed checks; empty if all checks passed.
#[derive(Debug, Default)]
pub struct Report {
    pub failures: Vec<String>,
}

/// Memory growth allowed in a soak from the second third to the last: this many bytes or a tenth.
const FLAT: u64 = 8 << 20;
const MIB: f64 = (1 << 20) as f64;

impl Report {
    /// Checks the item counts of a tier's last life, and prints them.
    pub async fn accounts(&mut self, tier: &Tier, options: &Options) {
        let metrics = match tier.metrics().await {
            Ok(metrics) => metrics,
            Err(error) => return self.fail(format!("{}: no metrics: {error}", tier.name)),
        };
        match metrics.balance() {
            Ok(0.0) => {}
            Ok(waiting) => self.fail(format!("{}: {waiting} items are in flight", tier.name)),
            Err(wrong) => self.fail(format!("{}: {wrong}", tier.name)),
        }
        let sum = |name: &str| metrics.sum(name, &[]);
        println!(
            "\n{}, last life: {} received, {} recovered, {} delivered, {} refused to senders, {} write failures",
            tier.name,
            sum("tributary_pipeline_received_items"),
            sum("tributary_exporter_recovered_items"),
            sum("tributary_exporter_delivered_items"),
            sum("tributary_pipeline_refused_items"),
            sum("tributary_storage_write_failures"),
        );
        for ((what, reason), items) in dropped(&metrics) {
            println!("    dropped by {what}: {items} ({reason})");
            let expected = match reason.as_str() {
                "duplicate" => true,
                // The exporter shows the last value of a series: a point older than the last one is
                // not shown.
                "partial_success" => what == "prometheus",
                "permanent" => options.permanent && tier.name == "zone",
                "damaged" => options.damage,
                _ => false,
            };
            if !expected {
                self.fail(format!(
                    "{}: {items} items were dropped: {reason}",
                    tier.name
                ));
            }
        }
    }

    /// Runs all other checks, and prints the results.
    pub fn judge(
        &mut self,
        options: &Options,
        site: &Site,
        ledger: &Ledger,
        kept: &Arrivals,
        memory: &Memory,
    ) {
        let acknowledged = ledger.acknowledged();
        println!(
            "{} items, {} of them acknowledged, in {} requests; {} requests were refused or not answered",
            ledger.last(),
            acknowledged.len(),
            ledger.requests.load(Relaxed),
            ledger.refusals.load(Relaxed),
        );
        if acknowledged.is_empty() {
            self.fail("nothing was acknowledged, so nothing is shown".to_owned());
        }
        for told in locked(&ledger.permanent).iter().take(5) {
            self.fail(format!("a client was told never to send again: {told}"));
        }
        let (ends, interruptions) = (site.zone_ends(), site.zone_interruptions());
        let places = site.sinks.iter().map(|sink| (sink.name, &sink.arrivals));
        for (name, arrivals) in places.chain([("parquet", kept)]) {
            self.arrivals(name, arrivals, &acknowledged, site, ledger.last());
            let (items, duplicates) = arrivals.counts();
            let excuses = arrivals.excuses(&ends, &interruptions, |number| ledger.made(number));
            let Excuses {
                zone_ended,
                zone_interrupted,
                answer_lost,
                none,
                signals,
                examples,
            } = &excuses;
            println!(
                "{name}: {items} items, {duplicates} came once more: {answer_lost} after a lost answer, {zone_ended} \
                 after an end of the zone, {zone_interrupted} after an interruption of it, {none} without a reason; \
                 {} were refused for good",
                arrivals.refused()
            );
            if *none > 0 {
                self.fail(format!(
                    "{name}: {none} items came twice, without a reason: {examples:?}"
                ));
            }
            if options.once && duplicates > 0 {
                self.fail(format!("{name}: items came twice: {signals:?}"));
            }
        }
        for tier in &site.tiers {
            self.history(tier, options);
        }
        if options.soak {
            self.flat(site, memory);
        }
        for failure in &self.failures {
            println!("FAILED: {failure}");
        }
        let verdict = if self.failures.is_empty() {
            "all is well"
        } else {
            "NOT well"
        };
        println!("seed {}: {verdict}", options.seed);
    }

    fn arrivals(
        &mut self,
        name: &str,
        arrivals: &Arrivals,
        acknowledged: &[u64],
        site: &Site,
        last: u64,
    ) {
        let missing = arrivals.missing(acknowledged);
        if !missing.is_empty() {
            let few: Vec<&u64> = missing.iter().take(10).collect();
            let text = format!(
                "{name}: {} acknowledged items are missing: {few:?}",
                missing.len()
            );
            let damaged = site.damaged_items.load(Relaxed);
            let told = site
                .tiers
                .iter()
                .any(|tier| locked(&tier.history).lost_records > 0);
            match missing.len() as u64 <= damaged && told {
                true => println!("{text}; {damaged} were in what was damaged"),
                false => self.fail(text),
            }
        }
        let made_up = arrivals.made_up(last);
        if made_up > 0 {
            self.fail(format!("{name}: {made_up} items came that nobody sent"));
        }
        for defect in arrivals.defects().into_iter().take(5) {
            self.fail(format!("{name}: {defect}"));
        }
    }

    fn history(&mut self, tier: &Tier, options: &Options) {
        let history = locked(&tier.history);
        println!(
            "{}: {} starts ({} failed), peak memory {:.1} MiB of {:.0} MiB",
            tier.name,
            history.starts,
            history.failed_starts,
            history.peak as f64 / MIB,
            tier.memory_bound as f64 / MIB
        );
        for (complaint, times) in &history.complaints {
            println!("    {times} times: {complaint}");
        }
        if history.lost_records > 0 && !options.damage {
            let lost = history.lost_records;
            let failure = format!(
                "{} said that {lost} records are lost; nothing was damaged",
                tier.name
            );
            self.failures.push(failure);
        }
        if history.peak > tier.memory_bound {
            let peak = history.peak;
            self.failures
                .push(format!("{}: {peak} bytes of memory", tier.name));
        }
        self.failures.extend(history.defects.iter().cloned());
    }

    fn flat(&mut self, site: &Site, memory: &Memory) {
        let thirds = memory.0.len() / 3;
        if thirds == 0 {
            return self.fail("too short to see whether memory is flat".to_owned());
        }
        for (number, tier) in site.tiers.iter().enumerate() {
            let of = |third: usize| {
                let looks = memory.0.iter().skip(third * thirds).take(thirds);
                let seen: Vec<u64> = looks.filter_map(|look| *look.get(number)?).collect();
                seen.iter().sum::<u64>() / (seen.len() as u64).max(1)
            };
            let (second, last) = (of(1), of(2));
            println!(
                "{}: memory in thirds {:.1}, {:.1}, {:.1} MiB",
                tier.name,
                of(0) as f64 / MIB,
                second as f64 / MIB,
                last as f64 / MIB
            );
            if last > second + (second / 10).max(FLAT) {
                self.fail(format!(
                    "{}: memory grows: {second}, then {last} bytes",
                    tier.name
                ));
            }
        }
    }

    fn fail(&mut self, failure: String) {
        self.failures.push(failure);
    }
}

/// Returns the items dropped by pipelines and exporters, by component and reason.
fn dropped(metrics: &Metrics) -> BTreeMap<(String, String), f64> {
    let mut dropped = BTreeMap::new();
    for name in [
        "tributary_pipeline_dropped_items",
        "tributary_exporter_dropped_items",
    ] {
        for labels in metrics.labels(name) {
            let pairs: Vec<(&str, &str)> = labels
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            let items = metrics.sum(name, &pairs);
            let label = |key: &str| labels.get(key).cloned();
            let who = label("exporter")
                .or_else(|| label("pipeline"))
                .unwrap_or_default();
            if items > 0.0 {
                let reason = label("reason").unwrap_or_default();
                *dropped.entry((who, reason)).or_default() += items;
            }
        }
    }
    dropped
}
