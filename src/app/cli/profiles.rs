//! `collector profiles`: checks, converts, merges, shows and compares profiles from files and URLs.

mod check;
mod convert;
mod diff;
mod flamegraph;
mod input;
mod labels;
mod load;
#[cfg(test)]
mod mutations;
mod output;
mod selection;
mod table;
mod top;

use std::path::PathBuf;

use clap::Subcommand;

use super::fetch;
use super::options::Shape;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check profiles against the rules of OTLP. Prints every violated rule with its position.
    ///
    /// Exits with 1 if a file violates a mandatory rule or cannot be read; with --strict also on
    /// warnings.
    Check {
        /// OTLP profiles (`ProfilesData` or an export request) as protobuf or JSON, optionally
        /// compressed with gzip. Files or URLs (http, https); `-` is stdin. Files of the
        /// Collector's file exporter, with the length before each message, are read message by
        /// message.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Treat warnings as errors.
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        fetching: fetch::Fetching,
    },
    /// Convert profiles between pprof, OTLP and folded stacks, in any direction.
    ///
    /// The input format is detected. Data without a counterpart in pprof is left out: resources,
    /// names of scopes, timestamps of samples.
    Convert {
        /// Input: a file, optionally compressed with gzip, or a URL; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: output::Arguments,
        #[command(flatten)]
        reading: load::Reading,
    },
    /// Merge profiles: add up the values of equal samples, as `go tool pprof -proto` does.
    ///
    /// Binaries may be mapped at different addresses in each process. Profiles of different
    /// resources or sample types stay separate.
    Merge {
        /// Inputs: files, optionally compressed with gzip, or URLs, in any mix of formats; `-` is
        /// stdin.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: output::Arguments,
        #[command(flatten)]
        reading: load::Reading,
    },
    /// Show the functions with the highest values, as `go tool pprof -top` does.
    ///
    /// `flat` is the value of the function itself; `cum` includes the functions that it calls.
    /// Frames that the profile asks to drop are left out. Names are shown as they are in the file.
    Top {
        /// Input: a file, optionally compressed with gzip, or a URL, such as
        /// http://localhost:6060/debug/pprof/heap; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        table: table::Table,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        reading: load::Reading,
    },
    /// Show growth and shrinkage between two measurements; fail if the growth is too large.
    ///
    /// Changes are relative to the first measurement. The files of a directory are runs of one
    /// measurement: the runs are merged and their mean is compared.
    ///
    /// Exits with 1 if a value grew by more than --fail-above, with 2 if the comparison failed.
    Diff(Box<diff::Comparison>),
    /// Draw a flame graph, as SVG, as an interactive page, or for speedscope.
    ///
    /// Frames that the profile asks to drop are left out.
    Flamegraph(Box<flamegraph::Arguments>),
}

/// Exit code for success without findings.
const EXIT_SUCCESS: u8 = 0;
/// Exit code for an error or for findings.
const EXIT_FAILURE: u8 = 1;
/// Exit code of `diff` for growth above the limit.
const EXIT_GROWTH: u8 = 1;
/// Exit code of `diff` if the comparison failed. It differs from [`EXIT_GROWTH`], so that scripts do not
/// take a failure for growth.
const EXIT_COMPARISON_FAILED: u8 = 2;

/// Output of a command, and its exit code.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Text for stdout.
    pub(super) output: Vec<u8>,
    /// Text for stderr.
    pub(super) notes: String,
    pub(super) code: u8,
}

impl Command {
    /// Whether the command is `check`, to which --strict applies.
    pub(super) fn is_check(&self) -> bool {
        matches!(self, Command::Check { .. })
    }
}

/// Runs the command. `is_strict` is the `--strict` before the sub-command.
pub(super) fn run(command: &Command, is_strict: bool) -> Outcome {
    let done = match command {
        Command::Check {
            files,
            strict,
            shape,
            fetching,
        } => return check::check_files(files, fetching, is_strict || *strict, *shape),
        Command::Convert {
            file,
            output,
            reading,
        } => convert::convert(file, reading, output),
        Command::Merge {
            files,
            output,
            reading,
        } => convert::merge(files, reading, output),
        Command::Top {
            file,
            table,
            shape,
            reading,
        } => top::top(file, reading, table, *shape),
        Command::Diff(arguments) => return diff::compare(arguments),
        Command::Flamegraph(arguments) => flamegraph::flamegraph(arguments),
    };
    match done {
        Ok((output, notes)) => Outcome {
            output,
            notes,
            code: EXIT_SUCCESS,
        },
        Err(error) => Outcome {
            output: Vec::new(),
            notes: format!("error: {error}\n"),
            code: EXIT_FAILURE,
        },
    }
}

