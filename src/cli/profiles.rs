//! `collector profiles`: work on files of profiles.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use flate2::read::MultiGzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;

use crate::batch::Signal;
use crate::profiles::check::{self, FINDINGS_PER_RULE, Report, Severity};
use crate::profiles::layout;
use crate::wire;

/// The most a file may have once it is decompressed.
const LIMIT: u64 = 1 << 30;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check profiles against the rules of OTLP: prints every rule that is broken, with its place.
    ///
    /// Exits with 1 if a file breaks a rule that is a must or cannot be read; with --strict warnings count, too.
    Check {
        /// OTLP profiles (`ProfilesData` or an export request) as protobuf, also with gzip; `-` is stdin. A file of the
        /// Collector's file exporter, with the length before each message, is read message by message.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// What to print, and whether it is good.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) good: bool,
}

pub(super) fn run(command: &Command, strict: bool) -> Outcome {
    match command {
        Command::Check { files } => check_files(files, strict),
    }
}

fn check_files(files: &[PathBuf], strict: bool) -> Outcome {
    let mut outcome = Outcome {
        text: String::new(),
        good: true,
    };
    for file in files {
        let name = file.display();
        match check_file(file) {
            Ok(checked) => {
                let bad = if strict {
                    !checked.is_clean()
                } else {
                    checked.errors > 0
                };
                outcome.good &= !bad;
                for line in &checked.lines {
                    let _ = writeln!(outcome.text, "{name}: {line}");
                }
                let _ = writeln!(outcome.text, "{name}: {}", checked.summary());
            }
            Err(error) => {
                outcome.good = false;
                let _ = writeln!(outcome.text, "{name}: error: {error}");
            }
        }
    }
    outcome
}

#[derive(Default)]
struct Checked {
    lines: Vec<String>,
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

    fn add(&mut self, message: &str, report: &Report) {
        for finding in report.findings() {
            let word = match finding.rule.severity() {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            self.lines.push(format!("{word}: {message}{finding}"));
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

fn check_file(file: &Path) -> Result<Checked, String> {
    let bytes = read(file).map_err(|error| format!("cannot read it: {error}"))?;
    let messages = messages(&bytes)?;
    let mut checked = Checked::default();
    for (at, bytes) in messages.iter().enumerate() {
        let place = match messages.len() {
            1 => String::new(),
            _ => format!("message {}: ", at + 1),
        };
        // An old layout often cannot be decoded, and this says why.
        layout::recognise(bytes).map_err(|error| format!("{place}{error}"))?;
        wire::validate(Signal::Profiles, bytes)
            .map_err(|error| format!("{place}these are no OTLP profiles: {error}"))?;
        let request = ExportProfilesServiceRequest::decode(*bytes)
            .map_err(|error| format!("{place}these are no OTLP profiles: {error}"))?;
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

/// What is in a file, decompressed.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    match file.as_os_str() == "-" {
        true => limited(io::stdin().lock(), &mut raw)?,
        false => limited(File::open(file)?, &mut raw)?,
    }
    if !raw.starts_with(&[0x1f, 0x8b]) {
        return Ok(raw);
    }
    let mut bytes = Vec::new();
    limited(MultiGzDecoder::new(raw.as_slice()), &mut bytes)?;
    Ok(bytes)
}

fn limited(reader: impl Read, output: &mut Vec<u8>) -> io::Result<()> {
    if reader.take(LIMIT + 1).read_to_end(output)? as u64 > LIMIT {
        return Err(io::Error::other(format!("it has more than {LIMIT} bytes")));
    }
    Ok(())
}

/// The messages of a file: one, or several with four bytes of length (big-endian) before each. No message begins with
/// a zero byte, and no length of less than 16 MiB with another.
fn messages(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    if bytes.first() != Some(&0) {
        return Ok(vec![bytes]);
    }
    let mut messages = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((message, after)) = after.split_at_checked(length) else {
            let missing = length - after.len();
            return Err(format!("it ends {missing} bytes before its last message"));
        };
        messages.push(message);
        rest = after;
    }
    match rest {
        [] => Ok(messages),
        _ => Err("it ends within the length of a message".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_a_length_before_them_are_taken_apart() {
        let framed = [&[0, 0, 0, 2][..], b"ab", &[0, 0, 0, 1], b"c"].concat();
        assert_eq!(messages(&framed).unwrap(), [&b"ab"[..], b"c"]);
        assert_eq!(messages(b"abc").unwrap(), [b"abc"]);
        assert_eq!(messages(b"").unwrap(), [b""]);
        let short = messages(&framed[..8]).unwrap_err();
        assert!(short.contains("within the length"), "{short}");
        let short = messages(&[0, 0, 0, 2, 9]).unwrap_err();
        assert!(short.contains("1 bytes before"), "{short}");
    }
}
