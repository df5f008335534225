//! Maps rows to files, and names the files.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::table::{Partition, TableKind};

/// Common properties of the rows of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: TableKind,
    /// Hours since the epoch, UTC.
    pub(super) hour: i64,
    /// Service name, if files are partitioned by service.
    pub(super) service: Option<Arc<str>>,
}

/// Service in the names of directories for rows of services beyond `max_partitions`.
pub(super) const OVERFLOW: &str = "__overflow__";
/// Stands for the hours beyond `max_partitions`; no row has this hour.
pub(super) const NO_HOUR: i64 = i64::MIN;
/// Hive's name for the partition of rows without a value.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";
/// Maximum bytes of a value in the name of a directory: file systems allow 255 bytes for the whole
/// name.
const MAX_NAME_LENGTH: usize = 200;

impl Key {
    pub(super) fn new(kind: TableKind, partition: &Partition) -> Self {
        Key {
            kind,
            hour: partition.hour,
            service: partition.service.clone(),
        }
    }

    /// Returns the directory below the root in Hive's format:
    /// `signal=logs/date=2026-09-14/hour=05`, followed by `/service=...` if files are partitioned
    /// by service.
    pub(super) fn directory(&self) -> String {
        let mut directory = format!("signal={}", self.kind.name());
        // Writing to a string does not fail.
        let _ = match self.begin() {
            Some(time) => {
                let time = time.to_zoned(TimeZone::UTC);
                write!(directory, "/date={}/hour={:02}", time.date(), time.hour())
            }
            None => write!(directory, "/date={NO_VALUE}/hour={NO_VALUE}"),
        };
        if let Some(service) = &self.service {
            directory.push_str("/service=");
            escape(service, &mut directory);
        }
        directory
    }

    /// Returns the begin of the hour; `None` for rows of several hours.
    pub(super) fn begin(&self) -> Option<Timestamp> {
        let second = self.hour.checked_mul(3600)?;
        // Timestamps of items are before the year 2555.
        Timestamp::from_second(second).ok()
    }

    /// Returns a file name that is unique among all processes: a UUID of version 7 (RFC 9562,
    /// section 5.7), so that names sort by time.
    pub(super) fn file(&self) -> String {
        format!("{}/part-{}.parquet", self.directory(), unique())
    }
}

/// Returns a UUID of version 7.
pub(super) fn unique() -> String {
    let millis = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    let mut bytes = [0; 16];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = fastrand::u128(..).to_be_bytes();
    }
    let random = u128::from_be_bytes(bytes);
    let uuid = (u128::from(millis) << 80)
        | (7 << 76)
        | (((random >> 64) & 0xfff) << 64)
        | (0b10 << 62)
        | (random & ((1 << 62) - 1));
    let digits = format!("{uuid:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// Percent-encodes characters with a meaning in paths, globs or URLs. A long value is cut and gets
/// its hash as a suffix.
fn escape(value: &str, out: &mut String) {
    if value.is_empty() {
        out.push_str(NO_VALUE);
        return;
    }
    let start = out.len();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    if out.len() - start > MAX_NAME_LENGTH {
        let hash = xxhash_rust::xxh3::xxh3_64(value.as_bytes());
        out.truncate(start + MAX_NAME_LENGTH - 17);
        let _ = write!(out, "-{hash:016x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hour: i64, service: Option<&str>) -> Key {
        Key {
            kind: TableKind::Logs,
            hour,
            service: service.map(Arc::from),
        }
    }

    #[test]
    fn directories_are_named_as_in_hive_and_in_utc() {
        assert_eq!(
            key(0, None).directory(),
            "signal=logs/date=1970-01-01/hour=00"
        );
        assert_eq!(
            key(-1, None).directory(),
            "signal=logs/date=1969-12-31/hour=23"
        );
        assert_eq!(
            key(496_925, Some("shop")).directory(),
            "signal=logs/date=2026-09-09/hour=05/service=shop"
        );
        let last = i64::try_from(u64::MAX / 3_600_000_000_000).unwrap();
        assert!(key(last, None).directory().contains("date=2554-07-21"));
    }

    #[test]
    fn rows_of_several_hours_share_default_partition() {
        assert_eq!(
            key(NO_HOUR, Some(OVERFLOW)).directory(),
            format!("signal=logs/date={NO_VALUE}/hour={NO_VALUE}/service=__overflow__")
        );
    }

    #[test]
    fn service_name_cannot_leave_its_directory() {
        let directory = |service: &str| key(0, Some(service)).directory();
        let start = "signal=logs/date=1970-01-01/hour=00/service=";
        assert_eq!(directory("../../etc"), format!("{start}..%2F..%2Fetc"));
        assert_eq!(directory(""), format!("{start}{NO_VALUE}"));
        assert_eq!(directory("a b=*\0"), format!("{start}a%20b%3D%2A%00"));
        let (one, other) = ("x".repeat(400) + "1", "x".repeat(400) + "2");
        assert_ne!(directory(&one), directory(&other));
        assert!(directory(&one).len() <= start.len() + MAX_NAME_LENGTH);
    }

    #[test]
    fn names_are_unique_and_in_the_order_of_time() {
        let first = unique();
        assert_eq!(first.len(), 36);
        assert_eq!(first.as_bytes().get(14), Some(&b'7'));
        assert!(
            first
                .as_bytes()
                .get(19)
                .is_some_and(|digit| b"89ab".contains(digit))
        );
        assert_ne!(first, unique());
        assert!(first.get(..13) <= unique().get(..13));
    }
}
