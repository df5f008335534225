//! All detectors of a configuration together.

use std::fmt;

use super::catalogue::{Detector, DetectorId, Hits};
use super::detect::{luhn, mod97};
use super::find::{AllFound, Enabled, SHORTEST, find};
use super::marks::{Hashers, Hit, MASK, Treatment, label, marks, merge};
use super::pattern::Pattern;
use super::settings::{Checksum, CustomDetectorConfig, DetectorAction};
use super::{Outcome, Settings, SettingsError, Unscannable, decode};

/// Finds what is private, with all detectors of a configuration at once. Compiled once, shared by all threads.
pub struct Scanner {
    enabled: Enabled,
    custom: Vec<Custom>,
    /// By detector id.
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
    /// How often a text is scanned at most.
    pub const ROUNDS: usize = 8;

    /// Compiles the detectors.
    ///
    /// # Errors
    ///
    /// What is wrong with the settings, and where. Without a key that is long enough the action `hmac` is an error, not
    /// another action.
    pub fn new(settings: &Settings<'_>) -> Result<Scanner, SettingsError> {
        if settings.custom.len() > DetectorId::CUSTOM {
            return Err(SettingsError::TooMany(settings.custom.len()));
        }
        let mut enabled = Enabled::default();
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
        Ok(Scanner {
            enabled,
            custom,
            treatments,
            names,
            hashers: Hashers::new(settings, used)?,
            decode: settings.decode,
        })
    }

    /// Finds what is private in a text and takes it out. Adds what was found to `hits`.
    ///
    /// # Errors
    ///
    /// [`Unscannable`]: the text must not be passed on.
    #[inline]
    pub fn scan(&self, text: &str, hits: &mut Hits) -> Result<Outcome, Unscannable> {
        let mut found = AllFound::new();
        find(self.enabled, text.as_bytes(), &mut found);
        if found.is_empty() && self.custom.is_empty() && !self.decode {
            return Ok(Outcome::Clean);
        }
        self.scan_on(text, found, hits)
    }

    /// The name of a detector, for metrics and summaries: `email`. Empty if there is none with that id.
    pub fn detector_name(&self, id: DetectorId) -> &str {
        self.names.get(id.index()).map_or("", String::as_str)
    }

    /// The rest of the way, for a text in which something was found or that must be looked at more closely.
    fn scan_on(
        &self,
        text: &str,
        found: AllFound,
        hits: &mut Hits,
    ) -> Result<Outcome, Unscannable> {
        let mut found = self.hits(text, found);
        if found.is_empty() {
            return Ok(Outcome::Clean);
        }
        let mut rewritten = text.to_owned();
        for _ in 0..Scanner::ROUNDS {
            for hit in &found {
                hits.add(hit.id);
            }
            rewritten = match self.rewrite(&rewritten, &found) {
                Some(rewritten) => rewritten,
                None => return Ok(Outcome::Drop),
            };
            let mut again = AllFound::new();
            find(self.enabled, rewritten.as_bytes(), &mut again);
            found = self.hits(&rewritten, again);
            if found.is_empty() {
                return Ok(Outcome::Rewritten(rewritten));
            }
        }
        Err(Unscannable)
    }

    /// All hits of a text, those of custom detectors and of decoded runs included, in order and without overlaps.
    fn hits(&self, text: &str, found: AllFound) -> Vec<Hit> {
        let mut hits: Vec<Hit> = found
            .into_iter()
            .map(|found| builtin(found.span, found.detector))
            .collect();
        self.find_custom(text, &mut hits);
        if self.decode && text.len() >= SHORTEST {
            decode::decoded(text, |span, plain| {
                let mut found = AllFound::new();
                find(self.enabled, plain.as_bytes(), &mut found);
                let mut inside: Vec<Hit> = found
                    .into_iter()
                    .map(|found| builtin(found.span, found.detector))
                    .collect();
                self.find_custom(plain, &mut inside);
                self.remove_marks(plain, &mut inside);
                merge(&mut inside);
                if let Some(first) = inside.into_iter().next() {
                    hits.push(Hit { span, ..first });
                }
            });
        }
        if hits.is_empty() {
            return hits;
        }
        self.remove_marks(text, &mut hits);
        merge(&mut hits);
        hits
    }

    fn find_custom(&self, text: &str, hits: &mut Vec<Hit>) {
        let first = Detector::ALL.len();
        for (custom, position) in self.custom.iter().zip(0_u8..) {
            if !custom.pattern.is_match(text) {
                continue;
            }
            let values = custom.pattern.values(text);
            let valid =
                values.filter(|span| custom.valid(text.get(span.clone()).unwrap_or_default()));
            hits.extend(valid.map(|span| Hit {
                span,
                rank: position,
                id: DetectorId(position + first as u8),
            }));
        }
    }

    /// Leaves alone what an earlier redaction has written.
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
            !marks
                .iter()
                .any(|mark| mark.start <= hit.span.start && hit.span.end <= mark.end)
        });
    }

    /// The text with each hit replaced; none if it is to be dropped.
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
                _ => treatment.write(inside, &self.hashers, &mut output),
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
    }
}

impl Custom {
    fn new(config: &CustomDetectorConfig) -> Result<Custom, String> {
        if config.regex.is_empty() {
            return Err("is required: a regular expression of what to find".to_owned());
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
        return Err("is required: what metrics call it".to_owned());
    }
    if name.len() > 40 || !name.bytes().all(fits) {
        return Err("must be at most 40 lower case letters, digits and _".to_owned());
    }
    if taken.iter().any(|taken| taken == name) {
        return Err("is the name of another detector".to_owned());
    }
    Ok(())
}
