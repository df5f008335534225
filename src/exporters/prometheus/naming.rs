//! Names of metrics and labels, as the Collector's `prometheus` exporter makes them.
//!
//! The rules are those of "Prometheus and OpenMetrics Compatibility" in OpenTelemetry's specification, as far as they
//! go, and those of Prometheus' `otlptranslator`, version 1.0, where they do not. Underscores in names of labels stay
//! as they are, first ones and double ones, as in the Collector since its gate `PermissiveLabelSanitization` is on by
//! default.

use std::borrow::Cow;

use super::config::Strategy;

/// Properties of a metric that its name depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suffix {
    /// A monotonic sum: `_total`.
    Total,
    /// A gauge, which is a ratio if its unit is `1`: `_ratio`.
    Ratio,
    /// Any other metric.
    None,
}

/// A name in both spellings. Clients without support for UTF-8 names get the escaped spelling.
/// Names are equal if their escaped spellings are, so each client sees the same series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// The spelling of the strategy.
    pub(super) full: Box<str>,
    /// The spelling with letters, digits and underscores (and colons in names of metrics) only.
    /// Equal to `full` unless the strategy allows other characters.
    pub(super) escaped: Box<str>,
}

impl Name {
    pub(super) fn of_metric(full: &str) -> Self {
        Name {
            escaped: escaped(full, true).into(),
            full: full.into(),
        }
    }

    pub(super) fn of_label(full: &str) -> Self {
        Name {
            escaped: escaped(full, false).into(),
            full: full.into(),
        }
    }

    pub(super) fn spelled(&self, utf8: bool) -> &str {
        if utf8 { &self.full } else { &self.escaped }
    }

    /// Whether the full spelling must be quoted.
    pub(super) fn is_quoted(&self) -> bool {
        self.full != self.escaped
    }
}

/// Translates names by the strategy of one exporter.
#[derive(Debug, Clone)]
pub(super) struct Namer {
    suffixes: bool,
    utf8: bool,
    namespace: String,
}

impl Namer {
    /// Returns a namer; an empty `namespace` means none.
    pub(super) fn new(strategy: Strategy, namespace: &str) -> Self {
        let (suffixes, utf8) = match strategy {
            Strategy::UnderscoreEscapingWithSuffixes => (true, false),
            Strategy::UnderscoreEscapingWithoutSuffixes => (false, false),
            Strategy::NoUTF8EscapingWithSuffixes => (true, true),
            Strategy::NoTranslation => (false, true),
        };
        let mut namer = Namer {
            suffixes,
            utf8,
            namespace: String::new(),
        };
        namer.namespace = namer.label(namespace).unwrap_or_default();
        namer
    }

    /// Returns the name of a metric; `None` if no valid character is left.
    pub(super) fn metric(&self, name: &str, unit: &str, suffix: Suffix) -> Option<String> {
        let made = match (self.utf8, self.suffixes) {
            (false, true) => self.normalized(name, unit, suffix),
            (false, false) => self.joined(name),
            (true, with) => self.suffixed(name, unit, suffix, with),
        };
        let empty = |name: &str| name.bytes().all(|byte| byte == b'_');
        (!empty(&made) || (made == name && !made.is_empty())).then_some(made)
    }

    /// Returns the name of a label; `None` if no valid character is left.
    pub(super) fn label(&self, key: &str) -> Option<String> {
        let name = if self.utf8 {
            key.to_owned()
        } else {
            let replaced = key.chars().map(|c| match c.is_ascii_alphanumeric() {
                true => c,
                false => '_',
            });
            let name: String = replaced.collect();
            match name.starts_with(|c: char| c.is_ascii_digit()) {
                true => format!("key_{name}"),
                false => name,
            }
        };
        name.bytes().any(|byte| byte != b'_').then_some(name)
    }

    /// Returns the name of the metric that describes targets.
    pub(super) fn target_info(&self) -> String {
        match self.namespace.as_str() {
            "" => "target_info".to_owned(),
            namespace => format!("{namespace}_target_info"),
        }
    }

    /// Returns the unit for OpenMetrics' `UNIT` lines: the unit with which `name` ends, apart from
    /// `_total`; `None` if the name has another ending.
    pub(super) fn unit(&self, name: &str, unit: &str) -> Option<String> {
        let (main, per) = units(unit);
        let parts = [tidy(main), tidy(&per)];
        let words: Vec<&str> = parts.iter().map(|part| part.trim_matches('_')).collect();
        let unit = words.join("_");
        let unit = unit.trim_matches('_');
        let base = name.strip_suffix("_total").unwrap_or(name);
        let fits = base
            .strip_suffix(unit)
            .is_some_and(|rest| rest.ends_with('_'));
        (!unit.is_empty() && fits).then(|| unit.to_owned())
    }

