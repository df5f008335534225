//! The worker: a separate process that reads untrusted files.
//!
//! The worker is this program with a sub-command that is hidden from the help. Before the worker opens a file, it
//! limits its memory, CPU time, and output size, disables core dumps, and takes the lowest priority. It has no
//! environment, and its memory contains no data of the collector. If a file crashes the worker or makes it loop, only
//! one symbol file is lost.
//!
//! A thread with panic handling is not enough. A decompression bomb would exhaust the memory of the whole process,
//! and a mapped file that is truncated ends the process (`SIGBUS`).

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

use super::compile::{CompileError, CompileLimits, Inputs, compile};
use super::describe::{Description, describe};
use super::failure::Failure;
use futures_util::future::BoxFuture;

/// Resource limits of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Memory in bytes, excluding the mapped input files.
    pub memory: u64,
    /// CPU time, in whole seconds.
    pub cpu: Duration,
    /// Maximum size of all input files together, in bytes.
    pub input: u64,
    /// Maximum size of the output file, in bytes.
    pub output: u64,
}

impl WorkerLimits {
    /// Whether any limit is higher than in `other`.
    pub fn exceed(&self, other: &WorkerLimits) -> bool {
        self.memory > other.memory
            || self.cpu > other.cpu
            || self.input > other.input
            || self.output > other.output
    }
}

/// Reads untrusted files. Tests use an implementation without a process.
pub trait Compiler: Send + Sync + 'static {
    /// Returns the limits for one file.
    fn limits(&self) -> WorkerLimits;

    /// Describes a file: its build id and debug links.
    fn describe<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Description, Failure>>;

    /// Compiles files into the symbol file `output`.
    fn compile<'a>(
        &'a self,
        binary: &'a Path,
        supplementary: &'a [PathBuf],
        output: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

/// Starts a worker process for each file.
#[derive(Debug, Clone)]
pub struct Worker {
    program: PathBuf,
    limits: WorkerLimits,
}

/// Exit codes of a worker that reports a problem. Other codes come from the runtime or a signal.
const UNUSABLE: i32 = 64;
const TOO_LARGE: i32 = 65;
const NOT_READABLE: i32 = 66;

/// Wall-clock limit as a multiple of the CPU time, since the worker has the lowest priority.
const WALL_CLOCK_FACTOR: u32 = 5;

/// CPU seconds between the limit, at which the kernel sends SIGXCPU, and the kernel's SIGKILL for processes that ignore
/// SIGXCPU. An earlier SIGKILL therefore has another cause, such as the OOM killer.
const SIGKILL_DELAY_SECONDS: u64 = 5;

/// Maximum number of parallel descriptions. A description reads only parts of a file, but takes a process.
const MAX_DESCRIPTIONS: usize = 4;
static DESCRIBING: Semaphore = Semaphore::const_new(MAX_DESCRIPTIONS);

/// Maximum size of a worker's description of a file, in bytes. Most of a description is paths of `.dwo` files.
const MAX_DESCRIPTION_BYTES: u64 = 256 << 10;
/// Maximum size of a worker's error message, in bytes.
const MAX_ERROR_BYTES: u64 = 4096;

/// Upper bound of the memory for an entry of [`CompileLimits::entries`] and its output, in bytes.
const BYTES_PER_ENTRY: u64 = 96;

/// Maximum number of files that a worker may open: standard streams, inputs and the output.
const OPEN_FILES: u64 = 64;

