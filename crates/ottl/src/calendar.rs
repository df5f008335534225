//! Calendar dates of times.

use crate::value::Moment;

const SECONDS_OF_A_DAY: i64 = 86_400;

/// A time in its time zone, in the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) nanosecond: i64,
    /// 0 (Sunday) to 6.
    pub(crate) weekday: i64,
}

impl Date {
    pub(crate) fn of(time: Moment) -> Self {
        let seconds = time.nanoseconds.div_euclid(1_000_000_000) + i64::from(time.offset);
        let days = seconds.div_euclid(SECONDS_OF_A_DAY);
        let rest = seconds.rem_euclid(SECONDS_OF_A_DAY);
        let (year, month, day) = civil(days);
        Date {
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            nanosecond: time.nanoseconds.rem_euclid(1_000_000_000),
            weekday: (days + 4).rem_euclid(7),
        }
    }

    /// Returns the nanoseconds since 1970 of this date at an offset from UTC; `None` outside of the range.
    pub(crate) fn nanoseconds(&self, offset: i32) -> Option<i64> {
        let days = days(self.year, self.month, self.day);
        let seconds = days * SECONDS_OF_A_DAY + self.hour * 3600 + self.minute * 60 + self.second
            - i64::from(offset);
        seconds
            .checked_mul(1_000_000_000)?
            .checked_add(self.nanosecond)
    }
}

/// Formats an offset from UTC with hours and minutes.
pub(crate) fn offset(seconds: i32, separator: &str) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    format!("{sign}{:02}{separator}{:02}", minutes / 60, minutes % 60)
}

/// Returns year, month and day from the days since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the days since 1970.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_convert_in_both_directions() {
        for (nanoseconds, year, month, day, weekday) in [
            (0, 1970, 1, 1, 4),
            (951_782_400_000_000_000, 2000, 2, 29, 2),
            (-1, 1969, 12, 31, 3),
            (1_704_067_199_999_999_999, 2023, 12, 31, 0),
        ] {
            let date = Date::of(Moment::utc(nanoseconds));
            assert_eq!(
                (date.year, date.month, date.day, date.weekday),
                (year, month, day, weekday)
            );
            assert_eq!(date.nanoseconds(0), Some(nanoseconds));
            let elsewhere = Date::of(Moment {
                nanoseconds,
                offset: 7200,
            });
            assert_eq!(elsewhere.nanoseconds(7200), Some(nanoseconds));
        }
    }
}
