//! `otlp_json_file`, alias `otlpjsonfile`: reads the files that the `file` exporter writes.
//!
//! The read position of a file advances when the pipeline accepts a record or refuses it
//! permanently. Temporarily refused records are retried. Files are identified by device and inode,
//! and stay open, so a renamed or deleted file is read to its end.

mod config;
mod files;
mod intake;
mod positions;
mod tail;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

pub use self::config::{Config, InputCompression, InputFormat, StartAt};
use self::files::{Files, MIN_INTERVAL, positions_file};
use self::intake::Intake;
use self::positions::Positions;
use self::tail::Framing;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::Component;
use crate::receivers::glob::Glob;
use crate::receivers::polling::Polling;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "otlp_json_file",
    aliases: &["otlpjsonfile"],
    "Reads files of OTLP, as JSON lines or in protobuf.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::RECEIVER, METRICS]
);

const METRICS: &[Metric] = &[metric::counter(
    "tributary_receiver_file_skipped_records",
    "Number of records that were skipped because they were not readable, too large, or refused permanently; by \
     reason",
)];

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let globs = |patterns: &[String]| {
            let globs = patterns.iter().map(|pattern| Glob::new(pattern));
            globs.collect::<Result<Vec<_>, _>>().map_err(BuildError)
        };
        let signals: Vec<Signal> = outputs.signals().collect();
        if self.format == InputFormat::Proto && signals.len() > 1 {
            let names: Vec<&str> = signals.iter().map(|signal| signal.name()).collect();
            return Err(BuildError(format!(
                "`format: proto` does not encode the signal of a request, and the receiver is in pipelines of {}: \
                 use a separate receiver, with separate files, for each signal",
                names.join(" and ")
            )));
        }
        let mut positions = None;
        if let Some(id) = &self.storage {
            let storage = cx.extensions.get(id).storage.ok_or_else(|| {
                BuildError(format!(
                    "storage: the extension `{id}` is not running or is not a storage extension; name a \
                     `file_storage` extension that `service.extensions` lists"
                ))
            })?;
            let file = storage.directory.join(positions_file(&cx.id));
            positions = Some(Positions::new(file));
        }
        let files = Files {
            positions,
            include: globs(&self.include)?,
            exclude: globs(&self.exclude)?,
            framing: match (self.format, self.compression) {
                (InputFormat::Json, InputCompression::None) => Framing::Lines,
                _ => Framing::Lengths,
            },
            intake: Intake::new(self, cx, outputs),
            config: self.clone(),
            id: cx.id.clone(),
            tails: HashMap::new(),
            has_looked: false,
            first: true,
            too_many: false,
            unreadable: SampledLog::default(),
        };
        let interval = (*self.poll_interval).max(MIN_INTERVAL);
        Ok(Box::new(Polling::new(files, Duration::ZERO, interval)))
    }
}
