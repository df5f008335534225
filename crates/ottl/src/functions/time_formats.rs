//! Formats of times in the notation of `strptime`, with the directives that the Collector knows.

use super::zones::Zone;
use crate::calendar::{Date, Moment, offset};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A parsed format.
#[derive(Debug)]
pub(super) struct Layout(Vec<Directive>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Directive {
    Literal(char),
    Of(char),
}

impl Layout {
    /// Parses a format.
    ///
    /// # Errors
    ///
    /// The reason, if the format has an unknown directive.
    pub(super) fn new(format: &str) -> Result<Self, String> {
        if format.is_empty() {
            return Err("the format is empty".to_owned());
        }
        if format.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err("a format must not contain digits: write directives such as %Y".to_owned());
        }
        let mut directives = Vec::new();
        let mut characters = format.chars();
        while let Some(next) = characters.next() {
            if next != '%' {
                directives.push(Directive::Literal(next));
                continue;
            }
            let of = |text: &str| -> Vec<Directive> {
                text.chars()
                    .map(|next| match next {
                        'A'..='Z' | 'a'..='z' => Directive::Of(next),
                        other => Directive::Literal(other),
                    })
                    .collect()
            };
            match characters.next() {
                Some('%') => directives.push(Directive::Literal('%')),
                Some('n') => directives.push(Directive::Literal('\n')),
                Some('t') => directives.push(Directive::Literal('\t')),
                Some('D' | 'x') => directives.extend(of("m/d/Y")),
                Some('F') => directives.extend(of("Y-m-d")),
                Some('T' | 'X') => directives.extend(of("H:M:S")),
                Some('r') => directives.extend(of("I:M:S P")),
                Some('R') => directives.extend(of("H:M")),
                Some('c') => directives.extend(of("a b d H:M:S Y")),
                Some(fraction @ ('L' | 'f' | 's')) => match directives.last() {
                    Some(Directive::Literal('.' | ',')) | None => {
                        directives.push(Directive::Of(fraction));
                    }
                    _ => return Err(format!("%{fraction} must follow `.` or `,`")),
                },
                Some(known) if "YymoqbhBdegaAHlIpPMSZzwijk".contains(known) => {
                    directives.push(Directive::Of(known));
                }
                Some(other) => return Err(format!("the directive %{other} is not known")),
                None => return Err("the format ends with %".to_owned()),
            }
        }
        Ok(Layout(directives))
    }

    /// Formats a time.
    pub(super) fn format(&self, time: Moment) -> String {
        let date = Date::of(time);
        let name = |names: &[&'static str], at: i64| {
            let at = usize::try_from(at).ok();
            at.and_then(|at| names.get(at)).copied().unwrap_or_default()
        };
        let hour = match date.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let mut output = String::new();
        for directive in &self.0 {
            let shown = match directive {
                Directive::Literal(literal) => {
                    output.push(*literal);
                    continue;
                }
                Directive::Of(directive) => match directive {
                    'Y' => format!("{:04}", date.year),
                    'y' => format!("{:02}", date.year.rem_euclid(100)),
                    'm' => format!("{:02}", date.month),
                    'o' => format!("{:2}", date.month),
                    'q' => date.month.to_string(),
                    'b' | 'h' => name(&MONTHS, date.month - 1).chars().take(3).collect(),
                    'B' => name(&MONTHS, date.month - 1).to_owned(),
                    'd' => format!("{:02}", date.day),
                    'e' => format!("{:2}", date.day),
                    'g' => date.day.to_string(),
                    'a' => name(&WEEKDAYS, date.weekday).chars().take(3).collect(),
                    'A' => name(&WEEKDAYS, date.weekday).to_owned(),
                    'H' => format!("{:02}", date.hour),
                    'l' => hour.to_string(),
                    'I' => format!("{hour:02}"),
                    'p' => if date.hour < 12 { "AM" } else { "PM" }.to_owned(),
                    'P' => if date.hour < 12 { "am" } else { "pm" }.to_owned(),
                    'M' => format!("{:02}", date.minute),
                    'S' => format!("{:02}", date.second),
                    'L' | 'f' | 's' => {
                        let digits = match directive {
                            'L' => format!("{:03}", date.nanosecond / 1_000_000),
                            'f' => format!("{:06}", date.nanosecond / 1000),
                            _ => format!("{:09}", date.nanosecond),
                        };
                        // Trailing zeros are omitted, and so is the point before no digit.
                        let digits = digits.trim_end_matches('0').to_owned();
                        if digits.is_empty() {
                            output.pop();
                        }
                        digits
                    }
                    'Z' if time.offset == 0 => "UTC".to_owned(),
                    'Z' => {
                        let shown = offset(time.offset, "");
                        shown.strip_suffix("00").unwrap_or(&shown).to_owned()
                    }
                    'z' if time.offset == 0 => "Z".to_owned(),
                    'z' => offset(time.offset, ""),
                    'w' => offset(time.offset, "") + "00",
                    'i' => offset(time.offset, "").chars().take(3).collect(),
                    'j' => offset(time.offset, ":"),
                    'k' => offset(time.offset, ":") + ":00",
                    _ => String::new(),
                },
            };
            output.push_str(&shown);
        }
        output
    }

    /// Parses a time in a time zone, unless it contains its own. A missing year is that of `now` or the year before.
    pub(super) fn parse(&self, text: &str, zone: &Zone, now: Moment) -> Option<Moment> {
        let mut reading = Reading::new(text);
        for directive in &self.0 {
            match directive {
                Directive::Literal(literal) => reading.literal(*literal)?,
                Directive::Of(directive) => reading.directive(*directive)?,
            }
        }
        reading.finish(zone, now)
    }
}

