//! Conversion of requests of `push.v1.PusherService/Push`.

use std::sync::Arc;
use std::time::Duration;

use super::convert::{Request, malformed};
use super::sender::Sender;
use crate::receivers::profile_intake::{Converted, Origin, ReceivedBytes, Refused, Rules};
use crate::serving::connect::Encoding;
use tributary_profiles::pprof::Repairs;
use tributary_pyroscope::labels::{self, find};
use tributary_pyroscope::push::{PushError, from_json, from_protobuf};

/// Memory of a label as an attribute, in addition to its text.
const LABEL_BYTES: usize = 128;

/// Converts a request: each series becomes a resource, and each of its profiles a scope.
pub(super) fn convert(
    held: ReceivedBytes,
    encoding: Encoding,
    sender: &Sender,
    rules: &Rules,
) -> Result<(Converted, Repairs), Refused> {
    let ReceivedBytes { bytes, permit } = held;
    let mut request = Request::new(rules, permit);
    let read = match encoding {
        Encoding::Proto => from_protobuf(&bytes),
        Encoding::Json => from_json(&bytes, request.permit()),
    };
    let all = read.map_err(malformed(|error: &PushError| match error {
        PushError::NoRoom(no_room) => Some(*no_room),
        _ => None,
    }))?;
    for series in all {
        let text: usize = series.labels.iter().map(|(a, b)| a.len() + b.len()).sum();
        let needed = text + series.labels.len() * LABEL_BYTES;
        request.permit().grow(needed).map_err(Refused::NoRoom)?;
        let subject = Arc::new(sender.subject(&series.labels));
        let name: Option<Arc<str>> = find(&series.labels, labels::NAME).map(Arc::from);
        // Without a duration, `alloc_space` and others would count from the start of the process.
        let is_delta = find(&series.labels, labels::DELTA) == Some("false");
        let origin = || Origin {
            subject: subject.clone(),
            profile: name.clone().filter(|name| !name.is_empty()),
            start: sender.now,
            duration: Duration::from_nanos(u64::from(is_delta)),
            is_interval: true,
        };
        request.resource();
        for profile in series.profiles {
            let file = request.read(profile, None)?;
            request.add(file, &origin());
        }
    }
    drop(bytes);
    request.finish()
}
