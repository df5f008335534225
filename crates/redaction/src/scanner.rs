//! The scanner, which runs all detectors of a configuration together.

use std::fmt;

use super::canonical::canonical;
use super::catalogue::{Detector, DetectorId, Hits};
use super::detect::{luhn, mod97};
use super::find::{self, AllFound, Enabled, MIN_TEXT_LENGTH};
use super::folded::{self, Folded};
use super::marks::{Hashers, Hit, MASK, Treatment, label, marks, merge};
use super::pattern::{Pattern, PatternSet};
use super::settings::{Checksum, CustomDetectorConfig, DetectorAction};
use super::{ScanOutcome, ScannerSettings, SettingsError, Unscannable, decode};

/// Finds and redacts private data with all detectors of a configuration. Compiled once, shared by all threads.
pub struct Scanner {
    enabled: Enabled,
    /// Whether the fast prefilter alone may declare a text clean.
    glances: bool,
    custom: Vec<Custom>,
    /// All custom patterns in one set, since most texts match none of them.
    any_custom: PatternSet,
    /// Indexed by detector id.
    treatments: Vec<Treatment>,
    names: Vec<String>,
    hashers: Hashers,
    decode: bool,
}

struct Custom {
    pattern: Pattern,
    checksum: Checksum,
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Scanner {
    /// Maximum number of scans of one text.
    pub const ROUNDS: usize = 8;

    /// Compiles the detectors.
    ///
    /// # Errors
    ///
    /// Returns the first invalid setting and its position. The action `hmac` without a sufficiently long key is an
    /// error and does not fall back to another action.
    pub fn new(settings: &ScannerSettings<'_>) -> Result<Scanner, SettingsError> {
        if settings.custom.len() > DetectorId::CUSTOM {
            return Err(SettingsError::TooMany(settings.custom.len()));
        }
        let mut enabled = Enabled::none();
        let mut treatments: Vec<Treatment> = Detector::ALL
            .iter()
            .map(|detector| Treatment {
                action: DetectorAction::Mask,
                label: label(detector.name()),
            })
            .collect();
        for detector in settings.detectors {
            enabled.add(detector.name);
            if let Some(treatment) = treatments.get_mut(detector.name.id().index()) {
                treatment.action = detector.action;
            }
        }
        let mut names: Vec<String> = Detector::ALL.iter().map(Detector::to_string).collect();
        let mut custom = Vec::with_capacity(settings.custom.len());
        for (position, config) in settings.custom.iter().enumerate() {
            let error = |(key, problem)| SettingsError::Custom {
                position,
                key,
                problem,
            };
            check_name(&config.name, &names).map_err(|problem| error(("name", problem)))?;
            custom.push(Custom::new(config).map_err(|problem| error(("regex", problem)))?);
            treatments.push(Treatment {
                action: config.action,
                label: label(&config.name),
            });
            names.push(config.name.clone());
        }
        let used = |action| {
            let mut actions = settings.detectors.iter().map(|detector| detector.action);
            let mut custom = settings.custom.iter().map(|custom| custom.action);
            actions.any(|used| used == action) || custom.any(|used| used == action)
        };
        let patterns: Vec<&str> = settings.custom.iter().map(|c| c.regex.as_str()).collect();
        let any_custom = PatternSet::new(&patterns).map_err(|problem| SettingsError::Custom {
            position: 0,
            key: "regex",
            problem,
        })?;
        let glances = custom.is_empty() && !settings.decode && !enabled.has(Detector::HighEntropy);
        Ok(Scanner {
            enabled,
            glances,
            custom,
            any_custom,
            treatments,
            names,
            hashers: Hashers::new(settings, used)?,
            decode: settings.decode,
        })
    }

    /// Whether the prefilter proves that the bytes are clean text: ASCII without any anchor. `false` only means
    /// that a full scan is needed.
    #[inline]
    pub fn passes(&self, text: &[u8]) -> bool {
        self.glances && find::nothing(self.enabled, text)
    }

    /// Redacts the private data of a text and adds the hits to `hits`.
    ///
    /// # Errors
    ///
    /// [`Unscannable`]: the text must not be passed on.
    #[inline]
    pub fn scan(&self, text: &str, hits: &mut Hits) -> Result<ScanOutcome, Unscannable> {
        if self.passes(text.as_bytes()) {
            return Ok(ScanOutcome::Clean);
        }
        self.look_closely(text, hits)
    }

    /// Redacts bytes that should be UTF-8. The prefilter also detects ASCII, so most texts need no separate UTF-8
    /// check.
    ///
    /// # Errors
    ///
    /// [`Unscannable`]: the text must not be passed on.
    #[inline]
    pub fn scan_bytes(&self, text: &[u8], hits: &mut Hits) -> Result<ScanOutcome, Unscannable> {
        if self.passes(text) {
            return Ok(ScanOutcome::Clean);
        }
        let text = std::str::from_utf8(text).map_err(|_| Unscannable::NotUtf8)?;
        self.look_closely(text, hits)
    }

    /// Returns the name of a detector for metrics and summaries: `email`. Empty if no detector has the id.
    pub fn detector_name(&self, id: DetectorId) -> &str {
        self.names.get(id.index()).map_or("", String::as_str)
    }

    /// Scans a text that the prefilter could not clear.
    #[inline(never)]
    fn look_closely(&self, text: &str, hits: &mut Hits) -> Result<ScanOutcome, Unscannable> {
        let mut found = self.hits(text)?;
        if found.is_empty() {
            return Ok(ScanOutcome::Clean);
        }
        let mut rewritten = text.to_owned();
        for _ in 0..Scanner::ROUNDS {
            for hit in &found {
                hits.add(hit.id);
            }
            rewritten = match self.rewrite(&rewritten, &found) {
                Some(rewritten) => rewritten,
                None => return Ok(ScanOutcome::Drop),
            };
            found = self.hits(&rewritten)?;
            if found.is_empty() {
                return Ok(ScanOutcome::Rewritten(rewritten));
            }
        }
        Err(Unscannable::Unsettled)
    }

    /// Returns all hits of a text in order and without overlaps. Includes hits of custom detectors, in decoded runs
    /// and in folded characters.
    fn hits(&self, text: &str) -> Result<Vec<Hit>, Unscannable> {
        let mut hits = self.found_in(text)?;
        if !text.is_ascii()
            && let Some(folded) = folded::wide(text)
        {
            self.find_folded(&folded, &mut hits)?;
        }
        if self.decode && text.len() >= MIN_TEXT_LENGTH {
            if let Some(folded) = folded::unescaped(text) {
                self.find_folded(&folded, &mut hits)?;
            }
            if memchr::memchr(b'%', text.as_bytes()).is_some() {
                for plus in [' ', '+'] {
                    if let Some(folded) = folded::unquoted(text, plus) {
                        self.find_folded(&folded, &mut hits)?;
                    }
                    if !text.contains('+') {
                        break;
                    }
                }
            }
            let mut gone_well = Ok(());
            decode::decoded(text, |span, plain| match self.inside(plain) {
                Ok(inside) => hits.extend(inside.into_iter().next().map(|first| Hit {
                    plain: plain.get(first.span.clone()).map(str::to_owned),
                    span,
                    ..first
                })),
                Err(error) => gone_well = Err(error),
            });
            gone_well?;
        }
        if hits.is_empty() {
            return Ok(hits);
        }
        self.remove_marks(text, &mut hits);
        merge(&mut hits);
        Ok(hits)
    }

    /// Returns the hits in a decoded text.
    fn inside(&self, plain: &str) -> Result<Vec<Hit>, Unscannable> {
        let mut inside = self.found_in(plain)?;
        self.remove_marks(plain, &mut inside);
        merge(&mut inside);
        Ok(inside)
    }

    /// Returns the hits of built-in and custom detectors in an undecoded text.
    fn found_in(&self, text: &str) -> Result<Vec<Hit>, Unscannable> {
        let mut found = AllFound::new();
        find::find(self.enabled, text.as_bytes(), &mut found);
        let found = found.into_iter();
        let mut hits: Vec<Hit> = found
            .map(|found| builtin(found.span, found.detector))
            .collect();
        self.find_custom(text, &mut hits)?;
        Ok(hits)
    }

    fn find_folded(&self, folded: &Folded, hits: &mut Vec<Hit>) -> Result<(), Unscannable> {
        let inside = self.inside(&folded.text)?.into_iter();
        hits.extend(inside.map(|hit| Hit {
            plain: folded.text.get(hit.span.clone()).map(str::to_owned),
            span: folded.origin(&hit.span),
            ..hit
        }));
        Ok(())
    }

    fn find_custom(&self, text: &str, hits: &mut Vec<Hit>) -> Result<(), Unscannable> {
        if !self.any_custom.is_match(text) {
            return Ok(());
        }
        let first = Detector::ALL.len();
        for (custom, position) in self.custom.iter().zip(0_u8..) {
            if !custom.pattern.is_match(text) {
                continue;
            }
            let mut values = custom.pattern.values(text)?;
            values.retain(|span| custom.valid(text.get(span.clone()).unwrap_or_default()));
            hits.extend(values.into_iter().map(|span| Hit {
                span,
                rank: position,
                id: DetectorId(position + first as u8),
                plain: None,
            }));
        }
        Ok(())
    }

    /// Removes hits that are marks of an earlier redaction.
    fn remove_marks(&self, text: &str, hits: &mut Vec<Hit>) {
        if hits.is_empty() {
            return;
        }
        let known = |name: &str| {
            self.treatments
                .iter()
                .any(|treatment| treatment.label == name)
        };
        let marks = marks(text, known);
        hits.retain(|hit| {
            let later = marks.partition_point(|mark| mark.start <= hit.span.start);
            let mark = later.checked_sub(1).and_then(|mark| marks.get(mark));
            mark.is_none_or(|mark| hit.span.end > mark.end)
        });
    }

    /// Returns the text with each hit replaced, or `None` if an action drops the text.
    fn rewrite(&self, text: &str, hits: &[Hit]) -> Option<String> {
        let mut output = String::with_capacity(text.len() + 16);
        let mut copied = 0;
        for hit in hits {
            let (start, end) = (
                text.floor_char_boundary(hit.span.start),
                text.ceil_char_boundary(hit.span.end),
            );
            output.push_str(text.get(copied..start).unwrap_or_default());
            let inside = text.get(start.max(copied)..end).unwrap_or_default();
            copied = end;
            let Some(treatment) = self.treatments.get(hit.id.index()) else {
                output.push_str(MASK);
                continue;
            };
            match treatment.action {
                DetectorAction::Drop => return None,
                DetectorAction::Truncate => return Some(output),
                _ => {
                    let canonical = || canonical(hit.id, hit.plain.as_deref().unwrap_or(inside));
                    treatment.write(inside, canonical, &self.hashers, &mut output);
                }
            }
        }
        output.push_str(text.get(copied..).unwrap_or_default());
        Some(output)
    }
}

fn builtin(span: std::ops::Range<usize>, detector: Detector) -> Hit {
    Hit {
        span,
        rank: DetectorId::CUSTOM as u8 + detector.id().0,
        id: detector.id(),
        plain: None,
    }
}

impl Custom {
    fn new(config: &CustomDetectorConfig) -> Result<Custom, String> {
        if config.regex.is_empty() {
            return Err("is required: set it to a regular expression".to_owned());
        }
        Ok(Custom {
            pattern: Pattern::new(&config.regex)?,
            checksum: config.checksum,
        })
    }