/// The state of parsing a time.
struct Reading<'t> {
    rest: &'t str,
    date: Date,
    has_year: bool,
    is_afternoon: Option<bool>,
    offset: Option<i32>,
}

impl<'t> Reading<'t> {
    fn new(text: &'t str) -> Self {
        Reading {
            rest: text,
            date: Date {
                year: 0,
                month: 1,
                day: 1,
                hour: 0,
                minute: 0,
                second: 0,
                nanosecond: 0,
                weekday: 0,
            },
            has_year: false,
            is_afternoon: None,
            offset: None,
        }
    }

    fn literal(&mut self, literal: char) -> Option<()> {
        if literal == ' ' {
            // As in Go, a space of the format matches any number of spaces.
            self.rest = self.rest.trim_start_matches(' ');
            return Some(());
        }
        self.rest = self.rest.strip_prefix(literal)?;
        Some(())
    }

    /// Reads up to `most` digits, after any spaces.
    fn number(&mut self, most: usize) -> Option<i64> {
        let rest = self.rest.trim_start();
        let length = rest
            .bytes()
            .take(most)
            .take_while(u8::is_ascii_digit)
            .count();
        let number = rest.get(..length)?.parse().ok()?;
        self.rest = rest.get(length..)?;
        Some(number)
    }

    fn within(&mut self, most: usize, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        self.number(most).filter(|number| range.contains(number))
    }

    /// Reads a name, or its first three letters, and returns its position.
    fn name(&mut self, names: &[&str], is_short: bool) -> Option<i64> {
        let found = names.iter().position(|name| {
            let length = if is_short { 3 } else { name.len() };
            let (name, text) = (name.get(..length), self.rest.get(..length));
            name.zip(text)
                .is_some_and(|(name, text)| name.eq_ignore_ascii_case(text))
        })?;
        let length = if is_short { 3 } else { names.get(found)?.len() };
        self.rest = self.rest.get(length..)?;
        i64::try_from(found).ok()
    }

