//! `collector symbols worker`: see [`tributary_symbols::worker`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::Outcome;
use tributary_symbols::worker::{Task, WorkerLimits};

#[derive(Debug, Args)]
pub(in crate::app::cli) struct Arguments {
    #[arg(long)]
    memory: u64,
    #[arg(long)]
    cpu: u64,
    #[arg(long)]
    input_bytes: u64,
    #[arg(long)]
    output_bytes: u64,
    #[arg(long)]
    output: Option<PathBuf>,
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(super) fn work(arguments: &Arguments) -> Outcome {
    let task = Task {
        limits: WorkerLimits {
            memory: arguments.memory,
            cpu: Duration::from_secs(arguments.cpu),
            input: arguments.input_bytes,
            output: arguments.output_bytes,
        },
        output: arguments.output.clone(),
        files: arguments.files.clone(),
    };
    match task.run() {
        Ok(output) => Outcome {
            output,
            ..Outcome::default()
        },
        Err(complaint) => Outcome {
            notes: format!("{}\n", complaint.text),
            code: complaint.code,
            ..Outcome::default()
        },
    }
}
