//! Matching of client certificates with `allowed_client_names`.

use std::fmt;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Labels. The label `*` matches any single label.
    Dns(Vec<String>),
    /// Scheme and authority in lower case, and the segments of the path. The segment `*` matches any single segment.
    Uri { origin: String, path: Vec<String> },
}

impl Pattern {
    /// Parses a configured pattern.
    ///
    /// # Errors
    /// A sentence that describes the mistake.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let malformed = |why: &str| format!("`{text}` {why}");
        if text.is_empty() {
            return Err("an empty name matches no certificate".to_owned());
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed(
                "has characters that are not allowed in a certificate's name",
            ));
        }
        if text.parse::<IpAddr>().is_ok() {
            let why = "is an address; clients are known by DNS names and URIs";
            return Err(malformed(why));
        }
        let stars = text.matches('*').count();
        if stars > 1 {
            return Err(malformed("has more than one `*`"));
        }
        if text.contains(':') {
            let (origin, path) = split(text);
            if origin.contains('*') {
                return Err(malformed(
                    "has a `*` outside the path; in a URI, `*` stands for one segment of the path",
                ));
            }
            if path.iter().any(|part| part.contains('*') && part != "*") {
                return Err(malformed(
                    "has a `*` inside a segment; `*` stands for a whole segment",
                ));
            }
            return Ok(Pattern::Uri { origin, path });
        }
        if text.contains('/') {
            return Err(malformed(
                "is neither a DNS name nor a URI; a URI begins with its scheme, as in `spiffe://`",
            ));
        }
        let labels: Vec<String> = text
            .to_ascii_lowercase()
            .split('.')
            .map(str::to_owned)
            .collect();
        if labels.iter().any(String::is_empty) {
            return Err(malformed("has an empty label; remove the extra dot"));
        }
        if labels
            .iter()
            .any(|label| label.contains('*') && label != "*")
        {
            return Err(malformed(
                "has a `*` inside a label; `*` stands for a whole label",
            ));
        }
        if stars == 1 && labels.len() < 2 {
            return Err(malformed(
                "allows almost every client; name the domain, as in `*.example.com`",
            ));
        }
        Ok(Pattern::Dns(labels))
    }

    /// Whether the pattern matches the name. A `*` in a certificate never matches.
    pub(super) fn matches(&self, name: &Name) -> bool {
        match (self, name) {
            (Pattern::Dns(labels), Name::Dns(name)) => {
                let mut found = name.split('.');
                let every = labels.iter().all(|label| {
                    found.next().is_some_and(|found| match label.as_str() {
                        "*" => is_plain(found),
                        label => found.eq_ignore_ascii_case(label),
                    })
                });
                every && found.next().is_none()
            }
            (Pattern::Uri { origin, path }, Name::Uri(name)) => {
                let (found_origin, found) = split(name);
                *origin == found_origin
                    && path.len() == found.len()
                    && path
                        .iter()
                        .zip(&found)
                        .all(|(part, found)| match part.as_str() {
                            "*" => is_plain(found),
                            part => found == part,
                        })
            }
            _ => false,
        }
    }
}

/// Splits a URI into its scheme and authority, which are case-insensitive (RFC 3986, 6.2.2.1), and the case-sensitive
/// segments of its path. No other part is normalized: a SPIFFE id has only one form.
fn split(uri: &str) -> (String, Vec<String>) {
    let end = match uri.split_once("://") {
        Some((scheme, rest)) => {
            let start = scheme.len() + "://".len();
            start + rest.find(['/', '?', '#']).unwrap_or(rest.len())
        }
        None => uri.find(':').map_or(0, |colon| colon + 1),
    };
    let (origin, path) = uri.split_at(end);
    let path = path.split('/').map(str::to_owned).collect();
    (origin.to_ascii_lowercase(), path)
}

/// Whether a `*` may match the label or segment. Only characters of host labels and SPIFFE id segments are allowed, so
/// that no other program could read the text as two segments, as no segment, or as a pattern.
fn is_plain(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain)
}