/// Output for stdout and stderr, or the error.
type Done = Result<(Vec<u8>, String), String>;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    pub(super) struct Line {
        #[command(subcommand)]
        pub(super) command: Command,
    }

    fn outcome(line: &[&str]) -> Outcome {
        let line = Line::try_parse_from([&["profiles"], line].concat()).unwrap();
        run(&line.command, false)
    }

    fn good(line: &[&str]) -> String {
        let outcome = outcome(line);
        assert_eq!(outcome.code, EXIT_SUCCESS, "{}", outcome.notes);
        String::from_utf8_lossy(&outcome.output).into_owned()
    }

    fn path<'p>(directory: &Path, name: &str, text: &'p mut String) -> &'p str {
        *text = directory.join(name).display().to_string();
        text
    }

    const FOLDED: &str = "main;idle 1\nmain;run;work 5\n";

    #[test]
    fn formats_convert_to_each_other_and_back() {
        let directory = tempfile::tempdir().unwrap();
        let [mut a, mut b, mut c] = [const { String::new() }; 3];
        let folded = path(directory.path(), "in.folded", &mut a);
        std::fs::write(folded, FOLDED).unwrap();
        for name in ["p.pb.gz", "p.otlp", "p.json"] {
            let first = path(directory.path(), name, &mut b);
            assert_eq!(good(&["convert", folded, "-o", first]), "");
            assert_eq!(good(&["convert", first, "--to", "folded"]), FOLDED);
            for name in ["q.pb.gz", "q.otlp", "q.json"] {
                let second = path(directory.path(), name, &mut c);
                good(&["convert", first, "-o", second]);
                assert_eq!(good(&["convert", second, "--to", "folded"]), FOLDED);
            }
        }
    }

    #[test]
    fn merged_files_of_different_formats_are_added_up() {
        let directory = tempfile::tempdir().unwrap();
        let [mut a, mut b, mut c] = [const { String::new() }; 3];
        let folded = path(directory.path(), "in.folded", &mut a);
        std::fs::write(folded, FOLDED).unwrap();
        let pprof = path(directory.path(), "p.pb.gz", &mut b);
        good(&["convert", folded, "-o", pprof]);
        let merged = good(&["merge", folded, folded, "--to", "folded"]);
        assert_eq!(merged, "main;idle 2\nmain;run;work 10\n");
        // The format is that of the first file.
        let twice = path(directory.path(), "twice", &mut c);
        good(&["merge", pprof, pprof, "-o", twice]);
        assert!(std::fs::read(twice).unwrap().starts_with(&[0x1f, 0x8b]));
        assert_eq!(good(&["convert", twice, "--to", "folded"]), merged);
    }

    #[test]
    fn top_lists_highest_values_first() {
        let directory = tempfile::tempdir().unwrap();
        let mut a = String::new();
        let folded = path(directory.path(), "in.folded", &mut a);
        std::fs::write(folded, FOLDED).unwrap();
        let expected = concat!(
            "Type: samples (count)\n",
            "Total: 6\n",
            "Showing 2 of 4 functions\n",
            "        flat   flat%    sum%          cum    cum%\n",
            "           5  83.33%  83.33%            5  83.33%  work\n",
            "           1  16.67% 100.00%            1  16.67%  idle\n",
        );
        assert_eq!(good(&["top", folded, "-n", "2"]), expected);
    }

    #[test]
    fn flame_graph_is_written_in_every_format() {
        let (directory, files) = folded_files(&[("in.folded", FOLDED)]);
        let file = files[0].as_str();
        let svg = good(&["flamegraph", file, "--to", "svg"]);
        assert!(svg.starts_with("<svg ") && svg.contains("work (5, 83.33%)"));
        let zoomed = good(&["flamegraph", file, "--to", "svg", "--zoom", "main;run"]);
        assert!(zoomed.contains(">work<") && !zoomed.contains(">idle<"));
        let few = good(&["flamegraph", file, "--to", "svg", "--max-frames", "3"]);
        assert!(few.contains("(1 more)"), "{few}");
        let [mut page, mut scope] = [const { String::new() }; 2];
        let page = path(directory.path(), "out.html", &mut page);
        assert_eq!(good(&["flamegraph", file, "-o", page]), "");
        assert!(
            std::fs::read_to_string(page)
                .unwrap()
                .starts_with("<!DOCTYPE html>")
        );
        let scope = path(directory.path(), "out.speedscope.json", &mut scope);
        good(&["flamegraph", file, "-o", scope]);
        let scope: serde_json::Value =
            serde_json::from_slice(&std::fs::read(scope).unwrap()).unwrap();
        assert_eq!(scope["profiles"][0]["endValue"], 6);
        let unsaid = outcome(&["flamegraph", file, "-o", "out.png"]).notes;
        assert!(unsaid.contains("--to svg, html or speedscope"), "{unsaid}");
        let nowhere = outcome(&["flamegraph", file, "--to", "svg", "--zoom", "run"]).notes;
        assert!(
            nowhere.contains("no function has the call path `run`"),
            "{nowhere}"
        );
    }

    #[test]
    fn diff_draws_both_profiles_in_one_page() {
        let (directory, files) = folded_files(&[("a", BEFORE), ("b", AFTER)]);
        let mut page = String::new();
        let page = path(directory.path(), "out.html", &mut page);
        let text = good(&["diff", &files[0], &files[1], "--html", page]);
        assert!(text.contains("Total: 100 -> 115"), "{text}");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("\"compares\":true") && page.contains("\"totals\":[100,115]"));
        assert!(page.contains("\"old\"") && page.contains("\"new\""));
    }

    #[test]
    fn errors_name_file_and_cause() {
        let directory = tempfile::tempdir().unwrap();
        let mut a = String::new();
        let file = path(directory.path(), "heap.txt", &mut a);
        std::fs::write(file, "heap profile: 1: 2 [3: 4] @ heap/1048576\nx\n").unwrap();
        let refused = outcome(&["top", file]);
        assert_eq!(refused.code, EXIT_FAILURE);
        assert!(
            refused
                .notes
                .contains("heap.txt: not a valid text heap profile file: line 2: "),
            "{}",
            refused.notes
        );
        std::fs::write(file, FOLDED).unwrap();
        let unsaid = outcome(&["convert", file]).notes;
        assert!(unsaid.contains("--to"), "{unsaid}");
        let unknown = outcome(&["top", file, "--sample-type", "cpu"]).notes;
        assert!(unknown.contains("available: samples"), "{unknown}");
        assert_eq!(outcome(&["top", "/nonexistent/profile"]).code, EXIT_FAILURE);
    }

    const BEFORE: &str = "main;idle 50\nmain;run;work 40\nmain;old 10\n";
    const AFTER: &str = "main;idle 50\nmain;run;work 60\nmain;new 5\n";

    fn folded_files(files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for (name, text) in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            names.push(file.display().to_string());
        }
        (directory, names)
    }

    #[test]
    fn diff_lists_growth_and_shrinkage() {
        let (_directory, files) = folded_files(&[("a", BEFORE), ("b", AFTER)]);
        let [before, after] = [&files[0], &files[1]];
        let expected = [
            "Type: samples (count)",
            "Before: 100",
            "After: 115",
            "Total: 100 -> 115, +15 (+15.00%)",
            "Grew: 2",
            "        flat       change                    cum       change",
            "          60          +20   +50.00%           60          +20   +50.00%  work",
            "           5           +5       new            5           +5       new  new",
            "Shrank: 1",
            "        flat       change                    cum       change",
            "           0          -10  -100.00%            0          -10  -100.00%  old",
            "",
        ];
        assert_eq!(good(&["diff", before, after]), expected.join("\n"));
        let same = good(&["diff", before, before, "--fail-above", "0%"]);
        assert!(same.contains("Grew: none\nShrank: none\npassed"), "{same}");
        // Cumulative values, and only large ones.
        let by = good(&["diff", before, after, "--by", "cum", "--min-share", "20%"]);
        let rows = by.lines().filter_map(|line| line.rsplit_once("  "));
        let names: Vec<&str> = rows.map(|(_, name)| name).collect();
        assert_eq!(names, ["change", "run", "work", "main"]);
    }

    #[test]
    fn diff_fails_on_growth_above_limit() {
        let (_directory, files) = folded_files(&[("a", BEFORE), ("b", AFTER)]);
        let [before, after] = [&files[0], &files[1]];
        let diff = |more: &[&str]| {
            let outcome = outcome(&[&["diff", before, after], more].concat());
            let text = String::from_utf8(outcome.output).unwrap() + &outcome.notes;
            (outcome.code, text)
        };
        let cases: [(&[&str], u8, &str); 10] = [
            (
                &["--fail-above", "15%"],
                EXIT_SUCCESS,
                "passed: the total: 100 -> 115",
            ),
            (
                &["--fail-above", "14.9%"],
                EXIT_GROWTH,
                "FAILED: the total: 100 -> 115, +15 (+15.00%), more than 14.9%",
            ),
            (
                &["--fail-above", "40", "--function", "run"],
                EXIT_GROWTH,
                "FAILED: run: 40 -> 60",
            ),
            (
                &["--fail-above", "40", "--function", "run", "--by", "flat"],
                EXIT_SUCCESS,
                "passed: run: 0 -> 0",
            ),
            (
                &["--fail-above", "20", "--function", "main"],
                EXIT_SUCCESS,
                "passed: main",
            ),
            (
                &["--fail-above", "60", "--each-function"],
                EXIT_GROWTH,
                "FAILED: new: 0 -> 5, +5 (new)",
            ),
            (
                &["--fail-above", "60", "--each-function", "--min-share", "5%"],
                EXIT_SUCCESS,
                "passed: none of 3 functions",
            ),
            (
                &["--fail-above", "10", "--normalize"],
                EXIT_COMPARISON_FAILED,
                "error: --fail-above needs --function",
            ),
            (
                &["--fail-above", "40", "--normalize", "--function", "work"],
                EXIT_SUCCESS,
                "passed: work: 46 -> 60, +14 (+30.43%)",
            ),
            (
                &["--fail-above", "1", "--function", "ru"],
                EXIT_COMPARISON_FAILED,
                "neither measurement has a function `ru`; did you mean run?",
            ),
        ];
        for (arguments, code, says) in cases {
            let (found, text) = diff(arguments);
            assert_eq!(found, code, "{arguments:?}: {text}");
            assert!(text.contains(says), "{arguments:?}: {text}");
        }
        let missing = outcome(&["diff", before, "/nonexistent/profile"]);
        assert_eq!(missing.code, EXIT_COMPARISON_FAILED);
        assert_eq!(diff(&["--sample-type", "cpu"]).0, EXIT_COMPARISON_FAILED);
    }

    #[test]
    fn diff_compares_mean_of_runs_in_directory() {
        let runs = [
            ("a/1", "main 10\n"),
            ("a/2", "main 20\n"),
            ("b/1", "main 33\n"),
            ("c/.hidden", "main 33\n"),
        ];
        let (directory, _files) = folded_files(&runs);
        let [mut a, mut b, mut c] = [const { String::new() }; 3];
        let [a, b, c] = [("a", &mut a), ("b", &mut b), ("c", &mut c)]
            .map(|(name, text)| path(directory.path(), name, text));
        let text = good(&["diff", a, b]);
        assert!(
            text.contains("Before: 15 (mean of 2 files)\nAfter: 33\n"),
            "{text}"
        );
        assert!(text.contains("+120.00%"), "{text}");
        let empty = outcome(&["diff", a, c]);
        assert_eq!(empty.code, EXIT_COMPARISON_FAILED);
        assert!(
            empty.notes.contains("the directory has no files"),
            "{}",
            empty.notes
        );
    }

    #[test]
    fn pprof_files_with_different_default_types_are_merged() {
        use prost::Message as _;
        use tributary_profiles::pprof::testing::{PprofFile, PprofSample, PprofValueType};
        let directory = tempfile::tempdir().unwrap();
        let names = ["a.pb", "b.pb", "c.pb.gz"];
        let files = names.map(|name| directory.path().join(name).display().to_string());
        for (file, default_sample_type) in files.iter().zip([2, 0]) {
            let types = [1, 2].map(|kind| PprofValueType { kind, unit: 0 });
            let pprof = PprofFile {
                sample_type: types.to_vec(),
                sample: vec![PprofSample {
                    value: vec![1, 2],
                    ..PprofSample::default()
                }],
                string_table: ["", "objects", "space"].map(|name| name.into()).to_vec(),
                default_sample_type,
                ..PprofFile::default()
            };
            std::fs::write(file, pprof.encode_to_vec()).unwrap();
        }
        let [first, second, merged] = &files;
        for pair in [[first, second], [second, first]] {
            good(&["merge", pair[0], pair[1], "-o", merged]);
            let folded = |name| good(&["convert", merged, "--to", "folded", "--sample-type", name]);
            assert_eq!(folded("objects"), " 2\n");
            assert_eq!(folded("space"), " 4\n");
        }
    }

    #[test]
    fn dropped_frames_are_not_shown() {
        use prost::Message as _;
        use tributary_profiles::pprof::testing::{
            PprofFile, PprofFunction, PprofLocation, PprofSample, PprofValueType,
        };
        let names = [
            "",
            "cpu",
            "main",
            "run",
            "malloc",
            "brk",
            "malloc|brk",
            "malloc",
        ];
        let sample = |location_id: &[u64], value| PprofSample {
            location_id: location_id.to_vec(),
            value: vec![value],
            label: Vec::new(),
        };
        let line = |function_id| tributary_profiles::pprof::testing::PprofLine {
            function_id,
            line: 1,
            column: 0,
        };
        let mut file = PprofFile {
            sample_type: vec![PprofValueType { kind: 1, unit: 0 }],
            sample: vec![
                sample(&[4, 3, 2, 1], 7),
                sample(&[2, 1], 1),
                // All frames are dropped, but the sample stays.
                sample(&[4, 3], 2),
            ],
            string_table: names.map(|name| name.as_bytes().to_vec()).to_vec(),
            drop_frames: 6,
            ..PprofFile::default()
        };
        for id in 1..=4 {
            file.function.push(PprofFunction {
                id,
                name: 1 + i64::try_from(id).unwrap(),
                ..PprofFunction::default()
            });
            file.location.push(PprofLocation {
                id,
                line: vec![line(id)],
                ..PprofLocation::default()
            });
        }
        // The third one is inlined into `run`.
        file.location[2].line.push(line(2));
        let directory = tempfile::tempdir().unwrap();
        let mut name = String::new();
        let name = path(directory.path(), "p", &mut name);
        let rows = |file: &PprofFile, more: &[&str]| -> Vec<String> {
            std::fs::write(name, file.encode_to_vec()).unwrap();
            let text = good(&[&["top", name], more].concat());
            let rows = text.lines().skip(4).map(|row| {
                let words: Vec<&str> = row.split_whitespace().collect();
                [words[0], words[3], words[5]].join(" ")
            });
            rows.collect()
        };
        assert_eq!(rows(&file, &[]), ["8 10 run", "2 2 brk", "0 8 main"]);
        file.keep_frames = 7;
        assert_eq!(rows(&file, &[]), ["9 9 malloc", "1 10 run", "0 8 main"]);
        file.drop_frames = 0;
        let all = ["9 9 brk", "1 10 run", "0 9 malloc", "0 8 main"];
        assert_eq!(rows(&file, &[]), all);
        let some = ["--focus", "^main$", "--ignore", "^brk"];
        assert_eq!(rows(&file, &some), ["1 1 run", "0 1 main"]);
        // An invalid regular expression drops nothing, and is reported.
        file.string_table[6] = b"(".to_vec();
        file.drop_frames = 6;
        assert_eq!(rows(&file, &[]), all);
        let notes = outcome(&["top", name]).notes;
        let note = "note: drop_frames of a profile has no effect: the pattern is not a valid regular expression";
        assert!(notes.contains(note), "{notes}");
        // The same holds for a regular expression that would take hundreds of megabytes.
        file.string_table[6] = br"((\w{90}){90}){90}".to_vec();
        assert_eq!(rows(&file, &[]), all);
        let notes = outcome(&["top", name]).notes;
        let note = "note: drop_frames of a profile has no effect: the pattern is too large";
        assert!(notes.contains(note), "{notes}");
    }
}