    fn directive(&mut self, directive: char) -> Option<()> {
        match directive {
            'Y' => {
                let digits = self.rest.get(..4)?;
                // Parsing accepts a sign, too.
                if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                    return None;
                }
                self.date.year = digits.parse().ok()?;
                self.rest = self.rest.get(4..)?;
                self.has_year = true;
            }
            'y' => {
                let year = self.within(2, 0..=99)?;
                self.date.year = if year >= 69 { 1900 + year } else { 2000 + year };
                self.has_year = true;
            }
            'm' | 'o' | 'q' => self.date.month = self.within(2, 1..=12)?,
            'b' | 'h' => self.date.month = self.name(&MONTHS, true)? + 1,
            'B' => self.date.month = self.name(&MONTHS, false)? + 1,
            'd' | 'e' | 'g' => self.date.day = self.within(2, 1..=31)?,
            'a' => {
                self.name(&WEEKDAYS, true)?;
            }
            'A' => {
                self.name(&WEEKDAYS, false)?;
            }
            'H' => self.date.hour = self.within(2, 0..=23)?,
            'I' | 'l' => self.date.hour = self.within(2, 0..=12)?,
            'p' | 'P' => {
                let half = self.rest.get(..2)?.to_ascii_lowercase();
                self.is_afternoon = Some(match half.as_str() {
                    "am" => false,
                    "pm" => true,
                    _ => return None,
                });
                self.rest = self.rest.get(2..)?;
            }
            'M' => self.date.minute = self.within(2, 0..=59)?,
            'S' => self.date.second = self.within(2, 0..=59)?,
            'L' | 'f' | 's' => {
                let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
                let digits = self.rest.get(..length.min(9))?;
                let number: i64 = digits.parse().ok()?;
                let scale = u32::try_from(9 - digits.len()).ok()?;
                self.date.nanosecond = number * 10_i64.pow(scale);
                self.rest = self.rest.get(length..)?;
            }
            'Z' => {
                let length = self.rest.bytes().take_while(u8::is_ascii_uppercase).count();
                match self.rest.get(..length)? {
                    "" => return None,
                    "UTC" | "GMT" | "Z" => self.offset = Some(0),
                    // Other abbreviations are ambiguous; the time zone of the function counts.
                    _ => {}
                }
                self.rest = self.rest.get(length..)?;
            }
            'z' | 'w' | 'i' | 'j' | 'k' => self.zone()?,
            _ => return None,
        }
        Some(())
    }

    /// Reads `Z`, or an offset such as `+02`, `+0200`, `+02:00` or `+02:00:00`.
    fn zone(&mut self) -> Option<()> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            (self.rest, self.offset) = (rest, Some(0));
            return Some(());
        }
        let sign = match self.rest.bytes().next()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.rest = self.rest.get(1..)?;
        let mut seconds = 0;
        for unit in [3600, 60, 1] {
            let rest = self.rest.strip_prefix(':').unwrap_or(self.rest);
            let digits = rest.get(..2);
            let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
            match digits.and_then(|digits| digits.parse::<i32>().ok()) {
                Some(number) => {
                    if number > if unit == 3600 { 24 } else { 59 } {
                        return None;
                    }
                    seconds += number * unit;
                    self.rest = rest.get(2..)?;
                }
                None if unit == 3600 => return None,
                None => break,
            }
        }
        self.offset = Some(sign * seconds);
        Some(())
    }

    fn finish(mut self, zone: &Zone, now: Moment) -> Option<Moment> {
        const WEEK: i64 = 7 * 86_400 * 1_000_000_000;
        if !self.rest.is_empty() {
            return None;
        }
        match self.is_afternoon {
            Some(true) if self.date.hour < 12 => self.date.hour += 12,
            Some(false) if self.date.hour == 12 => self.date.hour = 0,
            _ => {}
        }
        let is_year_missing = !self.has_year || self.date.year == 0;
        if is_year_missing {
            self.date.year = Date::of(now).year;
        }
        let time = |date: &Date| {
            // A day such as February 30 is not a date.
            let checked = Date::of(Moment::utc(date.nanoseconds(0)?));
            if (checked.month, checked.day) != (date.month, date.day) {
                return None;
            }
            let offset = self.offset.or_else(|| zone.offset(date))?;
            Some(Moment {
                nanoseconds: date.nanoseconds(offset)?,
                offset,
            })
        };
        let found = time(&self.date)?;
        if is_year_missing && found.nanoseconds > now.nanoseconds.saturating_add(WEEK) {
            let before = Date {
                year: self.date.year - 1,
                ..self.date
            };
            return time(&before);
        }
        Some(found)
    }
}
