//! The JSON format of speedscope (<https://www.speedscope.app/file-format-schema.json>).

use serde::Serialize;

use super::tree::{ROOT, Tree};

#[derive(Serialize)]
struct File<'t> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'t str,
    shared: Shared<'t>,
    profiles: [Profile<'t>; 1],
}

#[derive(Serialize)]
struct Shared<'t> {
    frames: Vec<Name<'t>>,
}

#[derive(Serialize)]
struct Name<'t> {
    name: &'t str,
}

#[derive(Serialize)]
struct Profile<'t> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'t str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: i64,
    #[serde(rename = "endValue")]
    end: i64,
    samples: Vec<Vec<u32>>,
    weights: Vec<i64>,
}

impl Tree {
    /// Returns the first column as a speedscope file with this name. Values that are not positive are left out, since
    /// the format cannot represent them.
    pub fn speedscope(&self, name: &str) -> String {
        let mut samples = Vec::new();
        let mut weights: Vec<i64> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if node.own[0] > 0 {
                samples.push(self.path(at));
                weights.push(node.own[0]);
            }
        }
        let file = File {
            schema: "https://www.speedscope.app/file-format-schema.json",
            exporter: "tributary",
            name,
            shared: Shared {
                frames: self.names.iter().map(|name| Name { name }).collect(),
            },
            profiles: [Profile {
                kind: "sampled",
                name: &self.sample_type.0,
                unit: unit(&self.sample_type.1),
                start: 0,
                end: weights
                    .iter()
                    .fold(0, |sum, weight| sum.saturating_add(*weight)),
                samples,
                weights,
            }],
        };
        serde_json::to_string(&file).unwrap_or_default()
    }

    /// Positions of the names on the path to a node, from the root on.
    fn path(&self, mut node: usize) -> Vec<u32> {
        let mut path = Vec::new();
        while node != ROOT {
            let Some(at) = self.nodes.get(node) else {
                break;
            };
            path.push(at.name);
            node = at.parent as usize;
        }
        path.reverse();
        path
    }
}

/// Returns the name of a unit in the format.
fn unit(unit: &str) -> &'static str {
    match unit {
        "nanoseconds" | "ns" => "nanoseconds",
        "microseconds" | "us" => "microseconds",
        "milliseconds" | "ms" => "milliseconds",
        "seconds" | "s" => "seconds",
        "bytes" | "By" => "bytes",
        _ => "none",
    }
}