    /// Joins the words of the name with the words of the unit and the type, without repetition.
    fn normalized(&self, name: &str, unit: &str, suffix: Suffix) -> String {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == ':';
        let (main, per) = units(unit);
        let (main, per) = (tidy(main), tidy(&per));
        let mut words: Vec<&str> = name
            .split(|c| !letters(c))
            .filter(|word| !word.is_empty())
            .collect();
        let per = match per.as_str() {
            "per_" => "",
            per => per.strip_suffix('_').unwrap_or(per),
        };
        let per = if words.contains(&per) { "" } else { per };
        let mut main = if words.contains(&main.as_str()) {
            ""
        } else {
            main.as_str()
        };
        if !per.is_empty() {
            main = main.strip_suffix('_').unwrap_or(main);
        }
        words.extend([main, per].into_iter().filter(|word| !word.is_empty()));
        let last = match suffix {
            Suffix::Total => Some("total"),
            // Other metrics use `1` for the things that they count.
            Suffix::Ratio if unit == "1" => Some("ratio"),
            _ => None,
        };
        if let Some(last) = last {
            words.retain(|word| *word != last);
            words.push(last);
        }
        if !self.namespace.is_empty() {
            words.insert(0, &self.namespace);
        }
        not_a_digit(words.join("_"))
    }

    fn joined(&self, name: &str) -> String {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == ':' || c == '_';
        let words = name.split(|c| !letters(c)).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("_");
        match self.namespace.as_str() {
            "" => not_a_digit(name),
            namespace => format!("{namespace}_{name}"),
        }
    }

    /// Returns the unchanged name with its suffixes at the end.
    fn suffixed(&self, name: &str, unit: &str, suffix: Suffix, with: bool) -> String {
        let mut made = match self.namespace.as_str() {
            "" => name.to_owned(),
            namespace => format!("{namespace}_{name}"),
        };
        if !with {
            return made;
        }
        let (main, per) = units(unit);
        let last = match suffix {
            Suffix::Total => "total",
            Suffix::Ratio if unit == "1" => "ratio",
            _ => "",
        };
        for end in [last, per.as_str()] {
            trim_end(&mut made, end);
        }
        let mut ends = vec![per.as_str(), last];
        if !made.ends_with(main) {
            ends.insert(0, main);
        }
        for end in ends.into_iter().filter(|end| !end.is_empty()) {
            made.push('_');
            made.push_str(end);
        }
        made
    }
}

/// Whether the attribute of a scope has a label of its own.
pub(super) fn is_of_scope_itself(key: &str) -> bool {
    ["name", "version", "schema_url"].contains(&key)
}

/// Replaces each character that Prometheus did not allow before UTF-8 by an underscore.
fn escaped(name: &str, colons: bool) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    let digit = name.starts_with(|c: char| c.is_ascii_digit());
    if !digit && name.chars().all(allowed) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::with_capacity(name.len() + 1);
    if digit {
        escaped.push('_');
    }
    escaped.extend(name.chars().map(|c| if allowed(c) { c } else { '_' }));
    Cow::Owned(escaped)
}

