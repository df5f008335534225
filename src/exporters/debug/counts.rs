//! Counts of a batch: the whole output of verbosity `basic`, and the first line of the other verbosities.

use std::time::{SystemTime, UNIX_EPOCH};

use super::text::Utc;
use tributary_otlp::count;
use tributary_otlp::reader::Fields;
use tributary_otlp::{Requests, Signal};

/// Numbers of resources, metrics and items in a batch, under the Collector's names.
pub(super) struct Counts {
    message: &'static str,
    counts: Vec<(&'static str, usize)>,
}

impl Counts {
    /// Counts valid requests without decoding them.
    pub(super) fn of(signal: Signal, requests: &Requests) -> Counts {
        let (mut resources, mut metrics, mut items) = (0, 0, 0);
        for request in requests.parts() {
            resources += messages(request, 1).count();
            items += count(signal, request);
            if signal == Signal::Metrics {
                let scopes = messages(request, 1).flat_map(|resource| messages(resource, 2));
                metrics += scopes
                    .map(|scope| messages(scope, 2).count())
                    .sum::<usize>();
            }
        }
        let (message, counts) = match signal {
            Signal::Traces => (
                "Traces",
                vec![("resource spans", resources), ("spans", items)],
            ),
            Signal::Metrics => {
                let counts = vec![
                    ("resource metrics", resources),
                    ("metrics", metrics),
                    ("data points", items),
                ];
                ("Metrics", counts)
            }
            Signal::Logs => {
                let counts = vec![("resource logs", resources), ("log records", items)];
                ("Logs", counts)
            }
            Signal::Profiles => {
                let counts = vec![("resource profiles", resources), ("sample records", items)];
                ("Profiles", counts)
            }
        };
        Counts { message, counts }
    }

    pub(super) fn get(&self, name: &str) -> usize {
        let found = self.counts.iter().find(|(counted, _)| *counted == name);
        found.map_or(0, |(_, count)| *count)
    }

    /// Returns the line in front of the text, for outputs other than the log.
    pub(super) fn line(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(name, count)| format!("\"{name}\": {count}"))
            .collect();
        format!(
            "{}\tinfo\t{}\t{{{}}}",
            Utc(now),
            self.message,
            counts.join(", ")
        )
    }
}

/// Returns the messages in all fields with the number `number`.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let fields = Fields::new(message).map_while(Result::ok);
    let fields = fields.filter(move |field| field.number == number);
    fields.filter_map(|field| field.value.bytes())
}
