//! `collector profiles`: work on files of profiles.

mod check;
mod convert;
mod input;
mod load;
mod output;
mod top;

use std::path::PathBuf;

use clap::Subcommand;

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
    /// Convert a file of profiles: pprof, OTLP and folded stacks, each to each.
    ///
    /// What the file is, is found out. What pprof has no place for is left out there: resources, the names of scopes,
    /// the times of single samples.
    Convert {
        /// The file, also with gzip; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: output::Arguments,
    },
    /// Merge files of profiles: the values of equal samples are added up, as `go tool pprof -proto` does it.
    ///
    /// Binaries may be at different addresses in each process. Profiles of different resources or sample types stay
    /// apart.
    Merge {
        /// The files, also with gzip, and not all of one kind if need be; `-` is stdin.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: output::Arguments,
    },
    /// Show which functions count most, as `go tool pprof -top` does.
    ///
    /// `flat` is what was counted in a function itself, `cum` includes what it calls. Frames that a profile asks to
    /// drop are shown, and names are shown as they are in the file.
    Top {
        /// The file, also with gzip; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What to count, such as `cpu` or `inuse_space`. Without it, what the profile says is shown first, else the
        /// last one of a pprof file.
        #[arg(long, value_name = "NAME")]
        sample_type: Option<String>,
        /// How many functions to show; 0 for all.
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 30)]
        count: usize,
        /// Show whole numbers in the profile's own unit.
        #[arg(long)]
        exact: bool,
    },
}

/// What to print, and whether it is good.
#[derive(Debug)]
pub(super) struct Outcome {
    /// For stdout.
    pub(super) output: Vec<u8>,
    /// For stderr.
    pub(super) notes: String,
    pub(super) good: bool,
}

pub(super) fn run(command: &Command, strict: bool) -> Outcome {
    let done = match command {
        Command::Check { files } => return check::check_files(files, strict),
        Command::Convert { file, output } => convert::convert(file, output),
        Command::Merge { files, output } => convert::merge(files, output),
        Command::Top {
            file,
            sample_type,
            count,
            exact,
        } => top::top(file, sample_type.as_deref(), *count, *exact),
    };
    match done {
        Ok((output, notes)) => Outcome {
            output,
            notes,
            good: true,
        },
        Err(error) => Outcome {
            output: Vec::new(),
            notes: format!("error: {error}\n"),
            good: false,
        },
    }
}

/// What goes to stdout and to stderr, or why nothing does.
type Done = Result<(Vec<u8>, String), String>;
