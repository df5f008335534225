//! The outcome of each attack, as text or as JSON.

use serde_json::json;

/// A measurement of an attack and its bound.
#[derive(Debug, Clone)]
pub struct Finding {
    pub what: &'static str,
    pub figure: u64,
    pub bound: u64,
    /// Unit of both, or empty for a number.
    pub unit: &'static str,
}

impl Finding {
    /// A number that must be 0.
    pub fn none_of(what: &'static str, figure: usize) -> Self {
        Finding {
            what,
            figure: figure as u64,
            bound: 0,
            unit: "",
        }
    }

    fn is_held(&self) -> bool {
        self.figure <= self.bound
    }

    fn text(&self) -> String {
        let unit = match self.unit {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        let sign = if self.is_held() { "" } else { "!! " };
        format!(
            "{sign}{} {}{unit} (bound {})",
            self.what, self.figure, self.bound
        )
    }
}

/// The findings of one attack.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub attack: String,
    pub seconds: f64,
    /// Requests of good clients that were accepted during the attack.
    pub accepted: u64,
    /// Attempts of good clients that were refused or failed, and were repeated.
    pub refused: u64,
    pub findings: Vec<Finding>,
}

impl Outcome {
    fn is_held(&self) -> bool {
        self.findings.iter().all(Finding::is_held)
    }

    fn text(&self) -> String {
        let verdict = if self.is_held() { "held" } else { "fell short" };
        let findings: Vec<String> = self.findings.iter().map(Finding::text).collect();
        format!(
            "{verdict:<10}  {}: {}; good requests {} accepted, {} refused; {:.1} s",
            self.attack,
            findings.join(", "),
            self.accepted,
            self.refused,
            self.seconds
        )
    }

    fn json(&self) -> String {
        let findings: Vec<_> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "what": finding.what,
                    "figure": finding.figure,
                    "bound": finding.bound,
                    "unit": finding.unit,
                    "held": finding.is_held(),
                })
            })
            .collect();
        json!({
            "attack": self.attack,
            "held": self.is_held(),
            "seconds": self.seconds,
            "accepted": self.accepted,
            "refused": self.refused,
            "findings": findings,
        })
        .to_string()
    }
}

/// The outcomes of all attacks. Each outcome is printed when it is added.
#[derive(Debug)]
pub struct Report {
    outcomes: Vec<Outcome>,
    json: bool,
}

impl Report {
    pub fn new(json: bool) -> Self {
        Report {
            outcomes: Vec::new(),
            json,
        }
    }

    pub fn add(&mut self, outcome: Outcome) {
        match self.json {
            true => println!("{}", outcome.json()),
            false => println!("{}", outcome.text()),
        }
        self.outcomes.push(outcome);
    }

    /// The attacks that exceeded a bound.
    pub fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.is_held())
    }

    pub fn print_summary(&self) {
        let short = self.failed().count();
        if !self.json {
            println!(
                "{} of {} attacks held",
                self.outcomes.len() - short,
                self.outcomes.len()
            );
        }
    }
}
