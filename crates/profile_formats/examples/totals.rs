//! Prints the totals of a file by sample type.

use tributary_memory::Budget;
use tributary_profile_formats::{Limits, read_profiles};

fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let limits = Limits {
            input: 1 << 30,
            ..Limits::default()
        };
        let mut permit = Budget::new(usize::MAX).empty_permit();
        println!("{path}: {:?}", tributary_profile_formats::detect(&bytes));
        match read_profiles(&bytes, None, &limits, &mut permit) {
            Err(error) => println!("  {error}"),
            Ok(profiles) => {
                println!("  permit {} bytes", permit.bytes());
                for profile in profiles.iter() {
                    let header = &profile.header;
                    let text = |id| profiles.dictionary.text(id);
                    let total: i64 = profile.samples.iter().map(|sample| sample.total().0).sum();
                    println!(
                        "  {}/{} {total} samples {} period {} time {} duration {}",
                        text(header.sample_type.kind),
                        text(header.sample_type.unit),
                        profile.samples.len(),
                        header.period,
                        header.time,
                        header.duration
                    );
                }
            }
        }
    }
}
