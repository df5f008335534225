//! Test doubles for sources and compilers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::compile::{CompileLimits, Inputs, compile};
use crate::describe::{Description, describe};
use crate::failure::Failure;
use crate::find::Tools;
use crate::worker::{Compiler, WorkerLimits};
use futures_util::future::BoxFuture;

/// Compiler that runs in this process instead of a worker.
pub struct InProcess;

impl Compiler for InProcess {
    fn limits(&self) -> WorkerLimits {
        WorkerLimits {
            memory: 1 << 30,
            cpu: Duration::from_secs(60),
            input: 1 << 30,
            output: 1 << 30,
        }
    }

    fn describe<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(async move { Ok(describe(file, 1 << 30).unwrap_or_default()) })
    }

    fn compile<'a>(
        &'a self,
        binary: &'a Path,
        supplementary: &'a [PathBuf],
        output: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let inputs = Inputs {
                binary,
                supplementary,
            };
            let mut output = File::options().write(true).open(output).unwrap();
            let compiled = compile(&inputs, &CompileLimits::default(), &mut output);
            compiled
                .map(drop)
                .map_err(|error| Failure::Unusable(error.to_string()))
        })
    }
}

/// Creates tools with a cache in a temporary directory.
pub fn tools() -> (tempfile::TempDir, Tools) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), 1 << 30).unwrap();
    let tools = Tools {
        cache: Arc::new(cache),
        compiler: Arc::new(InProcess),
        // With a shared semaphore, tests on paused time would wait for each other while their clocks advance.
        compiling: Arc::new(Semaphore::new(1)),
    };
    (directory, tools)
}
