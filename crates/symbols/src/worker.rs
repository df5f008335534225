//! The worker: a process of its own that reads strangers' files.
//!
//! It is this program again, with a sub-command that is not in the help. Before it opens a file it limits itself: memory,
//! CPU time, the size of what it writes, no core dump, the lowest priority. It has no environment, and nothing of the
//! collector's is in its memory. A file that makes it crash, or run in circles, costs one symbol file and nothing else.
//!
//! Threads that catch panics were rejected: they share the memory that a decompression bomb takes, and a file that is
//! shortened while it is mapped ends the whole process (`SIGBUS`).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::compile::{CompileError, Inputs, Limits, compile};
use super::describe::{Description, describe};
use super::failure::Failure;
use futures_util::future::BoxFuture;

/// What a worker may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Memory in bytes, besides the files it reads, which are mapped.
    pub memory: u64,
    /// CPU time, in whole seconds.
    pub cpu: Duration,
    /// The most bytes of the files it reads.
    pub input: u64,
    /// The most bytes of the file it writes.
    pub output: u64,
}

impl WorkerLimits {
    /// Whether one of them is more than in the other ones.
    pub fn allow_more_than(&self, other: &WorkerLimits) -> bool {
        self.memory > other.memory
            || self.cpu > other.cpu
            || self.input > other.input
            || self.output > other.output
    }
}

/// What reads strangers' files. In tests it is no process.
pub trait Compiler: Send + Sync + 'static {
    /// What may be used for a file.
    fn limits(&self) -> WorkerLimits;

    /// What a file says of itself.
    fn describe<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Description, Failure>>;

    /// Compiles files into the symbol file `output`.
    fn compile<'a>(
        &'a self,
        binary: &'a Path,
        supplementary: &'a [PathBuf],
        output: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

/// Starts a worker for each file.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The program.
    program: PathBuf,
    limits: WorkerLimits,
}

/// The exit codes of a worker that could say what is wrong; others are the runtime's or a signal's.
const UNUSABLE: i32 = 64;
const TOO_LARGE: i32 = 65;
const NOT_READABLE: i32 = 66;

/// How many times the CPU time may pass on the clock: the worker has the lowest priority.
const PATIENCE: u32 = 5;

/// CPU time between the limit, at which the kernel sends SIGXCPU, and the SIGKILL of those who ignore that. So a
/// SIGKILL is somebody else's.
const SECONDS_TO_END: u64 = 5;

/// How many files this process has described at once. They are read in parts only, but each time by a process.
const DESCRIBED_AT_ONCE: usize = 4;
static DESCRIBING: Semaphore = Semaphore::const_new(DESCRIBED_AT_ONCE);

/// The most bytes that are read of what a worker says of a file: mostly paths of `.dwo` files.
const WORDS: u64 = 256 << 10;
/// The most bytes that are read of what a worker complains about.
const COMPLAINT: u64 = 4096;

/// What an entry of [`Limits::entries`] takes at most, with what is made of it.
const BYTES_PER_ENTRY: u64 = 96;

/// How many files a worker may have open: the standard ones, those it reads, the one it writes.
const OPEN_FILES: u64 = 64;

impl Worker {
    /// Workers with these limits. The program is the one that runs, even if its file was replaced since it was started.
    pub fn new(limits: WorkerLimits) -> Self {
        let program = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe().unwrap_or_default(),
        };
        Worker { program, limits }
    }

    async fn run(&self, files: &[&Path], output: Option<&Path>) -> Result<String, Failure> {
        let local = |error: io::Error| Failure::Local(format!("no worker can be run: {error}"));
        let mut command = Command::new(&self.program);
        command
            .args(["symbols", "worker"])
            .arg(format!("--memory={}", self.limits.memory))
            .arg(format!("--cpu={}", self.limits.cpu.as_secs().max(1)))
            .arg(format!("--input-bytes={}", self.limits.input))
            .arg(format!("--output-bytes={}", self.limits.output));
        if let Some(output) = output {
            command.arg("--output").arg(output);
        }
        command
            .arg("--")
            .args(files)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(local)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let done = async {
            let (words, complaint) = tokio::join!(said(stdout, WORDS), said(stderr, COMPLAINT));
            child.wait().await.map(|status| (status, words, complaint))
        };
        let patience = self.limits.cpu.saturating_mul(PATIENCE);
        let Ok(done) = timeout(patience, done).await else {
            return Err(Failure::Interrupted(format!(
                "it took more than {patience:?}"
            )));
        };
        let (status, words, complaint) = done.map_err(local)?;
        match status.success() {
            true => Ok(words),
            false => Err(self.failure(status, complaint.trim())),
        }
    }

    fn failure(&self, status: ExitStatus, complaint: &str) -> Failure {
        let complaint = || complaint.chars().take(200).collect::<String>();
        match status.code() {
            Some(UNUSABLE) => return Failure::Unusable(complaint()),
            Some(TOO_LARGE) => return Failure::TooLarge(complaint()),
            Some(NOT_READABLE) => return Failure::Local(complaint()),
            _ => {}
        }
        let signal = status.signal().and_then(Signal::from_named_raw);
        let WorkerLimits {
            memory,
            cpu,
            output,
            ..
        } = self.limits;
        let limit = match signal {
            Some(Signal::XCPU) => format!("{cpu:?} of CPU time were not enough"),
            Some(Signal::KILL) => {
                let text = "it was killed, as the kernel does where memory is short";
                return Failure::Interrupted(text.to_owned());
            }
            Some(Signal::XFSZ) => format!("the symbol file has more than {output} bytes"),
            // What an allocation that fails ends with.
            Some(Signal::ABORT) => {
                format!("{memory} bytes of memory were not enough: {}", complaint())
            }
            _ => format!("it ended with {status}: {}", complaint()),
        };
        Failure::Worker(limit)
    }
}

