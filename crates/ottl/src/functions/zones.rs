//! Time zones by name.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::calendar::Date;

/// A time zone.
#[derive(Debug)]
pub(super) struct Zone(TimeZone);

impl Zone {
    /// Returns the time zone of the IANA database; UTC for the empty name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(Zone(match name {
            "" | "UTC" => TimeZone::UTC,
            "Local" => TimeZone::system(),
            name => TimeZone::get(name).ok()?,
        }))
    }

    /// Returns the offset from UTC, in seconds, at a local date.
    pub(super) fn offset(&self, date: &Date) -> Option<i32> {
        let local = DateTime::new(
            i16::try_from(date.year).ok()?,
            i8::try_from(date.month).ok()?,
            i8::try_from(date.day).ok()?,
            i8::try_from(date.hour).ok()?,
            i8::try_from(date.minute).ok()?,
            i8::try_from(date.second).ok()?,
            0,
        );
        let zoned = self.0.to_zoned(local.ok()?).ok()?;
        Some(zoned.offset().seconds())
    }
}
