//! `collector profiles check`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{Outcome, fetch, input, load};
use crate::app::cli::options::Shape;
use crate::profile_files::{FileKind, decode, file_kind, requests};
use crate::telemetry::terminal::Progress;
use tributary_profile_formats::Format;
use tributary_profiles::check::{CheckReport, FINDINGS_PER_RULE, Severity};
use tributary_profiles::{check, pprof};

pub(super) fn check_files(
    files: &[PathBuf],
    fetching: &fetch::Fetching,
    strict: bool,
    shape: Shape,
) -> Outcome {
    let mut good = true;
    let mut text = String::new();
    let mut described = Vec::new();
    let mut progress = Progress::new("files", Some(files.len() as u64));
    for file in files {
        let name = file.display();
        let checked = check_file(file, fetching);
        progress.add(1);
        if shape.json {
            described.push(to_json(&name.to_string(), &checked));
        }
        match checked {
            Ok(checked) => {
                let bad = if strict {
                    !checked.is_clean()
                } else {
                    checked.errors > 0
                };
                good &= !bad;
                for line in &checked.lines {
                    let _ = writeln!(text, "{name}: {line}");
                }
                let _ = writeln!(text, "{name}: {}", checked.summary());
            }
            Err(error) => {
                good = false;
                let _ = writeln!(text, "{name}: error: {error}");
            }
        }
    }
    drop(progress);
    if shape.json {
        text = serde_json::to_string_pretty(&described).unwrap_or_default() + "\n";
    }
    Outcome {
        output: text.into_bytes(),
        notes: String::new(),
        code: u8::from(!good),
    }
}

fn to_json(name: &str, checked: &Result<Checked, String>) -> serde_json::Value {
    match checked {
        Ok(checked) => serde_json::json!({
            "file": name,
            "errors": checked.errors,
            "warnings": checked.warnings,
            "profiles": checked.profiles,
            "samples": checked.samples,
            "findings": checked.findings,
        }),
        Err(error) => serde_json::json!({"file": name, "error": error}),
    }
}

#[derive(Default)]
struct Checked {
    lines: Vec<String>,
    /// Findings for scripts, without the counts of findings that are not listed.
    findings: Vec<serde_json::Value>,
    errors: usize,
    warnings: usize,
    profiles: usize,
    samples: usize,
}

impl Checked {
    fn is_clean(&self) -> bool {
        self.errors + self.warnings == 0
    }

    fn summary(&self) -> String {
        let count = |count: usize, thing: &str| match count {
            1 => format!("1 {thing}"),
            _ => format!("{count} {thing}s"),
        };
        let content = format!(
            "{} with {}",
            count(self.profiles, "profile"),
            count(self.samples, "sample")
        );
        if self.is_clean() {
            return format!("good: {content}");
        }
        let errors = count(self.errors, "error");
        let warnings = count(self.warnings, "warning");
        format!("{errors}, {warnings}: {content}")
    }

    fn add(&mut self, message: &str, report: &CheckReport) {
        for finding in report.findings() {
            let word = match finding.rule.severity() {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            self.lines.push(format!("{word}: {message}{finding}"));
            self.findings.push(serde_json::json!({
                "level": word,
                "message": message.trim_end_matches(": "),
                "path": finding.path,
                "detail": finding.detail,
                "rule": finding.rule.name(),
            }));
        }
        for (rule, count) in report.counts() {
            if *count > FINDINGS_PER_RULE {
                let more = count - FINDINGS_PER_RULE;
                let name = rule.name();
                let line = format!("{message}and {more} more [{name}]");
                self.lines.push(line);
            }
        }
        self.errors += report.count(Severity::Error);
        self.warnings += report.count(Severity::Warning);
    }
}

const PPROF: &str = "this is a pprof file; convert it to OTLP with `collector profiles convert`, and check the \
                     result";
const TEXT: &str = "this is text; give OTLP profiles as protobuf or JSON";

fn check_file(file: &Path, fetching: &fetch::Fetching) -> Result<Checked, String> {
    let bytes = input::read(file, fetching)?;
    let kind = file_kind(&bytes);
    let kind_of_messages = match kind {
        FileKind::OtlpJson => kind,
        _ => FileKind::Otlp,
    };
    let messages: Vec<_> = requests(&bytes, kind_of_messages)?.collect::<Result<_, _>>()?;
    let mut checked = Checked::default();
    for (at, bytes) in messages.iter().enumerate() {
        let place = match messages.len() {
            1 => String::new(),
            _ => format!("message {}: ", at + 1),
        };
        let request = decode(bytes).map_err(|error| match kind {
            FileKind::Pprof => match load::check_pprof(bytes) {
                Ok(()) => PPROF.to_owned(),
                // The error names the format: pprof's old text format or another tool's file.
                Err(why) if pprof::foreign(bytes).is_some() => why,
                Err(_) => format!("{place}{error}"),
            },
            FileKind::Foreign(Format::Folded) => TEXT.to_owned(),
            FileKind::Foreign(format) => format!(
                "the file has the format {format}, not OTLP; convert it with `collector profiles convert FILE -o \
                 OUT.otlp` first"
            ),
            _ => format!("{place}{error}"),
        })?;
        let profiles = || {
            let resources = request.resource_profiles.iter();
            let scopes = resources.flat_map(|resource| &resource.scope_profiles);
            scopes.flat_map(|scope| &scope.profiles)
        };
        checked.profiles += profiles().count();
        checked.samples += profiles()
            .map(|profile| profile.samples.len())
            .sum::<usize>();
        checked.add(&place, &check::check(&request));
    }
    Ok(checked)
}