    fn valid(&self, hit: &str) -> bool {
        match self.checksum {
            Checksum::None => true,
            Checksum::Luhn => {
                let digits: Vec<u8> = hit.bytes().filter(u8::is_ascii_digit).collect();
                digits.len() >= 2 && luhn(digits.into_iter())
            }
            Checksum::Mod97 => {
                let characters: Vec<u8> = hit.bytes().filter(u8::is_ascii_alphanumeric).collect();
                let Some((head, rest)) = characters.split_at_checked(4) else {
                    return false;
                };
                !rest.is_empty() && mod97(rest.iter().chain(head).copied()) == 1
            }
        }
    }
}

fn check_name(name: &str, taken: &[String]) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() {
        return Err("is required: set it to the name of the detector".to_owned());
    }
    if name.len() > 40 || !name.bytes().all(fits) {
        return Err("must be at most 40 lower case letters, digits and _".to_owned());
    }
    if taken.iter().any(|taken| taken == name) {
        return Err("is already the name of another detector".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{DetectorConfig, HashFunction};
    use tributary_config::Secret;

    fn scanner(
        detectors: &[DetectorConfig],
        custom: &[CustomDetectorConfig],
        decode: bool,
    ) -> Scanner {
        let key = Secret::from("0123456789abcdef0123456789abcdef");
        Scanner::new(&ScannerSettings {
            detectors,
            custom,
            hash_function: None,
            hmac_key: &key,
            decode,
        })
        .unwrap()
    }

    fn usual(action: DetectorAction) -> Vec<DetectorConfig> {
        Detector::usual()
            .map(|name| DetectorConfig { name, action })
            .collect()
    }

    fn redact(scanner: &Scanner, text: &str) -> String {
        match scanner.scan(text, &mut Hits::default()).unwrap() {
            ScanOutcome::Clean => text.to_owned(),
            ScanOutcome::Rewritten(text) => text,
            ScanOutcome::Drop => "(dropped)".to_owned(),
        }
    }

    fn custom(name: &str, regex: &str, action: DetectorAction) -> CustomDetectorConfig {
        CustomDetectorConfig {
            name: name.to_owned(),
            regex: regex.to_owned(),
            checksum: Checksum::None,
            action,
        }
    }

    #[test]
    fn each_action_replaces_the_hit() {
        let text = "mail jane.doe@example.com today";
        for (action, expected) in [
            (DetectorAction::Mask, "mail **** today"),
            (DetectorAction::Replace, "mail [EMAIL] today"),
            (DetectorAction::Partial, "mail ****.com today"),
            (DetectorAction::Truncate, "mail "),
            (DetectorAction::Drop, "(dropped)"),
        ] {
            assert_eq!(redact(&scanner(&usual(action), &[], false), text), expected);
        }
        let hashed = redact(&scanner(&usual(DetectorAction::Hmac), &[], false), text);
        assert!(
            hashed.starts_with("mail [EMAIL:") && hashed.ends_with("] today"),
            "{hashed}"
        );
        assert_eq!(hashed.len(), "mail [EMAIL:] today".len() + 64);
        let again = redact(&scanner(&usual(DetectorAction::Hmac), &[], false), text);
        assert_eq!(hashed, again);
        let home = scanner(&usual(DetectorAction::Replace), &[], false);
        assert_eq!(redact(&home, "/home/jane/src/x.rs"), "~/src/x.rs");
    }

    #[test]
    fn hmac_without_key_is_refused_at_construction() {
        let detectors = usual(DetectorAction::Hmac);
        let settings = ScannerSettings {
            detectors: &detectors,
            custom: &[],
            hash_function: Some(HashFunction::HmacSha512),
            hmac_key: &Secret::default(),
            decode: false,
        };
        let error = Scanner::new(&settings).unwrap_err();
        assert_eq!(
            error.to_string(),
            "hmac_key must be at least 64 bytes long for hmac-sha512, and has 0"
        );
    }

    #[test]
    fn marks_of_earlier_redaction_are_not_hits() {
        let texts = [
            "GET https://jane:secret-1@example.com/home?mail=jane@example.com from 192.0.2.17",
            "Authorization: Bearer abcdefghijkl0123456789",
            "Basic dXNlcjpwYXNzd29yZA== and /home/jane/.ssh and C:\\Users\\jane\\x",
            "4111 1111 1111 1111, +49 30 90182012; 078-05-1120 00:1a:2b:3c:4d:5e",
            "x@y.com4111111111111111@z.com",
        ];
        for action in [
            DetectorAction::Mask,
            DetectorAction::Replace,
            DetectorAction::Hash,
            DetectorAction::Hmac,
            DetectorAction::Partial,
            DetectorAction::Truncate,
        ] {
            let mut detectors = usual(action);
            detectors.push(DetectorConfig {
                name: Detector::HighEntropy,
                action,
            });
            let scanner = scanner(&detectors, &[], true);
            for text in texts {
                let once = redact(&scanner, text);
                assert_ne!(once, text);
                assert_eq!(redact(&scanner, &once), once, "{action:?}");
            }
        }
    }

    #[test]
    fn pattern_matching_everything_terminates() {
        for action in [
            DetectorAction::Mask,
            DetectorAction::Replace,
            DetectorAction::Hash,
            DetectorAction::Partial,
        ] {
            let scanner = scanner(&[], &[custom("all", r"\S+", action)], false);
            let once = redact(&scanner, "jane doe");
            assert!(!once.contains("jane"), "{once}");
            assert_eq!(redact(&scanner, &once), once);
        }
    }

    #[test]
    fn overlapping_hits_merge_and_leftmost_decides() {
        let mut detectors = usual(DetectorAction::Mask);
        for detector in &mut detectors {
            if detector.name == Detector::Email {
                detector.action = DetectorAction::Replace;
            }
        }
        let customs = [custom("customer", r"cust-\w+", DetectorAction::Replace)];
        let scanner = scanner(&detectors, &customs, false);
        assert_eq!(redact(&scanner, "cust-jane@example.com!"), "[CUSTOMER]!");
        assert_eq!(
            redact(&scanner, "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0."),
            "Bearer ****."
        );
    }

    #[test]
    fn custom_detectors_have_checksums_and_unique_names() {
        let mut member = custom("member", r"M-(?P<value>\d+)", DetectorAction::Mask);
        member.checksum = Checksum::Luhn;
        let scanner = scanner(&[], std::slice::from_ref(&member), false);
        assert_eq!(redact(&scanner, "M-18 M-19"), "M-**** M-19");
        assert_eq!(scanner.detector_name(DetectorId(25)), "member");
        let make = |custom: CustomDetectorConfig| {
            Scanner::new(&ScannerSettings {
                detectors: &[],
                custom: &[custom],
                hash_function: None,
                hmac_key: &Secret::default(),
                decode: false,
            })
        };
        for (custom, error) in [
            (
                custom("", "x", DetectorAction::Mask),
                "custom[0].name: is required: set it to the name of the detector",
            ),
            (
                custom("email", "x", DetectorAction::Mask),
                "custom[0].name: is already the name of another detector",
            ),
            (
                custom("a", "", DetectorAction::Mask),
                "custom[0].regex: is required: set it to a regular expression",
            ),
        ] {
            assert_eq!(make(custom).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn encoded_run_with_hit_is_replaced_completely() {
        let encoded = scanner(&usual(DetectorAction::Replace), &[], true);
        for (text, expected) in [
            (
                "/find?mail=jane%40example.com&page=2",
                "/find?mail=[EMAIL]&page=2",
            ),
            ("path=%2Fhome%2Fjane%2Fsrc end", "path=~%2Fsrc end"),
            ("data: amFuZUBleGFtcGxlLmNvbQ== end", "data: [EMAIL] end"),
            ("data: amFuZUBleGFtcGxlLmNvbQ end", "data: [EMAIL] end"),
            ("100%25 sure", "100%25 sure"),
        ] {
            assert_eq!(redact(&encoded, text), expected);
        }
        let plain = scanner(&usual(DetectorAction::Replace), &[], false);
        assert_eq!(
            redact(&plain, "x=jane%40example.com"),
            "x=jane%40example.com"
        );
    }

    #[test]
    fn look_alike_characters_are_redacted() {
        let scanner = scanner(&usual(DetectorAction::Replace), &[], false);
        for (text, expected) in [
            (
                "card \u{ff14}111 1111 1111 111\u{ff11}.",
                "card [CREDIT_CARD].",
            ),
            (
                "\u{756a}\u{53f7}\u{ff14}\u{ff11}\u{ff11}\u{ff11}111111111111\u{3002}",
                "\u{756a}\u{53f7}[CREDIT_CARD]\u{3002}",
            ),
            ("jane.doe\u{ff20}example.com!", "[EMAIL]!"),
            ("4111\u{a0}1111\u{202f}1111\u{2009}1111", "[CREDIT_CARD]"),
            ("078\u{2011}05\u{2011}1120", "[US_SSN]"),
            ("41\u{ad}11\u{200b}111111111111 x", "[CREDIT_CARD] x"),
            (
                "\u{feff}jane@exam\u{2060}ple.com\u{feff}",
                "[EMAIL]\u{feff}",
            ),
        ] {
            assert_eq!(redact(&scanner, text), expected);
        }
        let text = "caf\u{e9} \u{ff11}\u{ff12} \u{2014} nothing";
        assert_eq!(redact(&scanner, text), text);
    }

    #[test]
    fn json_escapes_are_decoded_before_the_search() {
        let encoded = scanner(&usual(DetectorAction::Replace), &[], true);
        for (text, expected) in [
            (
                r#"{"a":"jane\u0040example.com","b":1}"#,
                r#"{"a":"[EMAIL]","b":1}"#,
            ),
            (
                r#"{"n":"x\n4111111111111111\n"}"#,
                r#"{"n":"x\n[CREDIT_CARD]\n"}"#,
            ),
            (
                r#"{"url":"ftp:\/\/u:pw1@h\/x"}"#,
                r#"{"url":"ftp:\/\/[URL_CREDENTIALS]@h\/x"}"#,
            ),
            (r#"{"p":"\/home\/jane\/x"}"#, r#"{"p":"~\/x"}"#),
            (
                r#"{"c":"\uff14111111111111111"}"#,
                r#"{"c":"[CREDIT_CARD]"}"#,
            ),
            (r#"{"a":"\u00e9t\u00e9"}"#, r#"{"a":"\u00e9t\u00e9"}"#),
        ] {
            assert_eq!(redact(&encoded, text), expected);
            assert_eq!(redact(&encoded, expected), expected);
        }
        let plain = scanner(&usual(DetectorAction::Replace), &[], false);
        assert_eq!(
            redact(&plain, r"jane\u0040example.com"),
            r"jane\u0040example.com"
        );
    }

    #[test]
    fn private_key_of_any_length_is_removed() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], false);
        for lines in [10, 300, 3000] {
            let body =
                "MIIEowIBAAKCAQEA7bq0Qm9x3n5kF1c2V8sYtGdLwPzHjRuXoNaEiTbCyKvMqSfU\n".repeat(lines);
            let key = format!("key: -----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----");
            assert_eq!(redact(&scanner, &key), "key: ****");
            for cut in [key.len() - 40, key.len() - 10] {
                assert_eq!(redact(&scanner, &key[..cut]), "key: ****");
            }
        }
    }

    /// Returns a PEM private key with the given number of lines.
    fn pem(lines: usize) -> String {
        let body =
            "MIIEowIBAAKCAQEA7bq0Qm9x3n5kF1c2V8sYt/dLwPz+jRuXoNaEiTbCyKvMqSfU\n".repeat(lines);
        format!("-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----\n")
    }

    #[test]
    fn percent_encoded_key_is_removed_completely() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], true);
        for (plain, form) in [
            ("/", false),
            ("/+", false),
            ("", false),
            ("/", true),
            ("", true),
        ] {
            let mut encoded = String::from("key=");
            for byte in pem(12).bytes() {
                let kept = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                match byte {
                    b' ' if form => encoded.push('+'),
                    _ if kept || plain.as_bytes().contains(&byte) => encoded.push(char::from(byte)),
                    _ => encoded.push_str(&format!("%{byte:02X}")),
                }
            }
            for end in [encoded.len(), encoded.len() - 60] {
                let redacted = redact(&scanner, &encoded[..end]);
                assert!(redacted.len() < 16, "{redacted}");
            }
            let followed = redact(&scanner, &format!("{encoded}&user=17"));
            assert!(
                followed.ends_with("&user=17") && followed.len() < 24,
                "{followed}"
            );
        }
    }

    #[test]
    fn wrapped_base64_key_is_removed_completely() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], true);
        let encoded = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            pem(12).as_bytes(),
        );
        let breaks = ["\n", "\r\n", "\n    ", "\\n", "\\r\\n", "%0A", "%0D%0A"];
        for (width, line_break) in [64, 70, 76]
            .into_iter()
            .flat_map(|width| breaks.map(|b| (width, b)))
        {
            let lines: Vec<&str> = encoded
                .as_bytes()
                .chunks(width)
                .map(|line| std::str::from_utf8(line).unwrap())
                .collect();
            let wrapped = lines.join(line_break);
            for text in [
                format!("tls.key: {wrapped}"),
                format!("/secret/{wrapped} end"),
            ] {
                let redacted = redact(&scanner, &text);
                assert!(redacted.len() < 24, "{width} {line_break:?}: {redacted}");
            }
            let cut = redact(&scanner, &format!("x {}", &lines[..5].join(" ")));
            assert!(cut.len() < 12, "{cut}");
        }
        // Words and ids, one per line, are no hits.
        let ids = ["checkout-7d9c5b6f4", "4bf92f3577b34da6a3ce929d0e0e4736"]
            .repeat(9)
            .join("\n");
        assert_eq!(redact(&scanner, &ids), ids);
    }

    #[test]
    fn url_password_is_found_with_any_characters() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], false);
        for (text, expected) in [
            (
                "postgres://app:pa/ss@db:5432/x",
                "postgres://****@db:5432/x",
            ),
            (
                "postgres://app:p#a?s/s@db/x?y=1",
                "postgres://****@db/x?y=1",
            ),
            ("redis://:a/b@c@cache/0 y@z", "redis://****@cache/0 y@z"),
            ("http://host:8080/a/b@c", "http://host:8080/a/b@c"),
            ("http://${HOST}:${PORT}/a@b", "http://${HOST}:${PORT}/a@b"),
            (
                "https://example.com/x:y/@jane",
                "https://example.com/x:y/@jane",
            ),
            ("http://[2001:db8::1]:80/@x", "http://[****]:80/@x"),
        ] {
            assert_eq!(redact(&scanner, text), expected);
        }
    }

    #[test]
    fn redaction_is_idempotent_for_every_action_and_hash() {
        let texts = [
            "GET https://jane:secret-1@example.com/home?mail=jane@example.com from 192.0.2.17",
            "Bearer abcdefghijkl0123456789 4111 1111 1111 1111, +49 30 90182012; 078-05-1120",
            "/home/jane/.ssh cust-42 \u{ff14}111 1111 1111 1111",
        ];
        let key = Secret::from("0123456789abcdef".repeat(4).as_str());
        let functions = [
            None,
            Some(HashFunction::Md5),
            Some(HashFunction::Sha1),
            Some(HashFunction::Sha3),
            Some(HashFunction::HmacSha256),
            Some(HashFunction::HmacSha512),
        ];
        let actions = [
            DetectorAction::Mask,
            DetectorAction::Replace,
            DetectorAction::Hash,
            DetectorAction::Hmac,
            DetectorAction::Partial,
            DetectorAction::Truncate,
        ];
        for (action, hash_function) in actions.into_iter().flat_map(|a| functions.map(|f| (a, f))) {
            let scanner = Scanner::new(&ScannerSettings {
                detectors: &usual(action),
                custom: &[custom("customer", r"cust-\d+", action)],
                hash_function,
                hmac_key: &key,
                decode: true,
            })
            .unwrap();
            for text in texts {
                let once = redact(&scanner, text);
                assert_ne!(once, text);
                let again = scanner.scan(&once, &mut Hits::default());
                assert!(
                    again == Ok(ScanOutcome::Clean),
                    "{action:?} {hash_function:?}: {once}"
                );
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn secrets_are_removed_in_any_surroundings(
            parts in proptest::collection::vec(0..PARTS.len(), 0..12),
            (at, planted) in (0..12_usize, 0..PRIVATE.len()),
            decode: bool,
        ) {
            let mut texts: Vec<&str> = parts.iter().map(|part| PARTS[*part]).collect();
            let (private, shown) = PRIVATE[planted];
            texts.insert(at.min(texts.len()), private);
            let text = texts.concat();
            let scanner = scanner(&usual(DetectorAction::Mask), &[], decode);
            let once = redact(&scanner, &text);
            proptest::prop_assert!(!once.contains(shown), "{text:?} became {once:?}");
            proptest::prop_assert_eq!(redact(&scanner, &once), once);
        }
    }

    /// Surroundings of private data, including partial encodings and partial private data.
    const PARTS: [&str; 16] = [
        " ",
        "x ",
        " \u{e9}",
        "\u{ff11}",
        "\u{ad}",
        "\\u0031",
        "\\n",
        "\\",
        "****",
        " [EMAIL] ",
        " %40",
        "\u{a0}",
        " http://u:p/",
        " 4111 1111 1111 ",
        " -----BEGIN PRIVATE KEY-----",
        "\u{3000}",
    ];

    /// Private data that must be found in any surroundings, and the part of it that must be removed.
    const PRIVATE: [(&str, &str); 5] = [
        (" <canary@example.com> ", "canary"),
        (" <\u{ff14}111 1111 1111 1111> ", "1111 1111>"),
        (" <2001:db8::c0de> ", "c0de"),
        (" <postgres://u:pass/word@db/x> ", "pass/word"),
        (" </home/canary/x> ", "canary"),
    ];

    #[test]
    fn text_with_endless_hits_is_refused() {
        let eats = custom("eats", r"(\*{4}|a) .", DetectorAction::Mask);
        let scanner = scanner(&[], &[eats], false);
        assert_eq!(redact(&scanner, "a b c d"), "****");
        let long = "a b c d e f g h i j k l m n o p";
        let scanned = scanner.scan(long, &mut Hits::default());
        assert!(scanned == Err(Unscannable::Unsettled));
    }

    #[test]
    fn catastrophic_patterns_take_bounded_time() {
        let size = 1 << 16;
        for (pattern, text) in [
            (r"^(a+)+$", "a".repeat(size) + "!"),
            (r"(a|aa)+x", "a".repeat(size)),
            (r"(?:[a-z]{1,30}){1,30}@", "a".repeat(size)),
            (r"(.*)*y", "x".repeat(size)),
            (r"(?P<value>(\w+\s?)*)#", "word ".repeat(size / 5)),
        ] {
            let scanner = scanner(&[], &[custom("c", pattern, DetectorAction::Mask)], true);
            let begun = std::time::Instant::now();
            // The text has no hit, so it must be neither changed nor refused.
            assert_eq!(redact(&scanner, &text), text);
            let took = begun.elapsed();
            assert!(
                took < std::time::Duration::from_secs(15),
                "{pattern}: {took:?}"
            );
        }
    }

    #[test]
    fn debug_output_contains_no_private_data() {
        let scanner = scanner(&usual(DetectorAction::Hmac), &[], false);
        let shown = format!("{scanner:?}");
        assert!(!shown.contains("0123456789abcdef"), "{shown}");
    }

    #[test]
    fn hits_next_to_non_ascii_text_are_found() {
        let scanner = scanner(&usual(DetectorAction::Replace), &[], false);
        for (text, expected) in [
            ("卡号4111111111111111，谢谢", "卡号[CREDIT_CARD]，谢谢"),
            ("“4111 1111 1111 1111”", "“[CREDIT_CARD]”"),
            ("\u{a0}078-05-1120\u{a0}", "\u{a0}[US_SSN]\u{a0}"),
            ("mail: jane@example.com，电话123", "mail: [EMAIL]，电话123"),
            ("「192.168.7.9」", "「[IP_ADDRESS]」"),
            ("“DE89370400440532013000”", "“[IBAN]”"),
            ("‘AKIAIOSFODNN7EXAMPLE’", "‘[AWS_ACCESS_KEY]’"),
        ] {
            assert_eq!(redact(&scanner, text), expected);
        }
    }

    #[test]
    fn equal_meaning_has_equal_hash() {
        let scanner = scanner(&usual(DetectorAction::Hmac), &[], true);
        let hash = |text: &str| {
            let redacted = redact(&scanner, text);
            let hash = redacted
                .split_once(':')
                .and_then(|(_, rest)| rest.split_once(']'));
            hash.unwrap_or_else(|| panic!("{text}: {redacted}"))
                .0
                .to_owned()
        };
        let email = hash("jane@example.com");
        for text in [
            "mail Jane@Example.com!",
            "q=jane%40example.com",
            "amFuZUBleGFtcGxlLmNvbQ==",
            r#"{"a" "jane\u0040example.com"}"#,
            "jane\u{ff20}example.com",
        ] {
            assert_eq!(hash(text), email, "{text}");
        }
        let card = hash("4111111111111111");
        for text in ["4111-1111-1111-1111", "\u{ff14}111 1111 1111 1111"] {
            assert_eq!(hash(text), card, "{text}");
        }
        assert_ne!(hash("5555555555554444"), card);
    }

    #[test]
    fn hits_in_lists_and_ranges_are_found() {
        let scanner = scanner(&usual(DetectorAction::Replace), &[], false);
        for (text, expected) in [
            ("4111111111111111,123", "[CREDIT_CARD],123"),
            (
                "[4111111111111111,5555555555554444]",
                "[[CREDIT_CARD],[CREDIT_CARD]]",
            ),
            ("7,4111111111111111", "7,[CREDIT_CARD]"),
            ("4111111111111111_1", "[CREDIT_CARD]_1"),
            ("17,4111 1111 1111 1111,1", "17,[CREDIT_CARD],1"),
            (
                "4111111111111111-5555555555554444",
                "[CREDIT_CARD]-[CREDIT_CARD]",
            ),
            ("7,415-555-2671", "7,[PHONE]"),
            ("4,111,111,111,111,111", "4,111,111,111,111,111"),
            ("10.0.0.1-10.0.0.9", "[IP_ADDRESS]-[IP_ADDRESS]"),
            ("10.0.0.1-10.0.0.9.", "[IP_ADDRESS]-[IP_ADDRESS]."),
            ("192.0.2.1-443", "[IP_ADDRESS]-443"),
            ("10.0.0.1-9", "[IP_ADDRESS]-9"),
            (
                "10.0.0.1:80-10.0.0.2:443",
                "[IP_ADDRESS]:80-[IP_ADDRESS]:443",
            ),
            (
                "192.0.2.1-192.0.2.7-192.0.2.9",
                "[IP_ADDRESS]-[IP_ADDRESS]-[IP_ADDRESS]",
            ),
            ("1.2.3.4-1", "1.2.3.4-1"),
            ("1.2.3.4-rc1", "1.2.3.4-rc1"),
            ("version 1.2.3.4-1.2.3.5", "version 1.2.3.4-1.2.3.5"),
            ("foo-1.2.3.4-5.jar", "foo-1.2.3.4-5.jar"),
            ("jane.doe@example.com_20261101", "[EMAIL]_20261101"),
            (
                "?next=https://shop.example.com&email=jane.doe@example.com",
                "?next=https://shop.example.com&email=[EMAIL]",
            ),
            ("https://a.com|jane@b.com", "https://a.com|[EMAIL]"),
            ("https://jane@example.com/x", "https://jane@example.com/x"),
            ("\u{ab}/home/jane/x\u{bb}", "\u{ab}~/x\u{bb}"),
            ("\u{8def}\u{5f84}/home/jane", "\u{8def}\u{5f84}~"),
            ("/var/home/jane/x", "/var~/x"),
            (
                "https://example.com/var/home/x",
                "https://example.com/var/home/x",
            ),
            ("Basic dXNlcjpwYXNzd29yZDEyM", "Basic [BASIC_AUTH]"),
        ] {
            assert_eq!(redact(&scanner, text), expected);
            assert_eq!(redact(&scanner, expected), expected);
        }
    }

    #[test]
    fn encoded_secrets_are_found_among_bytes_and_in_paths() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], true);
        let encode = |bytes: &[u8]| {
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
        };
        let hidden = [
            "%E9t%E9=1;x%E9%20jane%40example.com".to_owned(),
            format!("/api/v1/tokens/{}", encode(b"jane.doe@example.com")),
            format!("id_{}", encode(b"jane.doe@example.com")),
            encode(b"\x0a\x14jane.doe@example.com\xff\xfe"),
            encode(b"\xe9 jane.doe@example.com \xe9"),
        ];
        for text in hidden {
            assert!(redact(&scanner, &text).contains("****"), "{text}");
        }
    }

    #[test]
    fn hits_inside_fake_marks_are_found() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], false);
        for text in ["[EMAIL:4111111111111111]", "[PHONE:378282246310005]"] {
            assert!(redact(&scanner, text).contains("****"), "{text}");
        }
    }

    /// Returns the processor time of this thread, which is independent of other load on the machine.
    fn processor_time() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let nanoseconds = text.split(' ').next().unwrap();
        Duration::from_nanos(nanoseconds.parse().unwrap())
    }

    #[test]
    fn scan_time_is_linear() {
        let scanner = scanner(&usual(DetectorAction::Mask), &[], true);
        let took = |piece: &str, size: usize| {
            let text = piece.repeat(size / piece.len());
            let begun = processor_time();
            let _ = scanner.scan(&text, &mut Hits::default());
            processor_time() - begun
        };
        for piece in [
            "-----BEGIN PRIVATE KEY-----",
            "eyJhbGciOiJub25lIn0.AA.",
            "a@b.co ",
            "://",
            "a://a:b@",
            "/home/a",
            "[",
            "[EMAIL",
            "*",
            "****",
            "4111 1111 1111 1111 ",
            "1:",
            "::",
            "ab:",
            "Bearer ",
            "%40",
            "1.",
            "+1 ",
            "00-",
            "é@",
            "DE89 ",
            "sk_live_",
            "xoxb-",
            "AKIA",
            "AIza",
            "ghp_",
            "whsec_",
            "a.",
            "Basic ",
            "a://a:b/",
            "a://a:b/@",
            "\u{ff20}",
            "1\u{ad}",
            "\\u0040",
            "\\\\",
        ] {
            let (short, long) = (took(piece, 1 << 13), took(piece, 1 << 17));
            // Linear time would be 16 times as long, quadratic time 256 times. The clock may be late by some
            // milliseconds.
            let limit = 48 * short + Duration::from_millis(100);
            assert!(
                long < limit,
                "{piece}: {short:?}, and {long:?} for 16 times as much"
            );
        }
    }
}