impl Worker {
    /// Creates a starter of workers with these limits. Workers run the executable of this process, even if the file
    /// was replaced since the start.
    pub fn new(limits: WorkerLimits) -> Self {
        let program = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe().unwrap_or_default(),
        };
        Worker { program, limits }
    }

    async fn run(&self, files: &[&Path], output: Option<&Path>) -> Result<String, Failure> {
        let local = |error: io::Error| Failure::Local(format!("cannot start a worker: {error}"));
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
            let (text, error_text) = tokio::join!(
                read_output(stdout, MAX_DESCRIPTION_BYTES),
                read_output(stderr, MAX_ERROR_BYTES)
            );
            child.wait().await.map(|status| (status, text, error_text))
        };
        let wall_clock = self.limits.cpu.saturating_mul(WALL_CLOCK_FACTOR);
        let Ok(done) = timeout(wall_clock, done).await else {
            return Err(Failure::Interrupted(format!(
                "the worker ran for more than {wall_clock:?}"
            )));
        };
        let (status, text, error_text) = done.map_err(local)?;
        match status.success() {
            true => Ok(text),
            false => Err(self.failure(status, error_text.trim())),
        }
    }

    fn failure(&self, status: ExitStatus, error_text: &str) -> Failure {
        let error_text = || error_text.chars().take(200).collect::<String>();
        match status.code() {
            Some(UNUSABLE) => return Failure::Unusable(error_text()),
            Some(TOO_LARGE) => return Failure::TooLarge(error_text()),
            Some(NOT_READABLE) => return Failure::Local(error_text()),
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
            Some(Signal::XCPU) => format!("more than {cpu:?} of CPU time"),
            Some(Signal::KILL) => {
                let text = "the worker was killed with SIGKILL, probably for lack of memory";
                return Failure::Interrupted(text.to_owned());
            }
            Some(Signal::XFSZ) => format!("the symbol file has more than {output} bytes"),
            // A failed allocation aborts the process.
            Some(Signal::ABORT) => {
                format!("more than {memory} bytes of memory: {}", error_text())
            }
            _ => format!("the worker exited with {status}: {}", error_text()),
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

/// Reads at most `most` bytes of a worker's output and then closes the pipe.
async fn read_output(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> String {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        // The bytes before a read error are used.
        let _ = pipe.take(most).read_to_end(&mut text).await;
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The task of a worker: to compile the files, or without an output to describe the first file.
#[derive(Debug)]
pub struct Task {
    /// Resource limits of the worker.
    pub limits: WorkerLimits,
    /// Path of the symbol file.
    pub output: Option<PathBuf>,
    /// The binary, followed by its companion files.
    pub files: Vec<PathBuf>,
}

/// An error of a worker, with its exit code.
#[derive(Debug)]
pub struct WorkerError {
    /// Exit code.
    pub code: u8,
    /// Message for stderr.
    pub text: String,
}

impl Task {
    /// Runs the task and returns the text for stdout. The limits apply to this process from now on.
    ///
    /// # Errors
    /// Returns the problem with its exit code.
    pub fn run(&self) -> Result<String, WorkerError> {
        let not_readable = |error: io::Error| worker_error(NOT_READABLE, &error);
        let Some((binary, supplementary)) = self.files.split_first() else {
            return Err(worker_error(NOT_READABLE, &"no file"));
        };
        let mut input = 0u64;
        for file in &self.files {
            let metadata = std::fs::metadata(file).map_err(not_readable)?;
            input = input.saturating_add(metadata.len());
        }
        if input > self.limits.input {
            let text = format!(
                "the input has {input} bytes, more than the limit of {}",
                self.limits.input
            );
            return Err(worker_error(TOO_LARGE, &text));
        }
        self.limits.enter(input).map_err(not_readable)?;
        let Some(output) = &self.output else {
            // The other half is for the data built from the sections.
            let description = describe(binary, self.limits.memory / 2).map_err(not_readable)?;
            return Ok(description.to_lines());
        };
        let inputs = Inputs {
            binary,
            supplementary,
        };
        let limits = CompileLimits {
            input_bytes: self.limits.input,
            decompressed_bytes: self.limits.memory,
            output_bytes: self.limits.output,
            entries: self.limits.memory / BYTES_PER_ENTRY,
        };
        let output = File::options().write(true).open(output);
        let mut output = BufWriter::new(output.map_err(not_readable)?);
        compile(&inputs, &limits, &mut output).map_err(|error| WorkerError::of(&error))?;
        output.flush().map_err(not_readable)?;
        Ok(String::new())
    }
}

impl WorkerLimits {
    /// Limits this process. `mapped` bytes of files and the program count as address space, but not as memory.
    fn enter(&self, mapped: u64) -> io::Result<()> {
        let set_both = |resource, value, most| {
            let limit = Rlimit {
                current: Some(value),
                maximum: Some(most),
            };
            setrlimit(resource, limit)
        };
        let set = |resource, value| set_both(resource, value, value);
        // If memory is short, the kernel should kill the worker first. A failure is harmless.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        // If the collector is killed, the kernel kills its workers too.
        #[cfg(target_os = "linux")]
        set_parent_process_death_signal(Some(Signal::KILL))?;
        set(Resource::Core, 0)?;
        set(Resource::Nofile, OPEN_FILES)?;
        let cpu = self.cpu.as_secs().max(1);
        set_both(
            Resource::Cpu,
            cpu,
            cpu.saturating_add(SIGKILL_DELAY_SECONDS),
        )?;
        set(Resource::Fsize, self.output)?;
        let space = self.memory.saturating_add(mapped);
        set(Resource::As, space.saturating_add(address_space()?))?;
        // Lowest priority, because pipelines come first. A failure is harmless.
        let _ = nice(19);
        Ok(())
    }
}

/// Address space in use by this process, in bytes (proc_pid_statm(5)); most of it is the program.
fn address_space() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|size| size.parse().ok());
    let pages: u64 = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

impl WorkerError {
    fn of(error: &CompileError) -> Self {
        let code = match error {
            CompileError::Limit(_) => TOO_LARGE,
            CompileError::Io(_) => NOT_READABLE,
            _ => UNUSABLE,
        };
        worker_error(code, error)
    }
}

fn worker_error(code: i32, text: &dyn std::fmt::Display) -> WorkerError {
    WorkerError {
        code: u8::try_from(code).unwrap_or(1),
        text: text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn sigkill_is_interrupted_and_exceeded_limit_is_failure() {
        let worker = Worker::new(WorkerLimits {
            memory: 1,
            cpu: Duration::from_secs(1),
            input: 1,
            output: 1,
        });
        for (signal, kind) in [
            (Signal::KILL, FailureKind::Interrupted),
            (Signal::XCPU, FailureKind::Worker),
            (Signal::XFSZ, FailureKind::Worker),
            (Signal::ABORT, FailureKind::Worker),
            (Signal::SEGV, FailureKind::Worker),
        ] {
            let status = ExitStatus::from_raw(signal.as_raw());
            assert_eq!(worker.failure(status, "").kind(), kind, "{status}");
        }
    }
}