fn not_a_digit(name: String) -> String {
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// Removes the suffix and one character before it.
fn trim_end(name: &mut String, suffix: &str) {
    if suffix.is_empty() || name.len() <= suffix.len() + 1 || !name.ends_with(suffix) {
        return;
    }
    name.truncate(name.len() - suffix.len());
    name.pop();
}

/// Returns the words for both sides of a unit, the second with `per_`. Annotations in braces are
/// ignored.
fn units(unit: &str) -> (&str, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let known = |unit: &str| !unit.is_empty() && !unit.contains(['{', '}']);
    let (main, per) = (main.trim(), per.trim());
    let word = |table: &[(&'static str, &'static str)], unit| {
        table
            .iter()
            .find(|(symbol, _)| *symbol == unit)
            .map(|(_, word)| *word)
    };
    let main = match known(main) {
        true => word(UNITS, main).unwrap_or(main),
        false => "",
    };
    let per = match known(per) {
        true => format!("per_{}", word(PER, per).unwrap_or(per)),
        false => String::new(),
    };
    (main, per)
}

/// Replaces invalid characters by underscores, without leading or double underscores.
fn tidy(unit: &str) -> String {
    let mut tidy = String::with_capacity(unit.len());
    for c in unit.chars() {
        if c.is_ascii_alphanumeric() || c == ':' {
            tidy.push(c);
        } else if !tidy.is_empty() && !tidy.ends_with('_') {
            tidy.push('_');
        }
    }
    tidy
}

/// Units of UCUM with Prometheus' words for them.
const UNITS: &[(&str, &str)] = &[
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

/// Units after a slash with Prometheus' words for them.
const PER: &[(&str, &str)] = &[
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs produced by `otlptranslator` 1.0.
    #[test]
    fn names_of_metrics_are_the_translators() {
        use Strategy::*;
        use Suffix::*;
        let name = |strategy, namespace, name, unit, suffix| {
            Namer::new(strategy, namespace).metric(name, unit, suffix)
        };
        for (input, unit, suffix, expected) in [
            ("requests", "", Total, "requests_total"),
            ("requests_total", "", Total, "requests_total"),
            ("requests.total.count", "", Total, "requests_count_total"),
            ("cpu_usage", "1", Ratio, "cpu_usage_ratio"),
            ("items", "1", Total, "items_total"),
            ("response_time", "ms", Ratio, "response_time_milliseconds"),
            ("response_time_seconds", "s", None, "response_time_seconds"),
            ("requests", "1/s", Ratio, "requests_per_second"),
            ("throughput", "By/s", Ratio, "throughput_bytes_per_second"),
            ("custom", "custom_unit", Ratio, "custom_custom_unit"),
            ("custom", "{thing}", Ratio, "custom"),
            ("custom", "By/{thing}", Ratio, "custom_bytes"),
            ("a__b", "u__v", Ratio, "a_b_u_v"),
            ("custom", "u@w#s/chars", Ratio, "custom_u_w_s_per_chars"),
            ("1st.thing", "", None, "_1st_thing"),
            ("system.disk.io", "By", Total, "system_disk_io_bytes_total"),
        ] {
            let made = name(UnderscoreEscapingWithSuffixes, "", input, unit, suffix);
            assert_eq!(made.as_deref(), Some(expected), "{input} {unit}");
        }
        let plain = |input| name(UnderscoreEscapingWithoutSuffixes, "", input, "By", Total);
        assert_eq!(plain("m@w#s$c").as_deref(), Some("m_w_s_c"));
        assert_eq!(plain("m@@##n").as_deref(), Some("m_n"));
        assert_eq!(plain("123m").as_deref(), Some("_123m"));
        assert_eq!(plain("@#$%"), Option::None);
        let utf8 = |input, unit, suffix| name(NoUTF8EscapingWithSuffixes, "", input, unit, suffix);
        assert_eq!(
            utf8("r\u{ea}q", "1/s", Total).as_deref(),
            Some("r\u{ea}q_per_second_total")
        );
        assert_eq!(
            utf8("cpu_seconds_total", "s", Total).as_deref(),
            Some("cpu_seconds_total")
        );
        assert_eq!(utf8("@#$%", "", Total).as_deref(), Some("@#$%_total"));
        let same = name(NoTranslation, "", "http.server.duration", "s", None);
        assert_eq!(same.as_deref(), Some("http.server.duration"));
        let within = name(
            UnderscoreEscapingWithSuffixes,
            "my-app",
            "requests",
            "1/s",
            Total,
        );
        assert_eq!(within.as_deref(), Some("my_app_requests_per_second_total"));
    }

    #[test]
    fn names_of_labels_are_the_translators() {
        let namer = Namer::new(Strategy::UnderscoreEscapingWithSuffixes, "");
        for (key, expected) in [
            ("label:with:colons", Some("label_with_colons")),
            ("http.request.method", Some("http_request_method")),
            ("123label", Some("key_123label")),
            ("_private", Some("_private")),
            ("__two", Some("__two")),
            ("a  b", Some("a__b")),
            ("\u{5b57}", None),
            ("", None),
        ] {
            assert_eq!(namer.label(key).as_deref(), expected, "{key}");
        }
        let namer = Namer::new(Strategy::NoTranslation, "");
        assert_eq!(namer.label("a.b").as_deref(), Some("a.b"));
    }

    #[test]
    fn clients_without_utf8_get_the_escaped_spelling() {
        let name = Name::of_metric("http.server:x");
        assert_eq!(name.spelled(true), "http.server:x");
        assert_eq!(name.spelled(false), "http_server:x");
        assert_eq!(&*Name::of_label("1:a").escaped, "_1_a");
    }

    #[test]
    fn name_ends_with_unit() {
        let namer = Namer::new(Strategy::UnderscoreEscapingWithSuffixes, "");
        let unit = |name, unit| namer.unit(name, unit);
        assert_eq!(unit("io_bytes_total", "By").as_deref(), Some("bytes"));
        assert_eq!(
            unit("rate_bytes_per_second", "By/s").as_deref(),
            Some("bytes_per_second")
        );
        assert_eq!(unit("bytes", "By"), None);
        assert_eq!(unit("seconds_spent", "s"), None);
        assert_eq!(unit("x", "1"), None);
    }
}
