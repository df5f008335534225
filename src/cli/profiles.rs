//! `collector profiles`: work on profiles, from files and URLs.

mod check;
mod convert;
mod diff;
mod fetch;
mod input;
mod labels;
mod load;
#[cfg(test)]
mod mutations;
mod output;
mod table;
mod top;

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check profiles against the rules of OTLP: prints every rule that is broken, with its place.
    ///
    /// Exits with 1 if a file breaks a rule that is a must or cannot be read; with --strict warnings count, too.
    Check {
        /// OTLP profiles (`ProfilesData` or an export request) as protobuf, also with gzip: files, or URLs (http, https);
        /// `-` is stdin. A file of the Collector's file exporter, with the length before each message, is read message by
        /// message.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        fetching: fetch::Fetching,
    },
    /// Convert profiles: pprof, OTLP and folded stacks, each to each.
    ///
    /// What the file is, is found out. What pprof has no place for is left out there: resources, the names of scopes,
    /// the times of single samples.
    Convert {
        /// The file, also with gzip, or a URL; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: output::Arguments,
        #[command(flatten)]
        reading: load::Reading,
    },
    /// Merge profiles: the values of equal samples are added up, as `go tool pprof -proto` does it.
    ///
    /// Binaries may be at different addresses in each process. Profiles of different resources or sample types stay
    /// apart.
    Merge {
        /// The files, also with gzip, or URLs, and not all of one kind if need be; `-` is stdin.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: output::Arguments,
        #[command(flatten)]
        reading: load::Reading,
    },
    /// Show which functions count most, as `go tool pprof -top` does.
    ///
    /// `flat` is what was counted in a function itself, `cum` includes what it calls. Frames that a profile asks to
    /// drop are left out; names are shown as they are in the file.
    Top {
        /// The file, also with gzip, or a URL, such as http://localhost:6060/debug/pprof/heap; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        table: table::Table,
        #[command(flatten)]
        reading: load::Reading,
    },
    /// Show what grew and what shrank between two measurements; fail if it grew too much.
    ///
    /// A change is against what was before. Where a side is a directory, its files are runs of one measurement: they are
    /// merged, and their mean counts.
    ///
    /// Exits with 1 if something grew by more than --fail-above, with 2 if the two could not be compared.
    Diff(diff::Comparison),
}

/// There is nothing to complain of.
const GOOD: u8 = 0;
/// It could not be done, or there is something to complain of.
const BAD: u8 = 1;
/// The exit code of `diff` when something grew by more than it may.
const GREW: u8 = 1;
/// The exit code of `diff` when the two could not be compared: who only asks for growth must not take that for it.
const FAILED: u8 = 2;

/// What to print, and the exit code.
#[derive(Debug)]
pub(super) struct Outcome {
    /// For stdout.
    pub(super) output: Vec<u8>,
    /// For stderr.
    pub(super) notes: String,
    pub(super) code: u8,
}

pub(super) fn run(command: &Command, strict: bool) -> Outcome {
    let done = match command {
        Command::Check { files, fetching } => return check::check_files(files, fetching, strict),
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
            reading,
        } => top::top(file, reading, table),
        Command::Diff(arguments) => return diff::compare(arguments),
    };
    match done {
        Ok((output, notes)) => Outcome {
            output,
            notes,
            code: GOOD,
        },
        Err(error) => Outcome {
            output: Vec::new(),
            notes: format!("error: {error}\n"),
            code: BAD,
        },
    }
}

/// What goes to stdout and to stderr, or why nothing does.
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
        assert_eq!(outcome.code, GOOD, "{}", outcome.notes);
        String::from_utf8_lossy(&outcome.output).into_owned()
    }

    fn path<'p>(directory: &Path, name: &str, text: &'p mut String) -> &'p str {
        *text = directory.join(name).display().to_string();
        text
    }

    const FOLDED: &str = "main;idle 1\nmain;run;work 5\n";

    #[test]
    fn every_format_converts_to_every_other_and_back() {
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
    fn top_shows_what_counts_most_first() {
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
    fn an_error_names_the_file_and_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let mut a = String::new();
        let file = path(directory.path(), "heap.txt", &mut a);
        std::fs::write(file, "heap profile: 1: 2 [3: 4] @ heap/1048576\n").unwrap();
        let refused = outcome(&["top", file]);
        assert_eq!(refused.code, BAD);
        assert!(
            refused
                .notes
                .contains("heap.txt: it is not in pprof's format"),
            "{}",
            refused.notes
        );
        std::fs::write(file, FOLDED).unwrap();
        let unsaid = outcome(&["convert", file]).notes;
        assert!(unsaid.contains("--to"), "{unsaid}");
        let unknown = outcome(&["top", file, "--sample-type", "cpu"]).notes;
        assert!(unknown.contains("there are: samples"), "{unknown}");
        assert_eq!(outcome(&["top", "/nonexistent/profile"]).code, BAD);
    }
}
