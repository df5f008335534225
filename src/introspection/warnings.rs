//! The latest warnings and errors of the log.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

/// Maximum number of warnings. Older warnings are dropped.
const MAX_WARNINGS: usize = 100;
/// Maximum length of a text in bytes. Longer texts are truncated.
const MAX_TEXT: usize = 2000;

/// A line of the log. Equal lines are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedWarning {
    /// Time of the last occurrence.
    pub time: SystemTime,
    /// Whether the level is `error` instead of `warn`.
    pub is_error: bool,
    /// Message, with the fields.
    pub text: String,
    /// Number of occurrences.
    pub count: u64,
}

/// A bounded list of warnings.
#[derive(Default)]
pub struct RecentWarnings(Mutex<VecDeque<LoggedWarning>>);

impl RecentWarnings {
    /// Adds a line. A line that is already in the list moves to its end.
    pub fn add(&self, is_error: bool, mut text: String) {
        if text.len() > MAX_TEXT {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
            text.push_str("...");
        }
        let mut list = self.0.lock();
        let same = |known: &LoggedWarning| known.is_error == is_error && known.text == text;
        let known = list.iter().position(same).and_then(|at| list.remove(at));
        let count = known.map_or(0, |known| known.count) + 1;
        if list.len() == MAX_WARNINGS {
            list.pop_front();
        }
        list.push_back(LoggedWarning {
            time: SystemTime::now(),
            is_error,
            text,
            count,
        });
    }

    /// Returns the warnings, the latest first.
    pub fn latest(&self) -> Vec<LoggedWarning> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_count_together_and_old_warnings_leave() {
        let warnings = RecentWarnings::default();
        for number in 0..MAX_WARNINGS + 10 {
            warnings.add(false, format!("warning {number}"));
            warnings.add(true, "the same".to_owned());
        }
        let latest = warnings.latest();
        assert_eq!(latest.len(), MAX_WARNINGS);
        assert_eq!(latest[0].text, "the same");
        assert_eq!(latest[0].count, MAX_WARNINGS as u64 + 10);
        assert_eq!(latest[1].text, format!("warning {}", MAX_WARNINGS + 9));
    }

    #[test]
    fn long_text_is_truncated_at_a_character() {
        let warnings = RecentWarnings::default();
        warnings.add(true, format!("a{}", "\u{e9}".repeat(MAX_TEXT)));
        let text = &warnings.latest()[0].text;
        assert!(text.ends_with("\u{e9}...") && text.len() <= MAX_TEXT + 3);
    }
}
