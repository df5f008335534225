//! Statements: any text, and its effect on random requests.

use bytes::Bytes;
use tributary::component::{ProcessorConfig as _, Stage};
use tributary::pipeline::batch::Batch;
use tributary::processors::filter::ErrorMode;
use tributary::processors::transform::{StatementEntry, TransformConfig};
use tributary_config::{Problems, Validate as _};
use tributary_otlp::Signal;

use crate::telemetry::{request, signal_of};

/// The first byte is the signal, the rest a statement. An error is a single line with a position; an accepted
/// statement makes a valid request of a valid one.
pub fn statements(input: &[u8]) {
    let [signal, text @ ..] = input else {
        return;
    };
    let signal = signal_of(*signal);
    let text = String::from_utf8_lossy(text);
    // A metric that is copied is copied again, until the memory budget is used up.
    if text.contains("copy_metric") {
        return;
    }
    let entries = vec![StatementEntry::Text(text.to_string())];
    let mut config = TransformConfig {
        error_mode: ErrorMode::Silent,
        ..TransformConfig::default()
    };
    match signal {
        Signal::Traces => config.trace_statements = entries,
        Signal::Metrics => config.metric_statements = entries,
        Signal::Logs => config.log_statements = entries,
        Signal::Profiles => config.profile_statements = entries,
    }
    let mut problems = Problems::default();
    config.validate(&mut problems);
    if !problems.found().is_empty() {
        for problem in problems.found() {
            assert!(!problem.message.contains('\n'), "{}", problem.message);
        }
        return;
    }
    let context = tributary::fuzzing::context("transform");
    let Ok(Stage::Pure(processor)) = config.build(&context, signal) else {
        panic!("a valid configuration is not built: {text}");
    };
    let (_, request, _) = request(&[&[signal as u8; 32], text.as_bytes(), &[7; 64]].concat());
    let items = tributary_otlp::count(signal, &request);
    if tributary_otlp::validate(signal, &request).is_err() {
        return;
    }
    if let Ok(Some(batch)) = processor.process(Batch::new(signal, items, Bytes::from(request))) {
        let after = batch.wire().to_bytes();
        assert_eq!(tributary_otlp::validate(signal, &after), Ok(batch.items()));
    }
}
