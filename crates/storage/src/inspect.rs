//! Read-only view of a log, which may be in use by another process.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::OpenError;
use super::block;
use super::format::{marker_of, segment_name};
use super::lock::Lock;
use super::recovery::{Plan, Recovered, recover};
use super::scan::{Found, Scan};

/// LogContents of a log's directory.
#[derive(Debug, Clone)]
pub struct LogContents {
    /// Unacknowledged records, damage and bytes.
    pub found: Recovered,
    /// Number of segment files.
    pub segments: usize,
    /// Whether a process has the log open. In an open log, the other fields are a snapshot.
    pub in_use: bool,
}

/// The backlog of a log.
pub struct Backlog {
    /// Damage and counts.
    pub found: Recovered,
    /// Items and content of each record, in order.
    pub records: Box<dyn Iterator<Item = Result<(usize, Bytes), OpenError>>>,
}

/// Inspects a log.
///
/// # Errors
/// The files cannot be read.
pub fn inspect(directory: &Path) -> Result<LogContents, OpenError> {
    let plan = recover(directory, None)?;
    Ok(LogContents {
        segments: plan.segments.len(),
        found: plan.recovered,
        in_use: Lock::is_taken(directory),
    })
}

/// Returns the unacknowledged records of a log. Damaged blocks are skipped.
///
/// # Errors
/// The files cannot be read.
pub fn backlog(directory: &Path) -> Result<Backlog, OpenError> {
    let plan = recover(directory, None)?;
    let directory: PathBuf = directory.to_owned();
    let segments: Vec<_> = plan.segments.iter().cloned().collect();
    let Plan {
        marker,
        segments: state,
        recovered,
        ..
    } = plan;
    let acknowledged = state.acknowledged;
    let blocks = segments.into_iter().flat_map(move |segment| {
        let path = directory.join(segment_name(segment.name));
        let failed = {
            let path = path.clone();
            move |error| OpenError::Io {
                doing: "read",
                path: path.clone(),
                error,
            }
        };
        let mut scan = Some(
            Scan::open(&path, marker_of(marker, segment.name), segment.bytes).map_err(&failed),
        );
        std::iter::from_fn(move || {
            let mut open = match scan.take()? {
                Ok(open) => open,
                Err(error) => return Some(Err(error)),
            };
            let found = loop {
                match open.next() {
                    Ok(Some(Found::Block { header, stored, .. })) => {
                        // The next segment repeats the records from this number on.
                        let first = header.first;
                        if first >= segment.end {
                            return None;
                        }
                        let raw = block::expand(&header, stored).unwrap_or_default();
                        break Ok((header, raw));
                    }
                    Ok(Some(Found::Damaged(_))) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(Err(failed(error))),
                }
            };
            scan = Some(Ok(open));
            Some(found)
        })
    });
    let records = blocks.flat_map(move |block| {
        let (records, error) = match block {
            Ok((header, raw)) => {
                let records = block::records(&header, &raw)
                    .filter(|(sequence, ..)| !acknowledged.contains(*sequence))
                    .map(|(_, items, data)| Ok((items, data)));
                (records.collect::<Vec<_>>(), None)
            }
            Err(error) => (Vec::new(), Some(Err(error))),
        };
        records.into_iter().chain(error)
    });
    Ok(Backlog {
        found: recovered,
        records: Box::new(records),
    })
}
