//! Attacks on a running collector of this machine: `attack/mod.rs` lists the checks.
//!
//!     cargo run --release --example attack -- --grpc 127.0.0.1:4317 --http 127.0.0.1:4318 --pid PID --limit-mib 128
//!
//! The exit code is 0 if every attack was held, 1 if one was not, 2 if the suite could not run.

mod attack;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let options = attack::Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: cannot start the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let outcome = runtime.block_on(attack::run(options));
    runtime.shutdown_background();
    match outcome {
        Ok(report) if report.failed().next().is_none() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::from(2)
        }
    }
}
