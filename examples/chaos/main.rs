//! Three tiers, load, and everything that can go wrong, from a seed: `chaos/mod.rs` says what is checked.
//!
//!     cargo build --release --bin collector
//!     cargo run --example chaos -- --collector target/release/collector --seed 1 --seconds 60
//!
//! The exit code is 0 if everything held, 1 if something did not, 2 if it could not be tried.

mod chaos;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let options = chaos::Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: cannot start the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let outcome = runtime.block_on(chaos::run(options));
    runtime.shutdown_background();
    match outcome {
        Ok(report) if report.failures.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::from(2)
        }
    }
}
