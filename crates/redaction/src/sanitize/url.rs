//! Sanitizes paths of URLs: `*` replaces ids.

use std::borrow::Cow;

use super::changed;

/// Maximum number of segments; further segments are removed, as in the Collector.
const SEGMENTS: usize = 10;

/// Replaces the segments of a path that are ids by `*` and removes query and fragment: `/users/123/posts?a=b`
/// becomes `/users/*/posts`.
///
/// A segment stays if it consists of letters, `-`, `_`, `.` and spaces, except for at most one other
/// character in the second position (`v1`, `k6-runs`), and reads like a word. The decision uses unusual pairs
/// of letters instead of the Collector's trained model, so rare words may be decided differently.
pub fn url(path: &str) -> Cow<'_, str> {
    let end = path.find(['?', '&', '#']).unwrap_or(path.len());
    let kept = path.get(..end).unwrap_or_default();
    let mut output = String::with_capacity(kept.len());
    for (position, segment) in kept.split('/').enumerate().take(SEGMENTS) {
        if position > 0 {
            output.push('/');
        }
        output.push_str(if segment.is_empty() || is_word(segment) {
            segment
        } else {
            "*"
        });
    }
    changed(path, output)
}

/// Sanitizes the paths in a span name; `None` if nothing changes, or if only `*` would remain.
pub fn span_name(name: &str) -> Option<String> {
    match url(name) {
        Cow::Borrowed(_) => None,
        Cow::Owned(changed) => {
            let says_something = changed
                .split('/')
                .any(|segment| !matches!(segment, "" | "*"));
            (says_something || !changed.contains('*')).then_some(changed)
        }
    }
}

fn is_word(segment: &str) -> bool {
    let mut others = segment
        .bytes()
        .enumerate()
        .filter(|(_, byte)| !byte.is_ascii_alphabetic() && !b"-_. ".contains(byte));
    let tolerable = match (others.next(), others.next()) {
        (None, _) => true,
        (Some((position, _)), None) => position == 1,
        _ => false,
    };
    tolerable && !gibberish(segment)
}

/// For each letter, the letters that rarely follow it within words of European languages.
const UNUSUAL: [&str; 26] = [
    "",
    "fghkqwxz",
    "bdfgjmnpqvwxz",
    "cfkpqxz",
    "",
    "bcdghjkmpqvwxz",
    "cdfjkpqvwxz",
    "bcfghjkpqvxz",
    "",
    "bcdfghjklmnpqrstvwxyz",
    "cdfgjmpqtvwxz",
    "bhjqrwxz",
    "dfghjkqrvwxz",
    "wx",
    "",
    "bcdfgjkmqvwxz",
    "abcdefghijklmnopqrstvwxyz",
    "jqxz",
    "bdfgjrvxz",
    "dgjkqvx",
    "",
    "bcdfghjklmnpqstvwxz",
    "bcfgjpquvxz",
    "bdfgjklmnqrsvwxz",
    "jqvx",
    "bcdfghjkmnpqrsvwx",
];

/// Whether at least a third of the letter pairs are unusual, or five or more letters contain no vowel.
fn gibberish(segment: &str) -> bool {
    let letters = segment.to_ascii_lowercase();
    let (mut pairs, mut unusual) = (0, 0);
    for pair in letters.as_bytes().windows(2) {
        let [first @ b'a'..=b'z', second @ b'a'..=b'z'] = pair else {
            continue;
        };
        pairs += 1;
        let after = UNUSUAL
            .get(usize::from(first - b'a'))
            .copied()
            .unwrap_or_default();
        unusual += usize::from(after.as_bytes().contains(second));
    }
    let mut words = letters.split(|letter: char| !letter.is_ascii_alphabetic());
    let unspeakable = words.any(|word| {
        word.len() >= 5 && word != "https" && !word.contains(['a', 'e', 'i', 'o', 'u', 'y'])
    });
    unspeakable || (pairs >= 3 && 3 * unusual >= pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_ids_become_asterisks_and_words_stay() {
        for (path, expected) in [
            ("", ""),
            ("/api/users", "/api/users"),
            (
                "/api/users/123e4567-e89b-12d3-a456-426614174000",
                "/api/users/*",
            ),
            ("/api/users/123/posts/456", "/api/users/*/posts/*"),
            ("/api/users?id=123&name=john", "/api/users"),
            ("/users/fdklsd/j4elk/23993/job/2", "/users/*/j4elk/*/job/*"),
            ("123/ljgdflgjf", "*/*"),
            ("/v1/products/22j", "/v1/products/*"),
            ("/products//org/3", "/products//org/*"),
            ("/v1/k6-test-runs/1", "/v1/k6-test-runs/*"),
            ("/usuarios/1/trabajo/2", "/usuarios/*/trabajo/*"),
            ("/Benutzer/1/Arbeit/2", "/Benutzer/*/Arbeit/*"),
            ("/utilisateurs/1/tache/2", "/utilisateurs/*/tache/*"),
            ("/api.backup/hello.world", "/api.backup/hello.world"),
            ("GET /user_space/", "GET /user_space/"),
            ("HTTP GET", "HTTP GET"),
            ("/attach#section-1", "/attach"),
            ("/w/index.php/*", "/w/index.php/*"),
            ("attach12?", "*"),
            ("?", ""),
            ("/getquote", "/getquote"),
            ("/a/b/c/d/e/f/g/h/i/j", "/a/b/c/d/e/f/g/h/i"),
            ("/\u{e9}t\u{e9}/x", "/*/x"),
        ] {
            let once = url(path);
            assert_eq!(once, expected, "{path}");
            assert_eq!(url(&once), once);
        }
    }

    #[test]
    fn span_name_that_would_become_empty_stays() {
        assert_eq!(span_name("GET /users/123").as_deref(), Some("GET /users/*"));
        assert_eq!(span_name("/123"), None);
        assert_eq!(span_name("GET /users"), None);
    }
}