/// A subject alternative name of a kind that identifies machines or programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A URI, for example the SPIFFE id of a workload.
    Uri(String),
    /// A host name, possibly with a wildcard.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Uri(text) | Name::Dns(text) => f.write_str(text),
            Name::Ip(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_label_and_segment() {
        let table = [
            ("a.example", "a.example", true),
            ("A.Example", "a.eXAMPLE", true),
            ("a.example", "b.a.example", false),
            ("b.a.example", "a.example", false),
            ("a.example", "a.example.", false),
            ("*.example", "a.example", true),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*.example", "b.a.example", false),
            ("*.example", "*.example", false),
            ("a.*.example", "a.b.example", true),
            ("a.*.example", "b.b.example", false),
            ("a.example", "*.example", false),
            (
                "spiffe://z.example/ns/a/sa/b",
                "spiffe://z.example/ns/a/sa/b",
                true,
            ),
            ("spiffe://z.example/ns/a", "SPIFFE://Z.example/ns/a", true),
            ("spiffe://z.example/ns/a", "spiffe://z.example/ns/A", false),
            ("spiffe://z.example/ns/a", "spiffe://z.example/ns/a/", false),
            (
                "spiffe://z.example/ns/a",
                "spiffe://z.example/ns/a?x",
                false,
            ),
            (
                "spiffe://z.example/ns/*/sa/b",
                "spiffe://z.example/ns/a/sa/b",
                true,
            ),
            (
                "spiffe://z.example/ns/*/sa/b",
                "spiffe://z.example/ns/a/c/sa/b",
                false,
            ),
            (
                "spiffe://z.example/ns/*/sa/b",
                "spiffe://z.example/ns//sa/b",
                false,
            ),
            (
                "spiffe://z.example/ns/*/sa/b",
                "spiffe://z.example/ns/../sa/b",
                false,
            ),
            (
                "spiffe://z.example/ns/*",
                "spiffe://z.example/ns/a%2Fb",
                false,
            ),
            (
                "spiffe://z.example/ns/*",
                "spiffe://z.example/ns/a#/b",
                false,
            ),
            ("spiffe://z.example/ns/*", "spiffe://z.example/ns/*", false),
            ("spiffe://z.example/*", "spiffe://z.example", false),
            ("spiffe://z.example", "spiffe://z.example", true),
            ("spiffe://z.example/a", "spiffe://z.example.evil/a", false),
            ("spiffe://z.example/a", "spiffe://evil@z.example/a", false),
            ("urn:uuid:ab", "URN:uuid:ab", true),
            ("urn:uuid:ab", "urn:uuid:AB", false),
        ];
        for (pattern, name, expected) in table {
            let parsed = Pattern::parse(pattern).unwrap();
            let name = match name.contains(':') {
                true => Name::Uri(name.to_owned()),
                false => Name::Dns(name.to_owned()),
            };
            assert_eq!(parsed.matches(&name), expected, "{pattern} and {name}");
        }
        let dns = Pattern::parse("a.example").unwrap();
        assert!(!dns.matches(&Name::Uri("a.example".to_owned())));
        assert!(!dns.matches(&Name::Ip([10, 0, 0, 1].into())));
    }

    #[test]
    fn malformed_patterns_name_cause() {
        let table = [
            ("", "empty"),
            ("a..b", "empty label"),
            ("a.example.", "empty label"),
            ("*", "almost every client"),
            ("a*.example", "inside a label"),
            ("*.*.example", "more than one"),
            ("spiffe://*/a", "outside the path"),
            ("*://z/a", "outside the path"),
            ("spiffe://z/a*", "inside a segment"),
            ("spiffe://z/*/*", "more than one"),
            ("z.example/ns/a", "begins with its scheme"),
            ("10.0.0.1", "is an address"),
            ("::1", "is an address"),
            ("a b", "characters"),
            ("b\u{fc}cher.example", "characters"),
        ];
        for (pattern, expected) in table {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains(expected), "{pattern}: {error}");
        }
    }
}
