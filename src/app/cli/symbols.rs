//! `collector symbols`: compiles, looks up, inspects and uploads symbols of binaries.

mod json;
mod upload;
mod worker;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Cursor};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::options::Shape;
use super::printable;
use crate::processors::symbolication::WorkerConfig;
use tributary_symbols::find::BinaryFiles;
use tributary_symbols::find::directories::Directories;
use tributary_symbols::worker::Worker;
use tributary_symbols::{
    BuildId, CompileLimits, CompileSummary, Inputs, NameSource, SymbolFile, SymbolFileError,
};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Compile the symbols of a binary (debug information, Go's tables, symbol tables) into a
    /// symbol file.
    Compile {
        /// ELF file for x86-64 or arm64: the binary or its separate debug file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        companions: Companions,
        /// Output file. Default: FILE with `.symbols` appended to its name.
        #[arg(short, long, value_name = "PATH")]
        output: Option<PathBuf>,
    },
    /// Show functions, files and lines of addresses, innermost frame first.
    ///
    /// Addresses are those of the binary, as `nm` and `objdump` show them. Exits with 1 if no
    /// address is known.
    Lookup {
        /// A symbol file; a binary, which is compiled on the fly; or a build id, which is searched
        /// for in the directories.
        #[arg(value_name = "FILE|BUILD_ID")]
        file: PathBuf,
        /// Hexadecimal addresses, with or without `0x`.
        #[arg(required = true, value_name = "ADDRESS", value_parser = address)]
        addresses: Vec<u64>,
        #[command(flatten)]
        companions: Companions,
        /// Directory to search for a build id, as in the key `directories` of the symbolication
        /// processor. May be given several times.
        #[arg(
            long = "directory",
            value_name = "DIRECTORY",
            default_value = "/usr/lib/debug"
        )]
        directories: Vec<PathBuf>,
        #[command(flatten)]
        shape: Shape,
    },
    /// Show the symbols of a binary, the share of code that they cover, and missing sources.
    Inspect {
        /// A binary or a symbol file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        companions: Companions,
        #[command(flatten)]
        shape: Shape,
    },
    /// Upload binaries or debug information to the `symbol_upload` extension of a collector.
    Upload(upload::Arguments),
    /// Read untrusted files within limits; a collector starts this process for each of them.
    #[command(hide = true)]
    Worker(worker::Arguments),
}

/// Companion files of a binary.
#[derive(Debug, Args)]
pub(super) struct Companions {
    /// Companion file of the binary: its separate debug file, `.dwo` files, a `.dwp` package, or
    /// the supplementary file of dwz. May be given several times.
    #[arg(long = "with", value_name = "FILE")]
    with: Vec<PathBuf>,
}

/// Output of a command, or the error.
type Done = Result<String, String>;

/// Output of a command, and its exit code.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Text for stdout.
    pub(super) output: String,
    /// Text for stderr.
    pub(super) notes: String,
    pub(super) code: u8,
}

pub(super) fn run(command: &Command) -> Outcome {
    let done = match command {
        Command::Compile {
            file,
            companions,
            output,
        } => compile(file, companions, output.as_deref()),
        Command::Lookup {
            file,
            addresses,
            companions,
            directories,
            shape,
        } => lookup(file, addresses, companions, directories, *shape),
        Command::Inspect {
            file,
            companions,
            shape: Shape { json: true },
        } => json::inspect(file, companions),
        Command::Inspect {
            file, companions, ..
        } => inspect(file, companions),
        Command::Upload(arguments) => return upload::upload(arguments),
        Command::Worker(arguments) => return worker::work(arguments),
    };
    match done {
        Ok(output) => Outcome {
            output,
            ..Outcome::default()
        },
        Err(error) => Outcome {
            notes: format!("error: {error}\n"),
            code: 1,
            ..Outcome::default()
        },
    }
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "not a hexadecimal number".to_owned())
}

fn compile(file: &Path, companions: &Companions, output: Option<&Path>) -> Done {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".symbols");
    let path = output.unwrap_or(Path::new(&beside));
    // Written beside the final name and renamed, so that no reader opens a partial file.
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let failed = |error| format!("{}: {error}", path.display());
    let mut writer = BufWriter::new(File::create(part).map_err(failed)?);
    let inputs = Inputs {
        binary: file,
        supplementary: &companions.with,
    };
    let compiled = tributary_symbols::compile(&inputs, &CompileLimits::default(), &mut writer);
    drop(writer);
    let compiled = compiled
        .map_err(|error| error.about(file))
        .and_then(|summary| {
            std::fs::rename(part, path).map_err(failed)?;
            Ok(summary)
        });
    if compiled.is_err() {
        let _ = std::fs::remove_file(part);
    }
    let summary = compiled?;
    let mut text = format!("{}: {} bytes\n", path.display(), summary.bytes);
    coverage(&summary, &mut text);
    Ok(text)
}

