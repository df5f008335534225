//! Messages of a shutdown: its progress, and the items that a second signal loses.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use crate::app::config::Config;
use crate::telemetry::exposition::{Exposition, ItemsInFlight};
use tributary_config::{Capability, Level};

/// Interval between two progress messages of a shutdown.
const PROGRESS: Duration = Duration::from_secs(5);

/// Logs what a shutdown waits for, at once and then every few seconds.
pub(super) async fn report_progress(exposition: Exposition, drain_timeout: Duration) -> Infallible {
    let deadline = Instant::now() + drain_timeout;
    let mut every = tokio::time::interval(PROGRESS);
    loop {
        every.tick().await;
        let held = exposition.in_flight();
        let held: Vec<String> = held.iter().map(ToString::to_string).collect();
        if held.is_empty() {
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        info!(
            seconds_left = left.as_secs(),
            "Waiting for items in flight: {}. A second signal (Ctrl-C) ends the collector at once and loses the \
             items that are not in a queue on disk.",
            held.join(", ")
        );
    }
}

pub(super) fn note_stored_queues(config: &Config, stored: &mut HashMap<String, bool>) {
    for (id, exporter) in &config.exporters {
        let uses = exporter.config.uses_extensions();
        let is_stored = uses
            .iter()
            .any(|used| used.capability == Capability::Storage);
        // A queue in memory of an earlier configuration may still hold items.
        *stored.entry(id.to_string()).or_insert(true) &= is_stored;
    }
}

/// The message of a second signal: the items that are lost, and those that stay on disk.
pub(super) fn interruption_message(
    held: &[ItemsInFlight],
    stored: &HashMap<String, bool>,
) -> (Level, String) {
    let is_stored = |component: &&ItemsInFlight| {
        component.kind == "exporter" && stored.get(&component.id) == Some(&true)
    };
    let (kept, lost): (Vec<&ItemsInFlight>, Vec<&ItemsInFlight>) = held.iter().partition(is_stored);
    let list = |components: &[&ItemsInFlight]| {
        let texts: Vec<String> = components.iter().map(ToString::to_string).collect();
        texts.join(", ")
    };
    let mut words = "Received a second signal. Ending at once".to_owned();
    match lost.is_empty() {
        true => words.push_str("; nothing is lost."),
        false => {
            let lost = list(&lost);
            words.push_str(&format!("; items lost unless their senders retry: {lost}."));
        }
    }
    if !kept.is_empty() {
        words.push_str(&format!(
            " Items that stay in queues on disk: {}.",
            list(&kept)
        ));
    }
    match lost.is_empty() {
        true => (Level::Notice, words),
        false => (Level::Error, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_signal_names_only_lost_items() {
        let in_flight = |kind, id: &str, items| ItemsInFlight {
            kind,
            id: id.to_owned(),
            signal: None,
            items,
        };
        let stored = HashMap::from([("disk".to_owned(), true), ("memory".to_owned(), false)]);
        let nothing = "Received a second signal. Ending at once; nothing is lost.";
        assert_eq!(
            interruption_message(&[], &stored),
            (Level::Notice, nothing.to_owned())
        );
        let disk = in_flight("exporter", "disk", 7);
        let (level, words) = interruption_message(std::slice::from_ref(&disk), &stored);
        assert_eq!(level, Level::Notice);
        assert_eq!(
            words,
            format!("{nothing} Items that stay in queues on disk: exporter disk: 7.")
        );
        let held = [
            disk,
            in_flight("exporter", "memory", 5),
            in_flight("pipeline", "disk", 2),
        ];
        assert_eq!(
            interruption_message(&held, &stored),
            (
                Level::Error,
                "Received a second signal. Ending at once; items lost unless their senders retry: exporter \
                 memory: 5, pipeline disk: 2. Items that stay in queues on disk: exporter disk: 7."
                    .to_owned()
            )
        );
    }
}
