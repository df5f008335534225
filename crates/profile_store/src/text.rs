//! Text of names and values for pictures.

/// Replaces characters that change the direction or the form of the surrounding text, or that XML does not allow.
pub(crate) fn visible(text: &str) -> String {
    let replaced = |c: char| match c {
        c if c.is_control() => '\u{fffd}',
        '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{61c}'
        | '\u{feff}'
        | '\u{fffe}'
        | '\u{ffff}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(replaced).collect()
}

/// Shortens text to a number of characters, with two dots at the end; empty if not even three characters fit.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    const MIN_CHARACTERS: usize = 3;
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) if most < MIN_CHARACTERS => String::new(),
        Some(_) => text.chars().take(most - 2).chain(['.', '.']).collect(),
    }
}

/// Escapes text for XML: content and attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a value with its unit: `1.5 s`, `20 MiB`, `17`.
pub(crate) fn value(value: f64, unit: &str) -> String {
    let (steps, factor): (&[&str], f64) = match unit {
        "nanoseconds" | "ns" => (&["ns", "us", "ms", "s"], 1000.0),
        "microseconds" | "us" => (&["us", "ms", "s"], 1000.0),
        "milliseconds" | "ms" => (&["ms", "s"], 1000.0),
        "seconds" | "s" => (&["s"], 1000.0),
        "bytes" | "By" => (&["B", "KiB", "MiB", "GiB", "TiB"], 1024.0),
        _ => (&["", "k", "M", "G"], 1000.0),
    };
    let mut scaled = value;
    let mut step = 0;
    while scaled.abs() >= factor && step + 1 < steps.len() {
        scaled /= factor;
        step += 1;
    }
    let name = steps.get(step).copied().unwrap_or_default();
    let number = match step {
        0 => format!("{scaled:.0}"),
        _ => format!("{scaled:.2}"),
    };
    match name {
        "" => number,
        name => format!("{number} {name}"),
    }
}

/// Returns the package of a function: `net/http` of `net/http.(*conn).serve`, `std::io` of `std::io::read`.
pub(crate) fn package(name: &str) -> &str {
    let plain = name.split(['(', '<']).next().unwrap_or(name);
    let base = plain.rfind('/').map_or(0, |at| at + 1);
    let rest = plain.get(base..).unwrap_or_default();
    let end = match rest.rfind("::") {
        Some(at) => base + at,
        None => rest.find('.').map_or(name.len(), |at| base + at),
    };
    name.get(..end).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_text_is_escaped_and_truncated() {
        assert_eq!(visible("a\u{202e}b\0c\nd"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(
            escaped("<a href='x'>&\""),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;"
        );
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdef", 5), "abc..");
        assert_eq!(shortened("abcdef", 2), "");
    }

    #[test]
    fn values_have_readable_units() {
        for (number, unit, text) in [
            (1_500_000_000.0, "nanoseconds", "1.50 s"),
            (2048.0, "bytes", "2.00 KiB"),
            (17.0, "count", "17"),
            (-2_500_000.0, "count", "-2.50 M"),
        ] {
            assert_eq!(value(number, unit), text);
        }
    }

    #[test]
    fn package_is_name_without_function() {
        for (name, found) in [
            ("net/http.(*conn).serve", "net/http"),
            ("runtime.mallocgc", "runtime"),
            ("std::io::read", "std::io"),
            ("github.com/a/b.F[...]", "github.com/a/b"),
            ("main", "main"),
            ("[libc.so.6]", "[libc"),
        ] {
            assert_eq!(package(name), found);
        }
    }
}
