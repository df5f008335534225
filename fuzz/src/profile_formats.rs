//! The targets for files of profilers.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tributary_memory::Budget;
use tributary_profile_formats::{Format, FormatLimits, detect, read_profiles};
use tributary_profiles::check;

/// A readable file is well-formed as OTLP, and uses no more memory than its permit states. The first byte chooses the format,
/// unless the format is detected.
pub fn profile_formats(input: &[u8]) {
    let Some((first, file)) = input.split_first() else {
        return;
    };
    detect(file);
    if let Some(format) = Format::ALL.get(usize::from(*first) % Format::ALL.len()) {
        survive(file, *format);
    }
}

/// The same for recordings of Java Flight Recorder.
pub fn jfr(input: &[u8]) {
    survive(input, Format::Jfr);
}

fn survive(file: &[u8], format: Format) {
    const HELD: usize = 100;
    let budget = Budget::new(16 << 20);
    let mut permit = budget.acquire(HELD).unwrap();
    let limits = FormatLimits {
        input: 1 << 18,
        memory: 4 << 20,
        ..FormatLimits::default()
    };
    let Ok(profiles) = read_profiles(file, Some(format), &limits, &mut permit) else {
        assert_eq!(permit.bytes(), HELD);
        return;
    };
    let samples = profiles.iter().map(|profile| profile.samples.bytes());
    let bytes = profiles.dictionary.bytes() + samples.sum::<usize>();
    assert!(bytes < permit.bytes() + (256 << 10), "{bytes} {}", permit.bytes());
    let request = ExportProfilesServiceRequest::decode(profiles.encode()).unwrap();
    for finding in check::check(&request).findings() {
        assert!(!finding.rule.is_structural(), "{finding}");
    }
}