fn lookup(
    file: &Path,
    addresses: &[u64],
    companions: &Companions,
    directories: &[PathBuf],
    shape: Shape,
) -> Done {
    let id = file.to_str().and_then(|text| text.parse::<BuildId>().ok());
    let symbols = match id.filter(|_| !file.exists()) {
        Some(id) => {
            let mut found = search(&id, directories)?;
            found.supplementary.extend_from_slice(&companions.with);
            let companions = Companions {
                with: found.supplementary,
            };
            open(&found.binary, &companions)?
        }
        None if !file.exists() => {
            return Err(format!(
                "{}: no such file, and not a build id of 8 to 128 hexadecimal digits",
                file.display()
            ));
        }
        None => open(file, companions)?,
    };
    if shape.json {
        return json::lookup(&symbols, addresses);
    }
    let mut text = String::new();
    let mut known = false;
    let (mut cursor, mut names) = (symbols.cursor(), symbols.names());
    for address in addresses {
        let _ = writeln!(text, "{address:#x}");
        let mut frames = cursor.frames(*address).peekable();
        if frames.peek().is_none() {
            text.push_str("  ?\n");
        }
        for frame in frames {
            let Some(function) = names.of(frame.function) else {
                break;
            };
            known = true;
            let _ = write!(text, "  {}", printable(function.name));
            if !function.file.is_empty() {
                let _ = write!(text, " at {}:{}", printable(function.file), frame.line);
                if frame.column != 0 {
                    let _ = write!(text, ":{}", frame.column);
                }
            } else if frame.line != 0 {
                let _ = write!(text, " at line {}", frame.line);
            }
            text.push_str(if frame.inlined { " (inlined)\n" } else { "\n" });
        }
    }
    match known {
        true => Ok(text),
        false => Err(format!(
            "{}: no symbols for these addresses",
            file.display()
        )),
    }
}

/// Opens a symbol file, or compiles one from a binary.
fn open(path: &Path, companions: &Companions) -> Result<SymbolFile, String> {
    match SymbolFile::open(path) {
        Err(SymbolFileError::NotSymbolFile) => compiled(path, companions).map(|(file, _)| file),
        opened => opened.map_err(|error| format!("{}: {error}", path.display())),
    }
}

fn compiled(path: &Path, companions: &Companions) -> Result<(SymbolFile, CompileSummary), String> {
    let inputs = Inputs {
        binary: path,
        supplementary: &companions.with,
    };
    let mut output = Cursor::new(Vec::new());
    let summary = tributary_symbols::compile(&inputs, &CompileLimits::default(), &mut output);
    let summary = summary.map_err(|error| error.about(path))?;
    let file = SymbolFile::from_bytes(output.into_inner());
    let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((file, summary))
}

/// Searches for the files of a build id in the same way as the processor.
fn search(id: &BuildId, directories: &[PathBuf]) -> Result<BinaryFiles, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let worker = Worker::new(WorkerConfig::default().limits(CompileLimits::default().input_bytes));
    let found = runtime.block_on(Directories::new(directories).search(id, &worker));
    found.map_err(|_| {
        let searched = directories.iter().map(|path| path.display().to_string());
        let searched = searched.collect::<Vec<_>>().join(", ");
        format!("{id}: no such file, and no file with this build id in {searched}")
    })
}

fn inspect(path: &Path, companions: &Companions) -> Done {
    let mut text = String::new();
    match SymbolFile::open(path) {
        Ok(file) => {
            if let Err(error) = file.verify() {
                return Err(format!("{}: {error}", path.display()));
            }
            let id = file
                .build_id()
                .map_or("none".to_owned(), BuildId::to_string);
            let _ = writeln!(text, "A symbol file of {} bytes", file.bytes());
            let _ = writeln!(text, "Build id: {id}");
            let _ = writeln!(text, "Ranges of addresses: {}", file.ranges());
            return Ok(text);
        }
        Err(SymbolFileError::NotSymbolFile) => {}
        Err(error) => return Err(format!("{}: {error}", path.display())),
    }
    let found = tributary_symbols::inspect(path).map_err(|error| error.about(path))?;
    let kind = match found.is_debug_file {
        true => "A debug file",
        false => "A binary",
    };
    let _ = writeln!(text, "{kind} for {}", found.machine);
    match (&found.build_id, &found.go_build_id) {
        (Some(id), _) => {
            let _ = writeln!(text, "Build id: {id}");
        }
        (None, Some(id)) => {
            let _ = writeln!(
                text,
                "Go build id: {} (as a build id: {})",
                printable(id),
                BuildId::from_go(id)
            );
        }
        (None, None) => text.push_str(
            "No build id: profiles cannot refer to this binary. Link with \
                                       `-Wl,--build-id`.\n",
        ),
    }
    for (name, size) in &found.sections {
        let _ = writeln!(text, "{name:<24} {size:>12} bytes");
    }
    if let Some(link) = &found.debug_link {
        let _ = writeln!(text, "Debug file: {}", printable(&link.to_string_lossy()));
    }
    if let Some(link) = &found.alternative_link {
        let _ = writeln!(
            text,
            "The debug information needs {} (see --with)",
            printable(&link.to_string_lossy())
        );
    }
    if let Some(unit) = found.units.first() {
        let _ = writeln!(
            text,
            "The debug information is split: {} units like {} in /{}",
            found.units.len(),
            printable(&unit.name),
            printable(&unit.directory)
        );
    }
    match compiled(path, companions) {
        Ok((_, summary)) => {
            let _ = writeln!(text, "As a symbol file: {} bytes", summary.bytes);
            coverage(&summary, &mut text);
        }
        Err(error) => {
            let _ = writeln!(text, "Cannot compile symbols: {error}");
        }
    }
    Ok(text)
}

/// Reports the share of code with symbols, and the reasons for gaps.
fn coverage(summary: &CompileSummary, text: &mut String) {
    let percent = |bytes: u64| bytes as f64 * 100.0 / summary.code.max(1) as f64;
    let _ = writeln!(text, "Share of {} bytes of code:", summary.code);
    for (source, covered) in NameSource::ALL.into_iter().zip(summary.covered) {
        if covered != 0 {
            let _ = writeln!(text, "  {:<14} {:>6.2} %", source.name(), percent(covered));
        }
    }
    if summary.damaged_units != 0 {
        let _ = writeln!(
            text,
            "Damaged units of debug information: {}",
            summary.damaged_units
        );
    }
    if summary.missing_units != 0 {
        let _ = writeln!(
            text,
            "Units whose .dwo file or .dwp package was not given (see --with): {}",
            summary.missing_units
        );
    }
}
