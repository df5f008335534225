//! What it costs to compile a binary into a symbol file, to open that, and to look addresses up in it.
//!
//! `cargo bench --bench symbols -- BINARY [FILE...]` takes any binary and what goes with it; without one, itself. It prints the
//! best of several runs. `cargo test --benches` runs each step once.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tributary::symbols::{Inputs, Limits, SymbolFile, compile};

/// Addresses per run.
const ADDRESSES: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = if arguments.iter().any(|argument| argument == "--bench") {
        7
    } else {
        1
    };
    let files = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"));
    let mut files: Vec<PathBuf> = files
        .map(PathBuf::from)
        .filter(|file| file.exists())
        .collect();
    if files.is_empty() {
        files.push(std::env::current_exe()?);
    }
    let (binary, supplementary) = files.split_first().ok_or("no binary")?;
    let directory = std::env::temp_dir();
    let path = directory.join(format!("symbols-bench-{}", std::process::id()));
    let outcome = measure(binary, supplementary, &path, runs);
    std::fs::remove_file(&path)?;
    outcome
}

fn measure(
    binary: &std::path::Path,
    supplementary: &[PathBuf],
    path: &std::path::Path,
    runs: usize,
) -> Result<(), Box<dyn Error>> {
    let inputs = Inputs {
        binary,
        supplementary,
    };
    let size = std::fs::metadata(binary)?.len();
    let mut summary = None;
    let compiling = best(runs.min(3), || {
        let mut output = std::io::BufWriter::new(std::fs::File::create(path)?);
        summary = Some(compile(&inputs, &Limits::default(), &mut output)?);
        Ok(())
    })?;
    let summary = summary.ok_or("nothing was compiled")?;
    let share = summary.bytes as f64 * 100.0 / size as f64;
    println!(
        "compile  {size} bytes in {compiling:?}: {} bytes, {share:.1} %",
        summary.bytes
    );
    let opening = best(runs, || {
        SymbolFile::open(path).map(drop).map_err(Into::into)
    })?;
    println!("open     {opening:?}");

    let file = SymbolFile::open(path)?;
    let mut addresses = known(&file, summary.code);
    let mut frames = 0_u64;
    for order in ["any order", "ascending"] {
        let elapsed = best(runs, || {
            let mut cursor = file.cursor();
            frames = addresses
                .iter()
                .map(|address| cursor.frames(*address).count() as u64)
                .sum();
            Ok(())
        })?;
        let rate = addresses.len() as f64 / elapsed.as_secs_f64() / 1e6;
        let depth = frames as f64 / addresses.len().max(1) as f64;
        println!("look up  {rate:.2} million addresses a second, {order}, {depth:.2} frames each");
        addresses.sort_unstable();
    }
    Ok(())
}

/// Random addresses that have names.
fn known(file: &SymbolFile, code: u64) -> Vec<u64> {
    let mut cursor = file.cursor();
    let mut random = 1_u64;
    let mut addresses = Vec::new();
    for _ in 0..64 * ADDRESSES {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Binaries are linked for addresses from 0 or 4 MiB on.
        let address = (random >> 20) % (2 * code + (8 << 20));
        if cursor.frames(address).next().is_some() {
            addresses.push(address);
        }
        if addresses.len() as u64 == ADDRESSES {
            break;
        }
    }
    addresses
}

fn best(
    runs: usize,
    mut step: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        step()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}
