//! Writes the seeds of the named targets below `fuzz/seeds`: `fuzz/run --seeds`.

use std::path::Path;

// Brings the runtime of the instrumentation.
use libfuzzer_sys as _;

fn main() {
    for target in std::env::args().skip(1) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(&target);
        for (number, seed) in tributary_fuzz::seeds::of(&target).iter().enumerate() {
            std::fs::create_dir_all(&directory).expect("a directory for the seeds");
            std::fs::write(directory.join(format!("made-{number}")), seed).expect("a seed");
        }
    }
}