impl Compiler for Worker {
    fn limits(&self) -> WorkerLimits {
        self.limits
    }

    fn describe<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(async move {
            let _turn = DESCRIBING.acquire().await;
            let lines = self.run(&[file], None).await?;
            Ok(Description::from_lines(&lines))
        })
    }

    fn compile<'a>(
        &'a self,
        binary: &'a Path,
        supplementary: &'a [PathBuf],
        output: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let mut files = vec![binary];
            files.extend(supplementary.iter().map(PathBuf::as_path));
            self.run(&files, Some(output)).await.map(drop)
        })
    }
}

/// What a worker says, as far as anybody wants to hear it. Behind that its pipe is closed.
async fn said(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> String {
    let mut words = Vec::new();
    if let Some(pipe) = pipe {
        // What came before an error counts.
        let _ = pipe.take(most).read_to_end(&mut words).await;
    }
    String::from_utf8_lossy(&words).into_owned()
}

/// What a worker is told to do: to compile the files, or without an output to describe the first of them.
#[derive(Debug)]
pub struct Task {
    /// What it may use.
    pub limits: WorkerLimits,
    /// Where the symbol file goes.
    pub output: Option<PathBuf>,
    /// The binary, and the files that belong to it.
    pub files: Vec<PathBuf>,
}

/// Why a worker could not do what it was told.
#[derive(Debug)]
pub struct Complaint {
    /// What it exits with.
    pub code: u8,
    /// What it says on stderr.
    pub text: String,
}

impl Task {
    /// Does it, and returns what goes to stdout. This process has the limits from now on.
    ///
    /// # Errors
    /// What is wrong, with the exit code that says so.
    pub fn run(&self) -> Result<String, Complaint> {
        let not_readable = |error: io::Error| complaint(NOT_READABLE, &error);
        let Some((binary, supplementary)) = self.files.split_first() else {
            return Err(complaint(NOT_READABLE, &"no file"));
        };
        let mut input = 0u64;
        for file in &self.files {
            let metadata = std::fs::metadata(file).map_err(not_readable)?;
            input = input.saturating_add(metadata.len());
        }
        if input > self.limits.input {
            let text = format!("it has {input} bytes; {} are allowed", self.limits.input);
            return Err(complaint(TOO_LARGE, &text));
        }
        self.limits.enter(input).map_err(not_readable)?;
        let Some(output) = &self.output else {
            // The other half is for what is made of it.
            let description = describe(binary, self.limits.memory / 2).map_err(not_readable)?;
            return Ok(description.to_lines());
        };
        let inputs = Inputs {
            binary,
            supplementary,
        };
        let limits = Limits {
            input_bytes: self.limits.input,
            decompressed_bytes: self.limits.memory,
            output_bytes: self.limits.output,
            entries: self.limits.memory / BYTES_PER_ENTRY,
        };
        let output = File::options().write(true).open(output);
        let mut output = BufWriter::new(output.map_err(not_readable)?);
        compile(&inputs, &limits, &mut output).map_err(|error| Complaint::of(&error))?;
        output.flush().map_err(not_readable)?;
        Ok(String::new())
    }
}

impl WorkerLimits {
    /// Limits this process. `mapped` bytes of files are not memory, but count as address space; so does the program.
    fn enter(&self, mapped: u64) -> io::Result<()> {
        let set_both = |resource, value, most| {
            let limit = Rlimit {
                current: Some(value),
                maximum: Some(most),
            };
            setrlimit(resource, limit)
        };
        let set = |resource, value| set_both(resource, value, value);
        // Where memory is short, this is what has to go. It may be refused, and then nothing is wrong.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        // A collector that is killed takes its workers with it.
        #[cfg(target_os = "linux")]
        set_parent_process_death_signal(Some(Signal::KILL))?;
        set(Resource::Core, 0)?;
        set(Resource::Nofile, OPEN_FILES)?;
        let cpu = self.cpu.as_secs().max(1);
        set_both(Resource::Cpu, cpu, cpu.saturating_add(SECONDS_TO_END))?;
        set(Resource::Fsize, self.output)?;
        let space = self.memory.saturating_add(mapped);
        set(Resource::As, space.saturating_add(address_space()?))?;
        // As the lowest: what the pipelines do comes first. It may be refused, and then nothing is wrong.
        let _ = nice(19);
        Ok(())
    }
}

/// What this process has of its address space already, in bytes (proc_pid_statm(5)): mostly the program itself.
fn address_space() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|size| size.parse().ok());
    let pages: u64 = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

impl Complaint {
    fn of(error: &CompileError) -> Self {
        let code = match error {
            CompileError::Limit(_) => TOO_LARGE,
            CompileError::Io(_) => NOT_READABLE,
            _ => UNUSABLE,
        };
        complaint(code, error)
    }
}

fn complaint(code: i32, text: &dyn std::fmt::Display) -> Complaint {
    Complaint {
        code: u8::try_from(code).unwrap_or(1),
        text: text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn who_is_killed_from_outside_is_not_to_blame_and_who_exceeds_a_limit_is() {
        let worker = Worker::new(WorkerLimits {
            memory: 1,
            cpu: Duration::from_secs(1),
            input: 1,
            output: 1,
        });
        for (signal, kind) in [
            (Signal::KILL, Kind::Interrupted),
            (Signal::XCPU, Kind::Worker),
            (Signal::XFSZ, Kind::Worker),
            (Signal::ABORT, Kind::Worker),
            (Signal::SEGV, Kind::Worker),
        ] {
            let status = ExitStatus::from_raw(signal.as_raw());
            assert_eq!(worker.failure(status, "").kind(), kind, "{status}");
        }
    }
}
