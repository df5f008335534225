#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tributary_fuzz::pyroscope_form(input));
